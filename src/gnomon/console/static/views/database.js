// The database: how large it is, what waits to be cleaned up, and who holds that back.

import { get } from "../api.js";
import { Badge, Figure, html, Loaded, Table, Time, useLoad } from "../ui.js";
import { bytes, number } from "../words.js";

const EVERY_MS = 10000;
const DEAD_PART = 0.2; // of a table: more than autovacuum leaves by itself

const isBloated = (row) => row.dead_rows > 10000 && row.dead_rows > DEAD_PART * (row.rows + row.dead_rows);

const TABLES = [
  { name: "Table", cell: (row) => html`<code>${row.table}</code>` },
  { name: "Size", className: "number", cell: (row) => bytes(row.bytes) },
  { name: "Rows, about", className: "number", cell: (row) => number(row.rows) },
  { name: "Dead rows", className: "number", cell: (row) => html`<span class=${isBloated(row) ? "warn-text" : ""}>${number(row.dead_rows)}</span>` },
  { name: "Cleaned", className: "nowrap", cell: (row) => html`<${Time} at=${row.cleaned_at} />` },
];

const HOLDERS = [
  { name: "Who", className: "long", cell: (row) => html`<span class="dim">${row.kind}</span> <code>${row.name}</code>` },
  { name: "State", cell: (row) => html`<${Badge} text=${row.state} />` },
  { name: "Since", className: "nowrap", cell: (row) => html`<${Time} at=${row.since} as="both" />` },
  { name: "Transactions since", className: "number", cell: (row) => number(row.transactions) },
];

export function Database({ server }) {
  const measures = useLoad((signal) => get("v1/database", {}, signal), [], { every: EVERY_MS });
  const { health } = server;
  return html`<div class="head"><h1>Database</h1><span class="dim">${health.engine}, schema version ${health.schema_version}, durability ${health.durability}, installation ${health.installation}</span></div>
    <${Loaded} from=${measures}>${(now) => html`
      <div class="figures">
        <${Figure} name="Size" value=${bytes(now.bytes)} />
        ${now.free_bytes !== null && html`<${Figure} name="Free within the file" value=${bytes(now.free_bytes)} />`}
        ${now.log_bytes !== null && html`<${Figure} name="Write-ahead log" value=${bytes(now.log_bytes)} />`}
        ${now.tables.length > 0 && html`<${Figure} name="Dead rows" value=${number(now.tables.reduce((sum, row) => sum + row.dead_rows, 0))} />
          <${Figure} name="Holds back vacuum" value=${now.holders.length ? `${number(now.holders[0].transactions)} transactions` : "nobody"} />`}
      </div>
      ${now.holders.length > 0 && html`<section class="card" aria-label="Who holds back vacuum"><h2>Who holds back vacuum</h2><${Table} columns=${HOLDERS} rows=${now.holders} label="Who holds back vacuum" /></section>`}
      ${now.tables.length > 0 ? html`<${Table} columns=${TABLES} rows=${now.tables} label="Tables" />`
        : html`<p class="dim">SQLite does not tell how large single tables are without reading them.</p>`}`}<//>`;
}
