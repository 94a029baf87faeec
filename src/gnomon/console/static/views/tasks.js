// SQL tasks: the rows of task tables; what waits and why, what came out, what went wrong.

import { call, get } from "../api.js";
import { go, link } from "../routing.js";
import { Badge, Empty, Facts, Failure, html, Loaded, Pager, Table, Time, useLoad, useState } from "../ui.js";
import { LookOn } from "./actions.js";

const PAGE = 50;
const EVERY_MS = 5000;
const STATES = ["PLAN", "TAKE", "WORK", "DONE", "FAIL", "GONE", "STOP"];
const rows = (table) => `v1/task-tables/${encodeURIComponent(table)}/tasks`;

/** No length of time: the column's default, which says nothing. */
const set = (interval) => (/[1-9]/.test(interval || "") ? interval : "");

const columns = (table) => [
  { name: "Id", className: "number", cell: (row) => html`<a href=${link(["tasks", table, String(row.id)])}>${row.id}</a>` },
  { name: "State", cell: (row) => html`<${Badge} text=${row.state} />` },
  { name: "Group", className: "nowrap", cell: (row) => html`<a href=${link(["tasks", table], { group: row.group })}>${row.group}</a>` },
  { name: "Max", className: "number", cell: (row) => row.max },
  { name: "Plan", className: "nowrap", cell: (row) => html`<${Time} at=${row.plan} />` },
  { name: "Began", className: "nowrap", cell: (row) => html`<${Time} at=${row.start} />` },
  { name: "Input", className: "rest", cell: (row) => html`<code>${row.input}</code>` },
  { name: "Error", className: "text", cell: (row) => row.error && html`<span class="bad-text">${row.error}</span>` },
];

function TaskPage({ server, table, id }) {
  const place = `${rows(table)}/${id}`;
  const task = useLoad((signal) => get(place, {}, signal), [table, id], { every: EVERY_MS });
  const [error, setError] = useState(null);
  const act = (verb) => () => call("POST", `${place}/${verb}`).then(() => { setError(null); task.reload(); }, setError);
  const may = server.can("write") && server.can(`table:${table}`);
  const text = (name, value, tone) => value && html`<section class="card"><h2>${name}</h2><pre class=${`code ${tone || ""}`} tabindex="0" role="region" aria-label=${name}>${value}</pre></section>`;
  return html`<${Loaded} from=${task}>${(row) => html`
    <div class="head"><h1>Task ${row.id}</h1><${Badge} text=${row.state} /><a href=${link(["tasks", table])}>${table}</a></div>
    ${may && html`<div class="row">
      ${["PLAN", "TAKE", "WORK"].includes(row.state) ? html`<button type="button" class="danger" onClick=${act("stop")}>Stop</button>`
        : html`<button type="button" class="main" onClick=${act("plan")}>Perform again</button>`}</div>`}
    <${Failure} error=${error} />
    ${row.why && html`<p class="notice">${row.why}${row.until && html` · <${Time} at=${row.until} />`}</p>`}
    <section class="card"><${Facts} rows=${[
      ["Plan", html`<${Time} at=${row.plan} as="both" />`], ["Began", row.start && html`<${Time} at=${row.start} as="both" />`],
      ["Ended", row.stop && html`<${Time} at=${row.stop} as="both" />`], ["Group", row.group], ["Max", String(row.max)], ["Remote", row.remote],
      ["Backend", row.pid && String(row.pid)], ["Timeout", set(row.timeout)], ["Active", row.active], ["Live", set(row.live)], ["Repeat", set(row.repeat)],
      ["Cron", row.cron], ["Retries", row.retry ? `${row.retried} of ${row.retry} used` : ""], ["Parent", row.parent && String(row.parent)], ["Data", row.data],
    ]} /></section>
    ${text("Input", row.input)}${text("Output", row.output)}${text("Error", row.error, "bad-text")}`}<//>`;
}

function TableRows({ table, place }) {
  const state = place.get("state") || "", group = place.get("group") || "", after = place.get("after") || "";
  const before = Number(place.get("looked")) || 0;
  const list = useLoad((signal) => get(rows(table), { state, group, after, limit: PAGE }, signal), [table, state, group, after], { every: EVERY_MS });
  return html`<div class="head"><h1>${table}</h1>
      <label class="check">State <select value=${state} onChange=${(event) => go(["tasks", table], { state: event.target.value, group })}>
        <option value="">all</option>${STATES.map((name) => html`<option value=${name} selected=${name === state}>${name}</option>`)}</select></label>
      ${group && html`<span>group <strong>${group}</strong> <a href=${link(["tasks", table], { state })}>all groups</a></span>`}</div>
    <${Loaded} from=${list}>${({ tasks, next, looked_at: looked }) => html`
      ${looked && html`<${LookOn} key=${next} found=${tasks.length} next=${next} looked=${before + looked} read=${(from) => get(rows(table), { state, group, after: from, limit: PAGE })}
        isFound=${(some) => some.tasks.length} show=${(from, seen) => go(["tasks", table], { state, group, after: from, looked: seen })} />`}
      ${tasks.length ? html`<${Table} columns=${columns(table)} rows=${tasks} label="Tasks" />
      <${Pager} count=${tasks.length} what="tasks" first=${after && link(["tasks", table], { state, group })} next=${next && link(["tasks", table], { state, group, after: next })} />`
      : !looked && html`<${Empty} label=${state || group || after ? "No more task matches." : "No task is here."}><p>Insert one: <code>${"INSERT INTO task (input) VALUES ('SELECT now()')"}</code></p><//>`}`}<//>`;
}

export function Tasks({ server, parts, query }) {
  const [table, id] = parts;
  if (id) return html`<${TaskPage} server=${server} table=${table} id=${id} />`;
  if (table) return html`<${TableRows} table=${table} place=${query} />`;
  return html`<${TableList} />`;
}

function TableList() {
  const list = useLoad((signal) => get("v1/task-tables", {}, signal), []);
  return html`<h1>SQL tasks</h1><${Loaded} from=${list}>${({ tables }) => tables.length
    ? html`<${Table} label="Task tables" rows=${tables} columns=${[{ name: "Table", cell: (row) => html`<a href=${link(["tasks", row.name])}>${row.name}</a>` }]} />`
    : html`<${Empty} label="This server knows no task tables."><p>Insert a row, and a worker runs its SQL: name the database under <code>[tasks]</code>, or <code>gnomon tasks --dsn postgresql://…</code></p><//>`}<//>`;
}
