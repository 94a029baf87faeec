// All views: the first part of the address, and the route without which there is nothing to show.

import { Overview } from "./overview.js";
import { Actions } from "./actions.js";
import { ActionPage } from "./action.js";
import { NewAction } from "./new_action.js";
import { Schedules } from "./schedules.js";
import { Failures } from "./failures.js";
import { Load } from "./load.js";
import { Lateness } from "./lateness.js";
import { Queues } from "./queues.js";
import { Workers } from "./workers.js";
import { Tasks } from "./tasks.js";
import { Stages } from "./stages.js";
import { Entities } from "./entities.js";
import { Database } from "./database.js";
import { Audit } from "./audit.js";

export const VIEWS = [
  { name: "overview", title: "Overview", letter: "o", view: Overview },
  { name: "actions", title: "Actions", letter: "a", view: Actions },
  { name: "action", title: "Action", under: "actions", view: ActionPage },
  { name: "new", title: "New action", under: "actions", view: NewAction },
  { name: "schedules", title: "Schedules", letter: "c", view: Schedules, needs: "/v1/schedules" },
  { name: "failures", title: "Failures", letter: "f", view: Failures, needs: "/v1/failures" },
  { name: "load", title: "Load ahead", letter: "h", view: Load, needs: "/v1/load" },
  { name: "lateness", title: "Lateness", letter: "l", view: Lateness, needs: "/v1/history" },
  { name: "queues", title: "Queues", letter: "q", view: Queues, needs: "/v1/limits" },
  { name: "workers", title: "Workers", letter: "w", view: Workers, needs: "/v1/workers" },
  { name: "stages", title: "Stages", letter: "s", view: Stages, needs: "/v1/stages" },
  { name: "entities", title: "Entities", under: "stages", view: Entities },
  { name: "tasks", title: "SQL tasks", letter: "t", view: Tasks, needs: "/v1/task-tables" },
  { name: "database", title: "Database", letter: "d", view: Database, needs: "/v1/database" },
  { name: "audit", title: "Audit", letter: "u", view: Audit, needs: "/v1/audit" },
];
