// Schedules: what fires again and again, one row each, with what comes next.

import { get } from "../api.js";
import { go, link } from "../routing.js";
import { Badge, Empty, html, Loaded, Pager, Table, Time, useLoad, useState } from "../ui.js";
import { number } from "../words.js";
import { BulkDialog } from "./bulk.js";
import { maintenance, PausedFor } from "./pause.js";

const PAGE = 50;
const EVERY_MS = 10000;

const COLUMNS = [
  { name: "Id", className: "id", cell: (row) => html`<a href=${link(["action", row.id])} title=${row.id}>${row.id}</a>` },
  { name: "State", cell: (row) => html`<${Badge} text=${row.state} />` },
  { name: "Fires", className: "long", cell: (row) => row.words },
  { name: "Next", cell: (row) => row.state === "paused"
    ? html`<${PausedFor} reason=${row.reason} until=${row.paused_until} />` : html`<${Time} at=${row.firings[0]} as="both" />` },
  { name: "Then", className: "extra", cell: (row) => row.firings.slice(1).map((at, index) => html`${index > 0 && ", "}<${Time} at=${at} />`) },
  { name: "Last attempt", cell: (row) => row.last_outcome && html`<${Badge} text=${row.last_outcome} /> <span class="dim"><${Time} at=${row.last_ended_at} /></span>` },
  { name: "Succeeded", className: "number extra", cell: (row) => number(row.succeeded) },
  { name: "Failed", className: "number", cell: (row) => row.failed ? html`<span class="bad-text" title=${`${number(row.consecutive_failures)} in a row`}>${number(row.failed)}</span>` : 0 },
  { name: "In a row", className: "number extra", cell: (row) => row.consecutive_failures ? html`<span class="bad-text">${number(row.consecutive_failures)}</span>` : "" },
  { name: "Queue", className: "nowrap extra", cell: (row) => row.queue },
];

/** The maintenance switch: pause all schedules that match, and let those go on that it paused. */
function Maintenance({ search, schedules, onDone }) {
  const [dialog, setDialog] = useState(null);
  const reasons = [...new Set(schedules.filter((row) => row.state === "paused" && row.reason).map((row) => row.reason))];
  const close = () => { setDialog(null); onDone(); };
  return html`<div class="row"><span class="dim">Maintenance:</span>
    <button type="button" onClick=${() => setDialog({ verb: "pause" })}>Pause ${search ? "all that match" : "all schedules"}</button>
    ${reasons.map((reason) => html`<button type="button" onClick=${() => setDialog({ verb: "resume", reason })}>Resume all paused for “${reason}”</button>`)}
    ${dialog?.verb === "pause" && html`<${BulkDialog} verb="pause" title="Pause schedules?" terms=${{ reason: maintenance(), end: "hour" }} onClose=${close}
      query=${{ state: [], recurring: true, search }} what=${search ? html`comes again, has <code>${search}</code> in its id, queue or function` : "comes again"} />`}
    ${dialog?.verb === "resume" && html`<${BulkDialog} verb="resume" title="Resume what this maintenance paused?" onClose=${close}
      query=${{ state: [], recurring: true, paused_for: dialog.reason }} what=${html`comes again, was paused for <em>${dialog.reason}</em>`} />`}</div>`;
}

export function Schedules({ server, query: place }) {
  const search = place.get("search") || "", after = place.get("after") || "";
  const [draft, setDraft] = useState(search);
  const list = useLoad((signal) => get("v1/schedules", { search, after, limit: PAGE }, signal), [search, after], { every: EVERY_MS });
  return html`<form class="head" onSubmit=${(event) => { event.preventDefault(); go(["schedules"], { search: draft.trim() }); }}><h1>Schedules</h1>
      <div class="search"><input type="search" data-search aria-label="Search" placeholder="search: id, queue or function" value=${draft} spellcheck="false" onInput=${(event) => setDraft(event.target.value)} /></div>
      ${server.can("write") && html`<a class="button main" href="#/new">New action</a>`}</form>
    <${Loaded} from=${list}>${({ schedules, next }) => html`
      ${schedules.length ? html`<${Table} columns=${COLUMNS} rows=${schedules} label="Schedules" />`
        : next ? html`<p class="notice">None among those that were looked at; there are more.</p>`
        : html`<${Empty} label=${search ? "No schedule matches." : "Nothing repeats yet."}><p>An action that fires by a period or by cron stands here: <code>gnomon action create --id tick --every 5s --mock</code></p><//>`}
      ${server.can("write") && (schedules.length || next) && html`<${Maintenance} search=${search} schedules=${schedules} onDone=${list.reload} />`}
      ${(schedules.length || next) ? html`<${Pager} count=${schedules.length} what="schedules" first=${after && link(["schedules"], { search })} next=${next && link(["schedules"], { search, after: next })} />` : ""}`}<//>`;
}
