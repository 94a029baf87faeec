// Is anything late? One glance, live.

import { get, serverNow } from "../api.js";
import { link } from "../routing.js";
import { Empty, Figure, html, Loaded, Table, Time, useLoad } from "../ui.js";
import { atLeast, number, secondsOf, spell } from "../words.js";
import { ActionTable } from "./actions.js";
import { Quantiles, Throughput, useHistory } from "./lateness.js";

const EVERY_MS = 3000;
const FAILURES_MS = 10000;
const SHOWN = 8;

const sum = (rows, name) => rows.reduce((total, row) => total + row[name], 0);

const queueColumns = (limit) => [
  { name: "Queue", cell: (row) => html`<a href=${link(["actions"], { q: `queue:${row.queue}` })}>${row.queue}</a>` },
  { name: "Waiting", className: "number", cell: (row) => atLeast(row.waiting, limit) },
  { name: "Overdue", className: "number", cell: (row) => row.overdue ? html`<span class="warn-text">${atLeast(row.overdue, limit)}</span>` : 0 },
  { name: "Oldest overdue", className: "number", cell: (row) => row.overdue ? spell(secondsOf(row.overdue_for)) : "" },
  { name: "Running", className: "number", cell: (row) => atLeast(row.running, limit) },
  { name: "Dead", className: "number", cell: (row) => row.dead ? html`<a class="bad-text" href=${link(["actions"], { q: `state:dead queue:${row.queue}` })}>${atLeast(row.dead, limit)}</a>` : 0 },
];

function Figures() {
  const figures = useLoad((signal) => get("v1/figures", {}, signal), [], { every: EVERY_MS });
  return html`<${Loaded} from=${figures}>${(now) => {
    const overdue = sum(now.queues, "overdue"), dead = sum(now.queues, "dead");
    const oldest = Math.max(0, ...now.queues.map((row) => secondsOf(row.overdue_for)));
    return html`
      <div class="figures">
        <${Figure} name="Oldest overdue" value=${overdue ? spell(oldest) : "none"} tone=${overdue && oldest > 5 ? "warn" : ""} href=${link(["actions"], { q: "state:active due<0m" })} />
        <${Figure} name="Overdue" value=${atLeast(overdue, now.limit)} tone=${overdue ? "warn" : ""} />
        <${Figure} name="Running" value=${atLeast(sum(now.queues, "running"), now.limit)} />
        <${Figure} name="Waiting for their time" value=${atLeast(sum(now.queues, "waiting"), now.limit)} />
        <${Figure} name="Dead" value=${atLeast(dead, now.limit)} tone=${dead ? "bad" : ""} href=${link(["actions"], { q: "state:dead" })} />
        <${Figure} name="Workers" value=${number(now.workers_alive)} tone=${now.workers_alive ? "" : "bad"}
          note=${now.shards_unowned ? `${now.shards_unowned} of ${now.shards} shards without an owner` : `${now.shards} shards`} />
      </div>
      ${now.partial && html`<p class="notice warn">There is more than may be counted: the figures are too low.</p>`}
      ${now.queues.length > 0 && html`<${Table} columns=${queueColumns(now.limit)} rows=${now.queues} label="Queues" />`}`;
  }}<//>`;
}

function Recently() {
  const history = useHistory("6h", "");
  const points = history.data?.points || [];
  if (!points.some((point) => point.begun)) return null;
  return html`<div class="columns"><section class="card"><div class="row"><h2 class="grow">Lateness, 6 hours</h2><a href=${link(["lateness"])}>More</a></div><${Quantiles} points=${points} name="lateness" label="Lateness in the last 6 hours" /></section>
    <section class="card"><div class="row"><h2 class="grow">Attempts ended, 6 hours</h2></div><${Throughput} points=${points} /></section></div>`;
}

function Failing() {
  const report = useLoad((signal) => get("v1/failures", { limit: SHOWN }, signal), [], { every: FAILURES_MS });
  const groups = report.data?.groups || [];
  if (!groups.length) return null;
  return html`<section class="card" aria-label="Failing"><div class="row"><h2 class="grow">Failing</h2><a href=${link(["failures"])}>All of them</a></div>
    <${Table} label="Failing" rows=${groups} columns=${[
      { name: "Actions", className: "number", cell: (row) => number(row.count) },
      { name: "Dead", className: "number", cell: (row) => html`<span class=${row.dead ? "bad-text" : ""}>${number(row.dead)}</span>` },
      { name: "Error", className: "long", cell: (row) => row.error },
      { name: "What", cell: (row) => row.functions.slice(0, 2).join(", ") },
      { name: "Last", className: "nowrap", cell: (row) => html`<${Time} at=${row.last_at} />` },
    ]} /></section>`;
}

/** The first actions that match; nothing at all if none does. */
function Some({ title, query, filter }) {
  const list = useLoad((signal) => get("v1/actions", { ...query(), limit: SHOWN }, signal), [title], { every: EVERY_MS });
  if (!list.data?.actions.length) return null;
  return html`<section class="card" aria-label=${title}><div class="row"><h2 class="grow">${title}</h2><a href=${link(["actions"], { q: filter })}>All of them</a></div>
    <${ActionTable} actions=${list.data.actions} label=${title} /></section>`;
}

export function Overview({ server }) {
  const { health } = server;
  const any = useLoad((signal) => get("v1/actions", { limit: 1 }, signal), [], { every: EVERY_MS });
  return html`
    <div class="head"><h1>Overview</h1><span class="dim">Gnomon ${health.version} on ${health.engine}, durability ${health.durability}</span></div>
    <${Figures} />
    <${Recently} />
    ${any.data && !any.data.actions.length && html`<${Empty} label="Nothing is scheduled yet.">
      <p>${server.can("write") && html`<a href="#/new">Make the first action here</a>, or in a terminal:`}</p>
      <p><code>gnomon action create --id hello --in 5s --mock</code></p><//>`}
    <${Some} title="Overdue now" filter="state:active due<0m" query=${() => ({ state: "active", due_before: new Date(serverNow() - 1000).toISOString() })} />
    <${Failing} />
    <${Some} title="Due within the hour" filter="state:active due<1h" query=${() => ({ state: "active", due_before: new Date(serverNow() + 3600e3).toISOString() })} />
    <${Some} title="Paused" filter="state:paused" query=${() => ({ state: "paused" })} />`;
}
