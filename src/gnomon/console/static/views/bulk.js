// Act on everything that matches a filter: counted first, in steps, with a way to stop.

import { call, get } from "../api.js";
import { Dialog, Failure, html, useEffect, useRef, useState } from "../ui.js";
import { number } from "../words.js";
import { isUnsaid, NO_TERMS, PauseFields, queryOf } from "./pause.js";

const VERBS = {
  retry: { label: "Retry", states: ["dead"], words: "is armed once more, due now" },
  run_now: { label: "Run now", states: ["active"], words: "is made due at once" },
  pause: { label: "Pause", states: ["active"], words: "begins no attempt until it goes on", terms: true },
  resume: { label: "Resume", states: ["paused"], words: "goes on" },
  delete: { label: "Cancel", states: ["active", "paused"], words: "begins no attempt any more", danger: true },
};
const COUNT_MAX = 10000;
const COUNT_STEPS = 50; // each looks at some thousand actions; the last page may be far away
const STEP = 200;

/** What the verb can act on at all, of what the filter asks for. */
const selection = (query, verb) => ({ ...query, state: query.state.length ? query.state : VERBS[verb].states });

const ALL = "action matches", MANY = "actions match";

/** Counts step by step and tells how far it got: {count, more, over}. */
async function countAll(query, tell, isStopped) {
  let count = 0, after;
  for (let step = 1; ; step++) {
    const found = await get("v1/actions:count", { ...query, after, limit: COUNT_MAX - count });
    count += found.count;
    after = found.next;
    const over = !after || count >= COUNT_MAX || step >= COUNT_STEPS || isStopped();
    tell({ count, more: Boolean(after) || count >= COUNT_MAX, over });
    if (over) return;
  }
}

function countWords({ count, more, over }) {
  if (!over) return html`Counting … <strong>${number(count)}</strong> so far`;
  return html`<strong>${number(count)}${more ? " or more" : ""}</strong> ${count === 1 && !more ? ALL : MANY} now.`;
}

/** `what` says in words which ones are meant, `terms` what a pause begins with. */
export function BulkDialog({ verb, query, what, title, terms: given, onClose }) {
  const [count, setCount] = useState(null);
  const [done, setDone] = useState(null);
  const [error, setError] = useState(null);
  const [terms, setTerms] = useState({ ...NO_TERMS, ...given });
  const stopped = useRef(false);
  const selected = selection(query, verb), { label, words, danger, terms: asks } = VERBS[verb];
  useEffect(() => { countAll(selected, setCount, () => stopped.current).catch(setError); }, []);
  const start = async () => {
    const sum = { changed: 0, passed_over: 0, refused: 0, problem: null };
    // Read once: all of them end at the same time, however long it takes to pause them.
    const said = asks ? queryOf(terms) : {};
    let after;
    setError(null);
    try {
      do {
        const { data } = await call("POST", "v1/actions:change", { query: { verb, ...selected, ...said, after, limit: STEP } });
        for (const name of ["changed", "passed_over", "refused"]) sum[name] += data[name];
        sum.problem ||= data.problem;
        after = data.next;
        setDone({ ...sum, over: !after });
      } while (after && !stopped.current);
      setDone({ ...sum, over: true, stopped: Boolean(after) });
    } catch (refusal) { setError(refusal); setDone(sum.changed ? { ...sum, over: true } : null); }
  };
  const stop = () => { stopped.current = true; if (!done || done.over) onClose(); };
  const close = () => { stopped.current = true; onClose(); };
  return html`<${Dialog} title=${title || `${label} all that match?`} onClose=${close}>
    <div class="stack"><p>Each action that ${what} and is ${selected.state.join(" or ")} ${words}.</p>
    <p role="status">${count === null ? "Counting …" : countWords(count)}</p>
    ${asks && !done && html`<${PauseFields} terms=${terms} onChange=${setTerms} />`}
    ${done && html`<p role="status">${number(done.changed)} changed${done.passed_over ? `, ${number(done.passed_over)} passed over` : ""}${done.refused ? `, ${number(done.refused)} refused (${done.problem})` : ""}${done.stopped ? "; stopped" : done.over ? "; all done" : " …"}</p>
      ${!done.over && count?.count > 0 && html`<progress max=${count.count} value=${Math.min(count.count, done.changed + done.passed_over + done.refused)}></progress>`}`}
    <${Failure} error=${error} />
    <div class="row">${!done && html`<button type="button" class=${danger ? "danger" : "main"} disabled=${!count?.over || !(count.count || count.more) || (asks && isUnsaid(terms))} onClick=${start}>${label} ${count?.over ? number(count.count) + (count.more ? "+" : "") : ""}</button>`}
      <button type="button" onClick=${stop}>${done?.over ? "Close" : done ? "Stop" : "Leave it"}</button></div></div><//>`;
}

export function Bulk({ query, filter, onDone }) {
  const [verb, setVerb] = useState(null);
  const offered = Object.entries(VERBS).filter(([, one]) => !query.state.length || query.state.some((state) => one.states.includes(state)));
  return html`<div class="row"><span class="dim">All that match:</span>
    ${offered.map(([name, one]) => html`<button type="button" class=${one.danger ? "danger" : ""} onClick=${() => setVerb(name)}>${one.label}</button>`)}
    ${verb && html`<${BulkDialog} verb=${verb} query=${query} what=${html`matches <code>${filter}</code>`} onClose=${() => { setVerb(null); onDone(); }} />`}</div>`;
}
