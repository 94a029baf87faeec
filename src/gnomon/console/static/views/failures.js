// What failed: dead and failing actions by what is wrong with them, and the whole group at once.

import { call, get } from "../api.js";
import { link } from "../routing.js";
import { Badge, Dialog, Empty, html, Loaded, Table, Time, useLoad, useRef, useState } from "../ui.js";
import { number } from "../words.js";

const EVERY_MS = 5000;

/** Retry the dead ones of a group, one after the other; it can be stopped, and tells how it goes. */
function RetryGroup({ group, onClose }) {
  const [progress, setProgress] = useState(null);
  const stopped = useRef(false);
  const start = async () => {
    const counts = { done: 0, refused: 0, of: group.ids.length, last: "" };
    for (const id of group.ids) {
      if (stopped.current) break;
      try {
        await call("POST", `v1/actions/${encodeURIComponent(id)}/retry`);
        counts.done += 1;
      } catch (error) { counts.refused += 1; counts.last = `${id}: ${error.message}`; }
      setProgress({ ...counts });
    }
    setProgress({ ...counts, over: true });
  };
  const close = () => { stopped.current = true; onClose(); };
  return html`<${Dialog} title="Retry this group?" onClose=${close}>
    <p>${number(group.ids.length)} of ${number(group.count)} actions with this error are known by name here; each that is dead is armed once more, due now.</p>
    <pre class="code">${group.error}</pre>
    <p class="dim">${group.ids.slice(0, 8).join(", ")}${group.ids.length > 8 ? " …" : ""}</p>
    ${progress && html`<p role="status">${progress.done} of ${progress.of} retried${progress.refused ? `, ${progress.refused} refused (${progress.last})` : ""}${progress.over ? "." : " …"}</p>`}
    <div class="row">${!progress && html`<button type="button" class="main" onClick=${start}>Retry ${number(group.ids.length)}</button>`}
      <button type="button" onClick=${close}>${progress?.over ? "Close" : progress ? "Stop" : "Leave it"}</button></div><//>`;
}

const names = (list) => list.slice(0, 3).join(", ") + (list.length > 3 ? " …" : "");

const columns = (server, open) => [
  { name: "Actions", className: "number", cell: (row) => number(row.count) },
  { name: "Dead", className: "number", cell: (row) => row.dead ? html`<span class="bad-text">${number(row.dead)}</span>` : 0 },
  { name: "Error", className: "long", cell: (row) => html`<span title=${row.fingerprint}>${row.error}</span>` },
  { name: "Queues", className: "extra", cell: (row) => names(row.queues) },
  { name: "Functions", cell: (row) => names(row.functions) },
  { name: "First", className: "nowrap extra", cell: (row) => html`<${Time} at=${row.first_at} />` },
  { name: "Last", className: "nowrap", cell: (row) => html`<${Time} at=${row.last_at} />` },
  { name: "Such as", className: "id", cell: (row) => row.ids.slice(0, 2).map((id) => html`<a href=${link(["action", id])}>${id}</a> `) },
  ...(server.can("write") ? [{ name: "", className: "number", cell: (row) => row.dead > 0 && html`<button type="button" class="quiet" onClick=${() => open(row)}>Retry</button>` }] : []),
];

export function Failures({ server }) {
  const report = useLoad((signal) => get("v1/failures", {}, signal), [], { every: EVERY_MS });
  const [group, setGroup] = useState(null);
  return html`<div class="head"><h1>Failures</h1><span class="dim">dead and failing actions, grouped by what is wrong</span></div>
    <${Loaded} from=${report}>${({ groups, partial }) => html`
      ${partial && html`<p class="notice warn">There is more than may be looked at: counts are too low.</p>`}
      ${groups.length ? html`<${Table} columns=${columns(server, setGroup)} rows=${groups} label="Groups of failures" />`
        : html`<${Empty} label="Nothing has failed."><p>An action whose retries are used up ends as <${Badge} text="dead" />, and stays here until it is retried or its retention is over.</p><//>`}`}<//>
    ${group && html`<${RetryGroup} group=${group} onClose=${() => { setGroup(null); report.reload(); }} />`}`;
}
