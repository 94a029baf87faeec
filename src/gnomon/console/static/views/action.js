// One action: what was planned and what happened, live; and what can be done to it.

import { address, call, follow, get } from "../api.js";
import { link } from "../routing.js";
import { Badge, CopyAs, Dialog, Empty, Facts, Failure, html, Json, Table, Time, useEffect, useLoad, useState } from "../ui.js";
import { effectWords, isRecurring, policyWords, quoted, spell, spellDuration } from "../words.js";
import { stateOf } from "./actions.js";
import { EditSpec } from "./edit.js";
import { PauseDialog } from "./pause.js";

const LIVE = ["active", "paused"];
const isOver = (action) => action && !LIVE.includes(stateOf(action));
const route = (id) => `v1/actions/${encodeURIComponent(id)}`;
const etagOf = (action) => `"${action.meta.guid}"`;

/** The action as its event stream tells; the first event is the action as it is. */
function useAction(id) {
  const [action, setAction] = useState(null);
  const [error, setError] = useState(null);
  const [live, setLive] = useState("waiting");
  const [round, setRound] = useState(0);
  useEffect(() => {
    let latest = null, stop = () => {};
    const show = (data) => { latest = data; setAction(data); setError(null); };
    setAction((old) => (old?.meta.id === id ? old : null)); // what is asked beside it stays on the page
    get(route(id)).then((data) => {
      show(data);
      if (isOver(data)) setLive("over");
      else stop = follow(`${route(id)}/events`, show, { isOver: () => isOver(latest), onState: setLive });
    }, setError);
    return () => stop();
  }, [id, round]);
  return { action, error, live, setAction, again: () => setRound((count) => count + 1) };
}

// -- what can be done -----------------------------------------------------------------------------

const VERBS = {
  run: { label: "Run now", states: ["active"], path: "/run" },
  resume: { label: "Resume", states: ["paused"], path: "/resume", main: true },
  retry: { label: "Retry", states: ["dead", "expired", "cancelled"], path: "/retry", main: true, unconditional: true },
};

function Buttons({ action, onDone, onEdit, again }) {
  const [busy, setBusy] = useState("");
  const [problem, setProblem] = useState(null);
  const [asks, setAsks] = useState(false);
  const [pauses, setPauses] = useState(false);
  const { id } = action.meta, state = stateOf(action);
  const act = async (name, method, path, conditional, query) => {
    setBusy(name);
    setProblem(null);
    try {
      const headers = conditional ? { "If-Match": etagOf(action) } : {};
      const { data } = await call(method, route(id) + path, { headers, query });
      setPauses(false);
      onDone(data, name);
    } catch (error) {
      setProblem(error.status === 412 ? { message: "It was changed meanwhile: look at it as it is now, and try again." } : error);
      again();
    }
    setBusy("");
  };
  const verbs = Object.entries(VERBS).filter(([, verb]) => verb.states.includes(state));
  return html`<div class="stack"><div class="row">
    ${verbs.map(([name, verb]) => html`<button type="button" class=${verb.main ? "main" : ""} disabled=${busy} onClick=${() => act(name, "POST", verb.path, !verb.unconditional)}>${verb.label}</button>`)}
    ${LIVE.includes(state) && html`<button type="button" disabled=${busy} onClick=${() => { setProblem(null); setPauses(true); }}>${state === "paused" ? "Change pause" : "Pause"}</button>
      <button type="button" disabled=${busy} onClick=${onEdit}>Edit</button>`}
    <a class="button" href=${link(["new"], { from: id })}>Copy</a>
    ${LIVE.includes(state) && html`<button type="button" class="danger" disabled=${busy} onClick=${() => setAsks(true)}>Cancel action</button>`}
  </div>
  <${Failure} error=${!pauses && problem} />
  ${pauses && html`<${PauseDialog} id=${id} status=${action.status} error=${problem} onClose=${() => setPauses(false)}
    onPause=${(terms) => act("pause", "POST", "/pause", true, terms)} />`}
  ${asks && html`<${Dialog} title="Cancel this action?" onClose=${() => setAsks(false)}>
    <p>No attempt of <code>${id}</code> begins any more. It stays visible for its retention, and can be retried.</p>
    <div class="row"><button type="button" class="danger" onClick=${() => { setAsks(false); act("cancel", "DELETE", "", true); }}>Cancel it</button>
      <button type="button" onClick=${() => setAsks(false)}>Keep it</button></div>
  <//>`}</div>`;
}

// -- what happened --------------------------------------------------------------------------------

const duration = (attempt) => attempt.ended_at
  ? spell((Date.parse(attempt.ended_at) - Date.parse(attempt.began_at)) / 1000) : html`<span class="dim">running</span>`;

const ATTEMPTS = [
  { name: "Occurrence", className: "number", cell: (item) => item.occurrence_no },
  { name: "Attempt", className: "number", cell: (item) => item.attempt_no },
  { name: "Outcome", cell: (item) => html`<${Badge} text=${item.outcome || "running"} />` },
  { name: "Begun", cell: (item) => html`<${Time} at=${item.began_at} as="both" />` },
  { name: "Took", className: "number", cell: duration },
  { name: "Worker", className: "nowrap extra", cell: (item) => html`<code>${item.owner || ""}</code>` },
  { name: "Answer or error", className: "long", cell: (item) => item.error ? html`<span class="bad-text">${item.error}</span>` : item.answer || "" },
];

function Attempts({ action }) {
  const status = action.status;
  // The counters tell that something happened, also where the last attempt looks the same.
  const seen = [status.attempts, status.succeeded, status.failed, status.interrupted, status.current_attempt?.attempt_id, action.meta.guid];
  const list = useLoad((signal) => get(`${route(action.meta.id)}/attempts`, { limit: 100 }, signal), [action.meta.id, ...seen]);
  const kept = list.data?.attempts || [];
  // A plain success is kept in the action itself, not in the log.
  const own = [status.current_attempt, status.last_attempt].filter((item) => item && !kept.some((other) => other.attempt_id === item.attempt_id));
  const rows = [...own, ...kept].sort((one, other) => Date.parse(other.began_at) - Date.parse(one.began_at));
  return html`<section class="card" aria-label="Attempts"><h2>Attempts</h2>
    <${Failure} error=${list.error} again=${list.reload} />
    ${rows.length ? html`<${Table} columns=${ATTEMPTS} rows=${rows} label="Attempts" />`
      : html`<p class="dim">None has begun yet.</p>`}
  </section>`;
}

function When({ action }) {
  const { spec, status, meta } = action;
  const attempt = status.current_attempt || status.last_attempt;
  return html`<section class="card"><${Facts} rows=${[
    ["Planned", status.occurrence_at && html`<${Time} at=${status.occurrence_at} as="both" />`],
    ["Due", status.scheduled_at && html`<${Time} at=${status.scheduled_at} as="both" />`],
    ["Begun", attempt && html`<${Time} at=${attempt.began_at} as="both" />`],
    ["Ended", attempt?.ended_at && html`<${Time} at=${attempt.ended_at} as="both" />`],
    ["Fires", policyWords(spec.policy)],
    ["Occurrence", isRecurring(spec) ? status.occurrence_no : ""],
    ["Attempts", status.attempts ? `${status.attempts} = ${status.succeeded} succeeded + ${status.failed} failed + ${status.interrupted} interrupted${status.current_attempt ? " + 1 running" : ""}` : ""],
    ["Retries", spec.retry?.max ? `${Math.min(status.occurrence_failures || 0, spec.retry.max)} of ${spec.retry.max} used` : ""],
    ["Timeout", spec.timeout && spellDuration(spec.timeout)],
    ["Queue", `${spec.queue || "default"}${spec.priority === undefined ? "" : `, priority ${spec.priority}`}`],
    ["Labels", Object.entries(spec.labels || {}).map(([name, value]) => html`<a href=${link(["actions"], { q: `label.${name}=${value}` })}>${name}=${value}</a> `)],
    ["Waits for a worker with", status.need],
    ["Expires", status.expires_at && html`<${Time} at=${status.expires_at} as="both" />`],
    ["Finished", status.finished_at && html`<${Time} at=${status.finished_at} as="both" />`],
    [LIVE.includes(stateOf(action)) ? "Paused for" : "Why it ended", status.reason],
    ["Paused until", status.paused_until && html`<${Time} at=${status.paused_until} as="both" />`],
    ["Changed", html`<${Time} at=${meta.updated_at} as="both" />`],
    ["Shard", String(meta.shard)],
  ]} /></section>`;
}

function Firings({ policy, from }) {
  const query = policy.type === "cron" ? { cron: policy.expression, timezone: policy.timezone } : { every: policy.period };
  const preview = useLoad((signal) => get("v1/preview", { ...query, from, count: 5 }, signal), [policy, from]);
  if (!preview.data) return null;
  const { words, firings, clock_changes: changes } = preview.data;
  return html`<section class="card"><h2>${words}</h2><${Table} label="Next firings" rows=${firings} columns=${[
    { name: "Fires", className: "nowrap", cell: (row) => html`<${Time} at=${row.at} as="both" />` },
    { name: `In ${preview.data.timezone}`, className: "nowrap", cell: (row) => row.local.replace("T", " ").slice(0, 19) },
    { name: "", className: "long", cell: (row) => row.note },
  ]} />${changes.length > 0 && html`<p class="hint">Clocks change at ${changes[0].at}.</p>`}</section>`;
}

function Why({ action }) {
  const why = useLoad((signal) => get(`${route(action.meta.id)}/why`, {}, signal), [action.meta.id, action.meta.guid, action.status.attempts, action.status.current_attempt?.attempt_id], { every: 5000 });
  if (!why.data || why.data.code === "ended") return null;
  return html`<p class="notice" role="status">${why.data.sentence}</p>`;
}

function ways({ meta, spec }) {
  const body = JSON.stringify({ id: meta.id, spec });
  return [
    ["curl", `curl -s ${quoted(address(route(meta.id)).href)}\n\n# make it again\ncurl -s -X POST ${quoted(address("v1/actions").href)} -H 'Content-Type: application/json' \\\n  -d ${quoted(body)}`],
    ["CLI", `gnomon action get ${quoted(meta.id)}\ngnomon action attempts ${quoted(meta.id)}\ngnomon action run ${quoted(meta.id)}`],
    ["Python", `from gnomon.client import Client\n\nasync with Client(${JSON.stringify(address("").href.replace(/\/$/, ""))}) as client:\n    action = await client.get(${JSON.stringify(meta.id)})`],
  ];
}

export function ActionPage({ server, parts }) {
  const id = parts[0] || "";
  const { action, error, live, setAction, again } = useAction(id);
  const [edits, setEdits] = useState(false);
  if (error?.status === 404) return html`<h1>${id}</h1><${Empty} label="There is no such action."><p>It may have outlived its retention. <a href="#/actions">All actions</a></p><//>`;
  if (error && !action) return html`<h1>${id}</h1><${Failure} error=${error} again=${again} />`;
  if (!action) return html`<h1>${id}</h1><p class="dim" aria-busy="true">Loading …</p>`;
  const done = (data, name) => {
    setAction(data);
    if (name === "retry") again();
  };
  const status = action.status;
  return html`
    <div class="head"><h1>${id}</h1><${Badge} text=${status.current_attempt ? "running" : stateOf(action)} />
      <span class="dim">${action.spec.action.type} ${effectWords(action.spec.action)}</span><span class="grow"></span>
      <span class=${`live-dot ${live}`}>${{ live: "live", waiting: "connecting …", over: "ended" }[live]}</span></div>
    ${server.can("write") && html`<${Buttons} action=${action} onDone=${done} onEdit=${() => setEdits(true)} again=${again} />`}
    <${Why} action=${action} />
    ${edits && html`<${EditSpec} action=${action} onClose=${() => setEdits(false)} onSaved=${(data) => { setEdits(false); setAction(data); }} />`}
    <${When} action=${action} />
    ${isRecurring(action.spec) && status.scheduled_at && html`<${Firings} policy=${action.spec.policy} from=${status.scheduled_at} />`}
    <${Attempts} action=${action} />
    <section class="card stack"><h2>Spec</h2><${Json} value=${action.spec} label="Spec" /><${CopyAs} ways=${ways(action)} /></section>`;
}
