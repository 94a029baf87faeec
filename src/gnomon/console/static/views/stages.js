// Stages: what is in their queues, what they gave up, and which can wake which.

import { call, get } from "../api.js";
import { edgesOf, layersOf } from "../graph.js";
import { go, link } from "../routing.js";
import { Badge, Dialog, Empty, Failure, html, Loaded, Pager, Table, Time, useLoad, useState } from "../ui.js";
import { number, secondsOf, spell } from "../words.js";

const EVERY_MS = 5000;
const WIDTH = 150, HEIGHT = 44, GAP_X = 70, GAP_Y = 18;

function Graph({ stages }) {
  const edges = edgesOf(stages), layers = layersOf(stages, edges);
  const places = new Map();
  layers.forEach((layer, column) => layer.forEach((stage, row) => places.set(stage.name, { x: 10 + column * (WIDTH + GAP_X), y: 30 + row * (HEIGHT + GAP_Y) })));
  const width = layers.length * (WIDTH + GAP_X) + 10, height = Math.max(...layers.map((layer) => layer.length)) * (HEIGHT + GAP_Y) + 24;
  const curve = ({ from, to }) => {
    const one = places.get(from), other = places.get(to);
    if (from === to) return `M${one.x + 30} ${one.y} C${one.x + 10} ${one.y - 28} ${one.x + 90} ${one.y - 28} ${one.x + 70} ${one.y}`;
    const [x1, y1, x2, y2] = [one.x + WIDTH, one.y + HEIGHT / 2, other.x, other.y + HEIGHT / 2];
    if (other.x > one.x) return `M${x1} ${y1} C${x1 + GAP_X / 2} ${y1} ${x2 - GAP_X / 2} ${y2} ${x2} ${y2}`;
    const side = Math.max(one.x, other.x) + WIDTH;
    return `M${x1} ${y1} C${side + GAP_X * 0.7} ${y1} ${side + GAP_X * 0.7} ${y2} ${other.x + WIDTH} ${y2}`;
  };
  return html`<div class="graph" tabindex="0" role="region" aria-label="Graph of stages"><svg width=${width} height=${height} role="img" aria-label=${edges.map((edge) => `${edge.from} wakes ${edge.to}`).join(", ")}>
    <defs>${["", "loop"].map((kind) => html`<marker id=${`arrow${kind}`} viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto-start-reverse"><path class=${`graph-arrow ${kind}`} d="M0 0 8 4 0 8z" /></marker>`)}</defs>
    ${edges.map((edge) => html`<path class=${`graph-edge ${edge.loop ? "loop" : ""}`} d=${curve(edge)} marker-end=${`url(#arrow${edge.loop ? "loop" : ""})`}><title>${edge.from} wakes ${edge.to}${edge.loop ? ": a loop" : ""}</title></path>`)}
    ${stages.map((stage) => { const { x, y } = places.get(stage.name); return html`<g class="graph-node chart" transform=${`translate(${x} ${y})`}>
      <title>watches ${stage.watch.join(", ") || "everything"}; writes ${stage.writes.join(", ") || "nothing"}</title>
      <rect width=${WIDTH} height=${HEIGHT} rx="7" /><text class="name" x="10" y="18">${stage.name.slice(0, 20)}</text>
      <text x="10" y="34" font-size="11">${stage.kind} · ${stage.waiting} ready${stage.parked ? ` · ${stage.parked} parked` : ""}</text></g>`; })}
  </svg></div>`;
}

function StageButtons({ stage, server, reload }) {
  const [asks, setAsks] = useState(null);
  const [error, setError] = useState(null);
  const send = (method, path) => call(method, `v1/stages/${encodeURIComponent(stage.name)}${path}`).then(() => { setAsks(null); reload(); }, setError);
  return html`${server.can("write") && html`<button type="button" class="quiet" onClick=${() => setAsks("backfill")}>Backfill</button>`}
    ${asks && html`<${Dialog} title=${`Backfill ${stage.name}?`} onClose=${() => setAsks(null)}>
      <p>The stage sees every entity of the kind <code>${stage.kind}</code> once more, in the background.</p><${Failure} error=${error} />
      <div class="row"><button type="button" class="main" onClick=${() => send("POST", "/backfill")}>Begin the backfill</button><button type="button" onClick=${() => setAsks(null)}>Leave it</button></div><//>`}`;
}

const columns = (server, reload) => [
  { name: "Stage", className: "nowrap", cell: (row) => html`<strong>${row.name}</strong>` },
  { name: "Kind", cell: (row) => html`<a href=${link(["entities", row.kind])}>${row.kind}</a>` },
  { name: "Revision", className: "number extra", cell: (row) => row.revision },
  { name: "Ready", className: "number", cell: (row) => number(row.waiting) },
  { name: "Backfill", className: "number extra", cell: (row) => number(row.background) },
  { name: "Timers", className: "number", cell: (row) => number(row.sleeping) },
  { name: "Parked", className: "number", cell: (row) => row.parked ? html`<a class="bad-text" href=${link(["stages"], { parked: row.name })}>${number(row.parked)}</a>` : 0 },
  { name: "Watches", className: "long", cell: (row) => row.watch.join(", ") || html`<span class="dim">everything</span>` },
  { name: "Writes", className: "long", cell: (row) => row.writes.join(", ") || html`<span class="dim">nothing</span>` },
  { name: "Debounce", className: "number extra", cell: (row) => (secondsOf(row.debounce) ? spell(secondsOf(row.debounce)) : "") },
  { name: "Served", className: "nowrap", cell: (row) => html`<${Time} at=${row.last_seen_at} />` },
  { name: "", className: "number", cell: (row) => html`<${StageButtons} stage=${row} server=${server} reload=${reload} />` },
];

function Parked({ server, stage, after }) {
  const list = useLoad((signal) => get("v1/parked", { stage, after, limit: 50 }, signal), [stage, after], { every: EVERY_MS });
  const [error, setError] = useState(null);
  const release = (row) => call("POST", `v1/entities/${row.kind}/${encodeURIComponent(row.entity_id)}/release`, { query: { stage: row.stage } }).then(() => { setError(null); list.reload(); }, setError);
  const rows = list.data?.parked || [];
  if (!rows.length && !stage && !after) return null;
  return html`<section class="card" aria-label="Parked"><div class="row"><h2 class="grow">Parked${stage ? ` by ${stage}` : ""}</h2>${stage && html`<a href="#/stages">All stages</a>`}</div><${Failure} error=${error || list.error} />
    <${Table} label="Parked" rows=${rows} columns=${[
      { name: "Entity", className: "id", cell: (row) => html`<a href=${link(["entities", row.kind, row.entity_id])}>${row.kind}/${row.entity_id}</a>` },
      { name: "Stage", className: "nowrap", cell: (row) => row.stage },
      { name: "", cell: (row) => html`<${Badge} text=${row.status} />` },
      { name: "Since", className: "nowrap", cell: (row) => html`<${Time} at=${row.since} />` },
      { name: "Attempts", className: "number", cell: (row) => row.attempts },
      { name: "Error or proof", className: "long", cell: (row) => html`<span class="bad-text">${row.error}</span>` },
      ...(server.can("write") ? [{ name: "", className: "number", cell: (row) => html`<button type="button" class="quiet" onClick=${() => release(row)}>Release</button>` }] : []),
    ]} />
    ${(list.data?.next || after) && html`<${Pager} count=${rows.length} what="parked" first=${after && link(["stages"], { parked: stage })} next=${list.data?.next && link(["stages"], { parked: stage, after: list.data.next })} />`}</section>`;
}

export function Stages({ server, query }) {
  const list = useLoad((signal) => get("v1/stages", {}, signal), [], { every: EVERY_MS });
  const stages = (list.data?.stages || []).filter((stage) => stage.kind);
  const [entity, setEntity] = useState("");
  const find = (event) => { event.preventDefault(); const [kind, ...id] = entity.trim().split("/"); go(["entities", kind, ...(id.length ? [id.join("/")] : [])]); };
  return html`<form class="head" onSubmit=${find}><h1>Stages</h1><div class="search"><input data-search aria-label="Find an entity" placeholder="find an entity: ad/ad-1" value=${entity} onInput=${(event) => setEntity(event.target.value)} /></div></form>
    <${Loaded} from=${list}>${() => stages.length ? html`<${Graph} stages=${stages} /><${Table} columns=${columns(server, list.reload)} rows=${stages} label="Stages" />`
      : html`<${Empty} label="There are no stages yet."><p>A stage is a pure function that looks after JSON documents: it is called when a field changes, or when its timer fires. A worker that serves one makes it appear here. To see an example: <code>python -m examples.classifieds</code></p><//>`}<//>
    <${Parked} server=${server} stage=${query.get("parked") || ""} after=${query.get("after") || ""} />`;
}
