// Who works: processes, what they hold and serve, and what nobody holds.

import { get } from "../api.js";
import { Badge, Empty, Figure, html, Loaded, Table, useLoad } from "../ui.js";
import { number, secondsOf, spell } from "../words.js";

const EVERY_MS = 3000;
const SHOWN = 12;

/** Numbers in a row as a range: `0–7, 12`. */
export function ranges(numbers) {
  const found = [];
  for (const one of numbers) {
    const last = found[found.length - 1];
    if (last && one === last[1] + 1) last[1] = one;
    else found.push([one, one]);
  }
  return found.map(([from, to]) => (from === to ? `${from}` : `${from}–${to}`));
}

const serves = (worker) => [
  worker.only.length ? `only the queues ${worker.only.join(", ")}` : "all queues",
  worker.never.length ? `but ${worker.never.join(", ")}` : "",
].filter(Boolean).join(" ");

const COLUMNS = [
  { name: "Worker", className: "nowrap", cell: (row) => html`<code title=${row.worker}>${row.name}</code>` },
  { name: "", cell: (row) => row.alive ? "" : html`<${Badge} text="silent" />` },
  { name: "Last heartbeat", className: "number", cell: (row) => `${spell(secondsOf(row.silent_for))} ago` },
  { name: "Shards", className: "number", cell: (row) => number(row.shards.length) },
  { name: "Which", className: "long", cell: (row) => ranges(row.shards).slice(0, SHOWN).join(", ") },
  { name: "Serves", cell: serves },
  { name: "Needs that it has", className: "long", cell: (row) => row.needs.join(", ") },
];

export function Workers() {
  const list = useLoad((signal) => get("v1/workers", {}, signal), [], { every: EVERY_MS });
  return html`<h1>Workers</h1>
    <${Loaded} from=${list}>${({ workers, shards, unowned }) => html`
      <div class="figures">
        <${Figure} name="Alive" value=${number(workers.filter((one) => one.alive).length)} tone=${workers.some((one) => one.alive) ? "" : "bad"} />
        <${Figure} name="Silent" value=${number(workers.filter((one) => !one.alive).length)} note="no heartbeat for 30 s" tone=${workers.every((one) => one.alive) ? "" : "warn"} />
        <${Figure} name="Shards" value=${number(shards)} />
        <${Figure} name="Shards without an owner" value=${number(unowned.length)} tone=${unowned.length ? "bad" : ""} note=${ranges(unowned).slice(0, SHOWN).join(", ")} />
      </div>
      ${workers.length ? html`<${Table} columns=${COLUMNS} rows=${workers} label="Workers" />`
        : html`<${Empty} label="No worker is there: nothing begins."><p>Start one: <code>gnomon worker --database …</code>, or everything at once: <code>gnomon up</code></p><//>`}`}<//>`;
}
