// Queues and targets: how much waits, and what may happen at once and how often.

import { call, get } from "../api.js";
import { link } from "../routing.js";
import { Dialog, Empty, Failure, html, Loaded, Table, useLoad, useState } from "../ui.js";
import { atLeast, number, secondsOf, spell } from "../words.js";

const EVERY_MS = 5000;
const route = (limit) => `v1/limits/${limit.kind}/${encodeURIComponent(limit.name)}`;

/** Each queue and each limited target once: its figures, its limit, or both. */
function rowsOf(figures, limits) {
  const rows = new Map();
  const row = (kind, name) => rows.get(`${kind} ${name}`) || rows.set(`${kind} ${name}`, { kind, name }).get(`${kind} ${name}`);
  for (const one of figures.queues) Object.assign(row("queue", one.queue), { figures: one, most: figures.limit });
  for (const one of limits) row(one.kind, one.name).limit = one;
  return [...rows.values()].sort((one, other) => one.kind.localeCompare(other.kind) || one.name.localeCompare(other.name));
}

const count = (name, tone) => (row) => {
  const value = row.figures?.[name];
  const told = value === undefined ? "" : atLeast(value, row.most);
  return value && tone ? html`<span class=${tone}>${told}</span>` : told;
};
const inFlight = ({ limit }) => limit && limit.parallel !== null
  && html`<span class="of-limit"><span class="meter" aria-hidden="true"><span style=${{ width: `${limit.parallel ? Math.min(100, (100 * limit.granted) / limit.parallel) : 0}%` }}></span></span><span>${number(limit.granted)} of ${number(limit.parallel)}</span></span>`;

function LimitDialog({ row, onClose, onSaved }) {
  const [kind, setKind] = useState(row.kind || "queue");
  const [name, setName] = useState(row.name || "");
  const [parallel, setParallel] = useState(row.limit?.parallel ?? "");
  const [rate, setRate] = useState(row.limit?.rate ?? "");
  const [error, setError] = useState(null);
  const send = async (method, body) => {
    try {
      await call(method, route({ kind, name }), { body });
      onSaved();
    } catch (refusal) { setError(refusal); }
  };
  const submit = (event) => {
    event.preventDefault();
    send("PUT", { ...(parallel !== "" && { parallel: Number(parallel) }), ...(rate !== "" && { rate: Number(rate) }) });
  };
  return html`<${Dialog} title=${row.name ? `Limit of ${row.kind} ${row.name}` : "New limit"} onClose=${onClose}>
    <form class="stack" onSubmit=${submit}>
      ${!row.name && html`<div class="fields"><label>Of a<select value=${kind} onChange=${(event) => setKind(event.target.value)}><option>queue</option><option>target</option></select></label>
        <label>Name <input required value=${name} onInput=${(event) => setName(event.target.value)} /></label></div>`}
      <div class="fields">
        <label>At once <input type="number" min="0" name="parallel" value=${parallel} onInput=${(event) => setParallel(event.target.value)} placeholder="not limited" /><span class="hint">0: nothing begins</span></label>
        <label>A second <input type="number" min="0" step="any" name="rate" value=${rate} onInput=${(event) => setRate(event.target.value)} placeholder="not limited" /></label>
      </div>
      <${Failure} error=${error} />
      <div class="row"><button type="submit" class="main">Set</button>
        ${row.limit && html`<button type="button" class="danger" onClick=${() => send("DELETE")}>Remove the limit</button>`}
        <button type="button" onClick=${onClose}>Leave it</button></div>
    </form><//>`;
}

export function Queues({ server }) {
  const both = useLoad(async (signal) => {
    const [limits, figures] = await Promise.all([get("v1/limits", {}, signal), get("v1/figures", {}, signal)]);
    return rowsOf(figures, limits.limits);
  }, [], { every: EVERY_MS });
  const [edited, setEdited] = useState(null);
  const columns = [
    { name: "Name", cell: (row) => row.kind === "queue" ? html`<a href=${link(["actions"], { q: `queue:${row.name}` })}>${row.name}</a>` : html`<span class="dim">${row.kind}</span> ${row.name}` },
    { name: "Waiting", className: "number", cell: count("waiting") },
    { name: "Overdue", className: "number", cell: count("overdue", "warn-text") },
    { name: "Oldest overdue", className: "number", cell: (row) => row.figures?.overdue ? spell(secondsOf(row.figures.overdue_for)) : "" },
    { name: "Running", className: "number", cell: count("running") },
    { name: "Dead", className: "number", cell: count("dead", "bad-text") },
    { name: "In use, of at once", className: "number", cell: inFlight },
    { name: "A second", className: "number", cell: ({ limit }) => number(limit?.rate) },
    { name: "Wanted", className: "number extra", cell: ({ limit }) => number(limit?.wanted) },
    ...(server.canOperate ? [{ name: "", className: "number", cell: (row) => html`<button type="button" class="quiet" onClick=${() => setEdited(row)}>${row.limit ? "Change" : "Limit"}</button>` }] : []),
  ];
  return html`
    <div class="head"><h1>Queues</h1><span class="grow"></span>${server.canOperate && html`<button type="button" onClick=${() => setEdited({})}>New limit</button>`}</div>
    <${Loaded} from=${both}>${(rows) => rows.length ? html`<${Table} columns=${columns} rows=${rows} label="Queues and limits" />`
      : html`<${Empty} label="Nothing is queued, and nothing is limited."><p>A queue appears with its first action. A limit holds for all workers together: <code>gnomon limit set queue mail --parallel 10</code></p><//>`}<//>
    ${edited && html`<${LimitDialog} row=${edited} onClose=${() => setEdited(null)} onSaved=${() => { setEdited(null); both.reload(); }} />`}`;
}
