// Entities: the list of a kind, and the life of one: why it waits, and what changed it.

import { address, call, get } from "../api.js";
import { go, link } from "../routing.js";
import { Badge, CopyAs, Empty, Facts, Failure, html, Json, Loaded, Pager, Table, Time, useLoad, useState } from "../ui.js";
import { quoted } from "../words.js";

const EVERY_MS = 3000;
const PARKED = ["quarantined", "looping", "undelivered"];
const route = (kind, id) => `v1/entities/${kind}/${encodeURIComponent(id)}`;
const author = (name) => name.replace(/^stage:/, "");

function EntityList({ kind, query }) {
  const prefix = query.get("id") || "", after = query.get("after") || "";
  const [draft, setDraft] = useState(prefix);
  const list = useLoad((signal) => get(`v1/entities/${kind}`, { id_prefix: prefix, after, limit: 50 }, signal), [kind, prefix, after]);
  return html`<form class="head" onSubmit=${(event) => { event.preventDefault(); go(["entities", kind], { id: draft.trim() }); }}><h1>${kind}</h1>
      <div class="search"><input data-search aria-label="Ids that begin so" placeholder="ids that begin so" value=${draft} onInput=${(event) => setDraft(event.target.value)} /></div></form>
    <${Loaded} from=${list}>${({ entities, next }) => entities.length ? html`<${Table} label="Entities" rows=${entities} columns=${[
      { name: "Id", className: "id", cell: (row) => html`<a href=${link(["entities", kind, row.id])}>${row.id}</a>` },
      { name: "Version", className: "number", cell: (row) => row.version },
      { name: "Changed", className: "nowrap", cell: (row) => html`<${Time} at=${row.changed_at} />` },
      { name: "Document", className: "rest", cell: (row) => html`<code>${JSON.stringify(row.document)}</code>` },
    ]} /><${Pager} count=${entities.length} what="entities" first=${after && link(["entities", kind], { id: prefix })} next=${next && link(["entities", kind], { id: prefix, after: next })} />`
      : html`<${Empty} label=${`No entity of the kind ${kind} is here.`}><p><code>gnomon entity put ${kind} some-id '{"status": "new"}'</code></p><//>`}<//>`;
}

const stageColumns = (server, release) => [
  { name: "Stage", className: "nowrap", cell: (row) => html`<strong>${row.stage}</strong>` },
  { name: "", cell: (row) => html`<${Badge} text=${row.status} />` },
  { name: "Waits for", className: "long", cell: (row) => row.waits_for },
  { name: "Since", className: "nowrap", cell: (row) => html`<${Time} at=${row.since} />` },
  { name: "Timer", className: "nowrap extra", cell: (row) => html`<${Time} at=${row.timer_at} />` },
  { name: "Reasons", className: "long extra", cell: (row) => row.reasons.join(", ") },
  { name: "Chain", className: "long extra", cell: (row) => row.chain.map(author).join(" → ") },
  { name: "Attempts", className: "number", cell: (row) => row.attempts },
  { name: "Last error or note", className: "long", cell: (row) => row.last_error ? html`<span class="bad-text">${row.last_error}</span>` : row.last_note },
  ...(server.can("write") ? [{ name: "", cell: (row) => PARKED.includes(row.status) && html`<button type="button" class="quiet" onClick=${() => release(row.stage)}>Release</button>` }] : []),
];

function Entity({ server, kind, id }) {
  const entity = useLoad((signal) => get(route(kind, id), {}, signal), [kind, id], { every: EVERY_MS });
  const why = useLoad((signal) => get(`${route(kind, id)}/explain`, {}, signal), [kind, id], { every: EVERY_MS });
  const [error, setError] = useState(null);
  const release = (stage) => call("POST", `${route(kind, id)}/release`, { query: { stage } }).then(() => { setError(null); why.reload(); }, setError);
  return html`<div class="head"><h1>${kind}/${id}</h1><a href=${link(["entities", kind])}>all of this kind</a></div><${Failure} error=${error} />
    <${Loaded} from=${entity}>${(row) => html`<section class="card"><${Facts} rows=${[["Version", String(row.version)], ["Life", row.epoch > 1 ? String(row.epoch) : ""], ["Changed", html`<${Time} at=${row.changed_at} as="both" />`], ["Shard", String(row.shard)]]} /></section>`}<//>
    <${Loaded} from=${why}>${({ stages, changes }) => html`
      <section class="card" aria-label="Why it waits"><h2>In the queues of stages</h2>${stages.length ? html`<${Table} columns=${stageColumns(server, release)} rows=${stages} label="Stages of this entity" />` : html`<p class="dim">In no queue, and no timers.</p>`}</section>
      <section class="card" aria-label="What changed it"><h2>What changed it</h2>${changes.length ? html`<ol class="timeline">${changes.map((note) => html`<li>
        <strong>${author(note.author)}</strong> <span class="dim">version ${note.version} · <${Time} at=${note.at} as="both" /></span><br />
        ${note.paths.slice(0, 8).map((path) => html`<code>${path || "everything"}</code> `)}</li>`)}</ol>` : html`<p class="dim">No change is kept.</p>`}</section>`}<//>
    <${Loaded} from=${entity}>${(row) => html`<section class="card stack"><h2>Document</h2><${Json} value=${row.document} label="Document" />
      <${CopyAs} ways=${[["curl", `curl -s ${quoted(address(route(kind, id)).href)}`], ["CLI", `gnomon entity get ${quoted(kind)} ${quoted(id)}\ngnomon entity explain ${quoted(kind)} ${quoted(id)}`]]} /></section>`}<//>`;
}

export function Entities({ server, parts, query }) {
  const [kind, id] = parts;
  if (!kind) return html`<${Empty} label="Say which kind."><p><a href="#/stages">Stages</a> name the kinds that they look after.</p><//>`;
  return id ? html`<${Entity} server=${server} kind=${kind} id=${id} />` : html`<${EntityList} kind=${kind} query=${query} />`;
}
