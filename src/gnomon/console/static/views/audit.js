// Who did what: through the API, the command line and this console.

import { get } from "../api.js";
import { go, link } from "../routing.js";
import { Empty, html, Loaded, Pager, Table, Time, useLoad, useState } from "../ui.js";
import { number } from "../words.js";

const PAGE = 100;
const FACES = { rest: "REST", grpc: "gRPC", cli: "command line", python: "Python", sql: "SQL", console: "console" };
const NOT_ACTIONS = /task|entity|stage|state|limit|token|relay/;

const what = (row) => (NOT_ACTIONS.test(row.verb) || row.id.includes(" ") ? row.id : html`<a href=${link(["action", row.id])}>${row.id}</a>`);

const COLUMNS = [
  { name: "When", className: "nowrap", cell: (row) => html`<${Time} at=${row.at} as="both" />` },
  { name: "Who", className: "nowrap", cell: (row) => html`<a href=${link(["audit"], { actor: row.actor })}>${row.actor}</a>` },
  { name: "Through", className: "nowrap", cell: (row) => FACES[row.face] || row.face },
  { name: "Did", className: "nowrap", cell: (row) => row.verb },
  { name: "To", className: "id", cell: what },
  { name: "How many", className: "number", cell: (row) => (row.count > 1 ? number(row.count) : "") },
];

export function Audit({ query: place }) {
  const [actor, id, before] = ["actor", "id", "before"].map((name) => place.get(name) || "");
  const [draft, setDraft] = useState({ actor, id });
  const list = useLoad((signal) => get("v1/audit", { actor, id, before, limit: PAGE }, signal), [actor, id, before]);
  const submit = (event) => { event.preventDefault(); go(["audit"], { actor: draft.actor.trim(), id: draft.id.trim() }); };
  const field = (name, placeholder) => html`<input class="grow" name=${name} aria-label=${placeholder} placeholder=${placeholder} value=${draft[name]}
    data-search=${name === "id" ? "" : undefined} spellcheck="false" onInput=${(event) => setDraft({ ...draft, [name]: event.target.value })} />`;
  return html`<form class="head" onSubmit=${submit}><h1>Audit</h1>
      <div class="search row">${field("id", "id of an action, entity or limit")}</div><div class="search row">${field("actor", "who: a token's name, or local")}</div>
      <button type="submit">Find</button></form>
    <${Loaded} from=${list}>${({ entries, next }) => entries.length ? html`
      <${Table} columns=${COLUMNS} rows=${entries} label="Changes" />
      <${Pager} count=${entries.length} what="changes" first=${before && link(["audit"], { actor, id })} next=${next && link(["audit"], { actor, id, before: next })} />`
      : html`<${Empty} label="No change is recorded here."><p>Every change through the API, the command line or this page leaves an entry in its own transaction. In a terminal: <code>gnomon audit list</code></p><//>`}<//>`;
}
