// Act on everything that matches a filter: counted first, in steps, with a way to stop.

import { call, get } from "../api.js";
import { Dialog, Failure, html, useEffect, useRef, useState } from "../ui.js";
import { number } from "../words.js";

const VERBS = {
  retry: { label: "Retry", states: ["dead"], words: "is armed once more, due now" },
  run_now: { label: "Run now", states: ["active"], words: "is made due at once" },
  pause: { label: "Pause", states: ["active"], words: "begins no attempt until it is resumed" },
  resume: { label: "Resume", states: ["paused"], words: "goes on" },
  delete: { label: "Cancel", states: ["active", "paused"], words: "begins no attempt any more", danger: true },
};
const COUNT_MAX = 10000;
const STEP = 200;

/** What the verb can act on at all, of what the filter asks for. */
const selection = (query, verb) => ({ ...query, state: query.state.length ? query.state : VERBS[verb].states });

function BulkDialog({ verb, query, filter, onClose }) {
  const [count, setCount] = useState(null);
  const [done, setDone] = useState(null);
  const [error, setError] = useState(null);
  const stopped = useRef(false);
  const selected = selection(query, verb), { label, words, danger } = VERBS[verb];
  useEffect(() => { get("v1/actions:count", { ...selected, limit: COUNT_MAX }).then((found) => setCount(found.count), setError); }, []);
  const start = async () => {
    const sum = { changed: 0, passed_over: 0, refused: 0, problem: null };
    let after;
    try {
      do {
        const { data } = await call("POST", "v1/actions:change", { query: { verb, ...selected, after, limit: STEP } });
        for (const name of ["changed", "passed_over", "refused"]) sum[name] += data[name];
        sum.problem ||= data.problem;
        after = data.next;
        setDone({ ...sum, over: !after });
      } while (after && !stopped.current);
      setDone({ ...sum, over: true, stopped: Boolean(after) });
    } catch (refusal) { setError(refusal); setDone({ ...sum, over: true }); }
  };
  const close = () => { stopped.current = true; onClose(); };
  return html`<${Dialog} title=${`${label} all that match?`} onClose=${close}>
    <p>Each action that matches <code>${filter}</code> and is ${selected.state.join(" or ")} ${words}.</p>
    <p>${count === null ? "Counting …" : html`<strong>${count >= COUNT_MAX ? `${number(COUNT_MAX)} or more` : number(count)}</strong> ${count === 1 ? "action matches" : "actions match"} now.`}</p>
    ${done && html`<p role="status">${number(done.changed)} changed${done.passed_over ? `, ${number(done.passed_over)} passed over` : ""}${done.refused ? `, ${number(done.refused)} refused (${done.problem})` : ""}${done.stopped ? "; stopped" : done.over ? "; all done" : " …"}</p>`}
    <${Failure} error=${error} />
    <div class="row">${!done && html`<button type="button" class=${danger ? "danger" : "main"} disabled=${!count} onClick=${start}>${label} ${count ? number(count) : ""}</button>`}
      <button type="button" onClick=${close}>${done?.over ? "Close" : done ? "Stop" : "Leave it"}</button></div><//>`;
}

export function Bulk({ query, filter, onDone }) {
  const [verb, setVerb] = useState(null);
  const offered = Object.entries(VERBS).filter(([, one]) => !query.state.length || query.state.some((state) => one.states.includes(state)));
  return html`<div class="row"><span class="dim">All that match:</span>
    ${offered.map(([name, one]) => html`<button type="button" class=${one.danger ? "danger" : ""} onClick=${() => setVerb(name)}>${one.label}</button>`)}
    ${verb && html`<${BulkDialog} verb=${verb} query=${query} filter=${filter} onClose=${() => { setVerb(null); onDone(); }} />`}</div>`;
}
