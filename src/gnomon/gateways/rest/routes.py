"""The table of routes. The dispatcher, its checks and the OpenAPI document are made from it."""

from __future__ import annotations

from functools import cache

from starlette.responses import Response

from gnomon.contracts.status import InstallationStatus
from gnomon.contracts.store import InstallationFigures, StoreMeasures
from gnomon.contracts.task_rows import TaskDetail, TaskDraft
from gnomon.gateways.auth import OPERATE
from gnomon.gateways.entities import (
    DOCUMENTS_BYTES_MAX,
    STATE_BODY_BYTES_MAX,
    EntityAnswer,
    StateAnswer,
)
from gnomon.gateways.rest import (
    actions,
    entities,
    installation,
    limits,
    previews,
    reports,
    schedules,
    status,
    tasks,
)
from gnomon.gateways.rest.call import Call
from gnomon.gateways.rest.constraints import ENTITY_KIND, KEY, NAME, REASON, TASK_ID, TEXT
from gnomon.gateways.rest.openapi import describe
from gnomon.gateways.rest.responses import json_response
from gnomon.gateways.rest.route import OPEN, Json, Parameter, Route
from gnomon.model.action import State
from gnomon.model.codec import BODY_BYTES_MAX
from gnomon.model.load import BUCKETS_MAX, LoadUnit
from gnomon.model.stage.json_patch import DOCUMENT_BYTES_MAX
from gnomon.model.why import Why
from gnomon.scheduler.attempt_history import History
from gnomon.scheduler.failure_groups import FailureReport
from gnomon.scheduler.load_report import LoadReport
from gnomon.scheduler.preview import FIRINGS_MAX, Preview
from gnomon.scheduler.reports import GROUPS_MAX
from gnomon.scheduler.scheduler import COUNT_MAX, PAGE_MAX
from gnomon.scheduler.selected import Verb
from gnomon.stages.explain import Explanation

# -- parameters -----------------------------------------------------------------------------------

LIMIT = Parameter("limit", {"type": "integer", "minimum": 1, "maximum": PAGE_MAX})
AFTER = Parameter("after", TEXT, "`next` of the page before")
AFTER_TASK = Parameter("after", TASK_ID, "`next` of the page before")
ID_PREFIX = Parameter("id_prefix", TEXT)
STAGE = Parameter("stage", NAME)
KIND = Parameter("kind", ENTITY_KIND)
BARRIER = Parameter("barrier", {"type": "boolean"})
RUNNING = Parameter("running", {"type": "boolean"}, "ask the attempt under way to end, too")
STATE = Parameter("state", {"type": "array", "items": {"enum": [str(state) for state in State]}})
TASK_STATE = Parameter("state", {"type": "array", "items": {"enum": list(tasks.STATES)}})
LABEL = Parameter("label", {"type": "array", "items": {**TEXT, "pattern": "^[^=]+=.*$"}})
DUE_BEFORE = Parameter("due_before", {**TEXT, "format": "date-time"})
BEFORE = Parameter("before", {**TEXT, "format": "date-time"}, "`next` of the page before")
FUNCTION = Parameter("function", TEXT, "that they call")
ERROR_CONTAINS = Parameter("error_contains", TEXT, "the error of the last attempt that ended")
ARGUMENT = Parameter(
    "argument", {"type": "array", "items": {**TEXT, "pattern": "^[^=]+=.*$"}},
    "path=value such as customer.id=7",
)  # fmt: skip
SEARCH = Parameter("search", TEXT, "in the id, the queue or the function, whatever the case")
RECURRING = Parameter("recurring", {"type": "boolean"}, "only those that come again")
PAUSED_FOR = Parameter("paused_for", TEXT, "only those that are paused for this reason")
PAUSE_REASON = Parameter("reason", REASON, "why it is paused")
PAUSE_UNTIL = Parameter(
    "until", TEXT, "when it goes on by itself: a time with its zone, or a duration such as 2h"
)
QUEUE = Parameter("queue", TEXT)
UNIT = Parameter("unit", {"enum": [str(unit) for unit in LoadUnit]})
FROM = Parameter("from", {**TEXT, "format": "date-time"})
TO = Parameter("to", {**TEXT, "format": "date-time"})
ACTION_FILTERS = (
    STATE, LABEL, QUEUE, ID_PREFIX, DUE_BEFORE, FUNCTION, ERROR_CONTAINS, ARGUMENT,
    SEARCH, RECURRING, PAUSED_FOR,
)  # fmt: skip
PREVIEW_COUNT = Parameter("count", {"type": "integer", "minimum": 1, "maximum": FIRINGS_MAX})
SCHEDULES_LIMIT = Parameter(
    "limit", {"type": "integer", "minimum": 1, "maximum": schedules.LIMIT_MAX}
)
VERB = Parameter("verb", {"enum": [str(verb) for verb in Verb]})
COUNT_LIMIT = Parameter("limit", {"type": "integer", "minimum": 1, "maximum": COUNT_MAX})

IDEMPOTENCY_KEY = Parameter("Idempotency-Key", KEY)
IF_GENERATION = Parameter(
    "If-Match", {**TEXT, "pattern": '^"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"$'}
)
IF_VERSION = Parameter("If-Match", {**TEXT, "pattern": r'^"([0-9]{1,15}\.)?[0-9]{1,15}"$'})
IF_ABSENT = Parameter("If-None-Match", {"const": "*"})

PATCHES = {
    entities.MERGE_PATCH: entities.Document,
    entities.JSON_PATCH: list[entities.PatchStep],
}

# -- the table ------------------------------------------------------------------------------------

_ACTION = "/v1/actions/{id}"
_LIMIT = "/v1/limits/{limit_kind}/{name}"
_TASKS = "/v1/task-tables/{table}/tasks"
_TASK = f"{_TASKS}/{{task_id}}"
_KIND = "/v1/entities/{kind}"
_ENTITY = f"{_KIND}/{{id}}"
_STATE = f"{_ENTITY}/states/{{stage}}"
_CHANGED = actions.ActionAnswer


async def show_openapi(call: Call) -> Response:
    """This API."""
    return json_response(openapi_document(is_required=await call.services.authorizer.is_required()))


# fmt: off
ROUTES = (
    Route("create", "POST", "/v1/actions", actions.create_action, _CHANGED, status=201,
          body=actions.CreateBody, bytes_max=BODY_BYTES_MAX, headers=(IDEMPOTENCY_KEY,),
          errors=(409,)),
    Route("create_many", "POST", "/v1/actions:bulk", actions.create_actions, actions.BulkAnswer,
          body=actions.BulkBody, bytes_max=actions.BULK_BYTES_MAX),
    Route("list", "GET", "/v1/actions", actions.list_actions, actions.ActionList,
          query=(*ACTION_FILTERS, LIMIT, AFTER)),
    Route("count", "GET", "/v1/actions:count", actions.count_actions, actions.ActionCount,
          query=(*ACTION_FILTERS, COUNT_LIMIT, AFTER)),
    Route("change_selected", "POST", "/v1/actions:change", actions.change_actions,
          actions.StepAnswer,
          query=(VERB, *ACTION_FILTERS, RUNNING, PAUSE_REASON, PAUSE_UNTIL, AFTER, LIMIT)),
    Route("get", "GET", _ACTION, actions.get_action, actions.ActionAnswer, errors=(404,)),
    Route("replace", "PUT", _ACTION, actions.replace_action, _CHANGED,
          body=actions.ReplaceBody, bytes_max=BODY_BYTES_MAX, query=(BARRIER,),
          headers=(IDEMPOTENCY_KEY, IF_GENERATION), errors=(404, 412)),
    Route("delete", "DELETE", _ACTION, actions.delete_action, _CHANGED,
          query=(RUNNING, BARRIER), headers=(IF_GENERATION,), errors=(404, 412)),
    Route("run_now", "POST", f"{_ACTION}/run", actions.run_action, _CHANGED,
          headers=(IF_GENERATION,), errors=(404, 409, 412)),
    Route("pause", "POST", f"{_ACTION}/pause", actions.pause_action, _CHANGED,
          query=(PAUSE_REASON, PAUSE_UNTIL), headers=(IF_GENERATION,), errors=(404, 409, 412)),
    Route("resume", "POST", f"{_ACTION}/resume", actions.resume_action, _CHANGED,
          headers=(IF_GENERATION,), errors=(404, 409, 412)),
    Route("retry", "POST", f"{_ACTION}/retry", actions.retry_action, _CHANGED,
          errors=(404, 409, 412)),
    Route("attempts", "GET", f"{_ACTION}/attempts", actions.list_attempts, actions.AttemptList,
          query=(LIMIT,)),
    Route("why", "GET", f"{_ACTION}/why", actions.explain_action, Why, errors=(404,)),
    Route("events", "GET", f"{_ACTION}/events", actions.watch_action,
          content_type=actions.EVENT_STREAM, errors=(404,)),

    Route("preview", "GET", "/v1/preview", previews.show_preview, Preview,
          query=(Parameter("cron", TEXT), Parameter("timezone", TEXT), Parameter("every", TEXT),
                 Parameter("from", {**TEXT, "format": "date-time"}), PREVIEW_COUNT)),

    Route("list_limits", "GET", "/v1/limits", limits.list_limits, limits.LimitList),
    Route("get_limit", "GET", _LIMIT, limits.get_limit, limits.LimitAnswer, errors=(404,)),
    Route("set_limit", "PUT", _LIMIT, limits.set_limit, limits.LimitAnswer, scope=OPERATE,
          body=limits.LimitBody, bytes_max=limits.LIMIT_BYTES_MAX),
    Route("drop_limit", "DELETE", _LIMIT, limits.drop_limit, limits.LimitAnswer, scope=OPERATE,
          errors=(404,)),

    Route("list_task_tables", "GET", "/v1/task-tables", tasks.list_task_tables,
          tasks.TaskTableList),
    Route("list_tasks", "GET", _TASKS, tasks.list_tasks, tasks.TaskList, errors=(404,),
          query=(TASK_STATE, Parameter("group", TEXT), LIMIT, AFTER_TASK)),
    Route("insert_task", "POST", _TASKS, tasks.insert_task, TaskDetail, status=201,
          body=TaskDraft, bytes_max=tasks.INPUT_BYTES_MAX, errors=(404,)),
    Route("get_task", "GET", _TASK, tasks.get_task, TaskDetail, errors=(404,)),
    Route("why_task", "GET", f"{_TASK}/why", tasks.explain_task, Why, errors=(404,)),
    Route("stop_task", "POST", f"{_TASK}/stop", tasks.stop_task, TaskDetail, errors=(404, 409)),
    Route("plan_task", "POST", f"{_TASK}/plan", tasks.plan_task, TaskDetail, errors=(404, 409)),

    Route("put_entities", "POST", f"{_KIND}:bulk", entities.put_entities,
          entities.ChangedCount, body=entities.DocumentsBody, bytes_max=DOCUMENTS_BYTES_MAX),
    Route("list_entities", "GET", _KIND, entities.list_entities, entities.EntityList,
          query=(ID_PREFIX, LIMIT, AFTER)),
    Route("list_parked", "GET", "/v1/parked", entities.list_parked, entities.ParkedList,
          query=(KIND, STAGE, LIMIT, AFTER)),
    Route("get_entity", "GET", _ENTITY, entities.get_entity, EntityAnswer, errors=(404,)),
    Route("put_entity", "PUT", _ENTITY, entities.put_entity, EntityAnswer,
          body=entities.Document, bytes_max=DOCUMENT_BYTES_MAX, headers=(IF_VERSION, IF_ABSENT),
          errors=(412,)),
    Route("patch_entity", "PATCH", _ENTITY, entities.patch_entity, EntityAnswer,
          body=PATCHES, bytes_max=DOCUMENT_BYTES_MAX, headers=(IF_VERSION, IF_ABSENT),
          errors=(404, 412)),
    Route("delete_entity", "DELETE", _ENTITY, entities.delete_entity, status=204,
          headers=(IF_VERSION, IF_ABSENT), errors=(404, 412)),
    Route("explain_entity", "GET", f"{_ENTITY}/explain", entities.explain_entity, Explanation,
          errors=(404,)),
    Route("release_entity", "POST", f"{_ENTITY}/release", entities.release_entity,
          entities.ReleasedCount, query=(STAGE,)),
    Route("get_state", "GET", _STATE, entities.get_state, StateAnswer, errors=(404,)),
    Route("put_state", "PUT", _STATE, entities.put_state, StateAnswer,
          body=entities.StateBody, bytes_max=STATE_BODY_BYTES_MAX, errors=(404, 412)),

    Route("list_stages", "GET", "/v1/stages", entities.list_stages, entities.StageList),
    Route("backfill_stage", "POST", "/v1/stages/{name}/backfill", entities.backfill_stage,
          entities.BackfillAnswer, status=202, errors=(404,)),
    Route("forget_stage", "DELETE", "/v1/stages/{name}", entities.forget_stage,
          entities.RemovedCount, scope=OPERATE, errors=(404,)),

    Route("list_schedules", "GET", "/v1/schedules", schedules.list_schedules,
          schedules.ScheduleList, query=(Parameter("search", TEXT), SCHEDULES_LIMIT, AFTER)),
    Route("list_workers", "GET", "/v1/workers", installation.list_workers,
          installation.WorkerList),
    Route("database", "GET", "/v1/database", installation.show_database, StoreMeasures),
    Route("list_audit", "GET", "/v1/audit", installation.list_audit, installation.AuditList,
          query=(Parameter("actor", TEXT), Parameter("id", TEXT), BEFORE, LIMIT)),
    Route("list_functions", "GET", "/v1/functions", reports.list_functions,
          reports.FunctionList),
    Route("figures", "GET", "/v1/figures", reports.show_figures, InstallationFigures),
    Route("failures", "GET", "/v1/failures", reports.list_failures, FailureReport,
          query=(QUEUE, Parameter("limit", {**LIMIT.schema, "maximum": GROUPS_MAX}))),
    Route("history", "GET", "/v1/history", reports.show_history, History,
          query=(FROM, TO, Parameter("step", TEXT), QUEUE)),
    Route("load", "GET", "/v1/load", reports.show_load, LoadReport,
          query=(FROM, UNIT, Parameter("count", {**LIMIT.schema, "maximum": BUCKETS_MAX}))),

    Route("health", "GET", "/health", status.show_health, status.HealthAnswer, scope=OPEN,
          query=None),
    Route("status", "GET", "/v1/status", status.show_status, InstallationStatus),
    Route("list_installations", "GET", "/v1/installations", status.list_installations,
          status.InstallationList),
    Route("me", "GET", "/v1/me", status.show_caller, status.CallerAnswer),
    Route("metrics", "GET", "/metrics", status.show_metrics, content_type="text/plain",
          query=None),
    Route("openapi", "GET", "/openapi.json", show_openapi, query=None),
)
# fmt: on


@cache
def openapi_document(*, is_required: bool = True) -> Json:
    """The API in OpenAPI; `is_required` says whether calls need a token on this server."""
    return describe(ROUTES, is_required=is_required)
