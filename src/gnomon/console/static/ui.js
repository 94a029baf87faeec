// The parts that views are made of.

import { h, Fragment, render } from "./vendor/preact.mjs";
import { useCallback, useEffect, useMemo, useRef, useState } from "./vendor/hooks.mjs";
import htm from "./vendor/htm.mjs";
import { serverNow } from "./api.js";
import { local, relative } from "./words.js";

export { Fragment, render, useCallback, useEffect, useMemo, useRef, useState };
export const html = htm.bind(h);

// -- data -----------------------------------------------------------------------------------------

/**
 * What `load` gives, again when `deps` change and every `every` ms while the page is looked at.
 * What was there stays until the new is there.
 */
export function useLoad(load, deps, { every } = {}) {
  const [state, setState] = useState({ data: undefined, error: null, key: null });
  const key = JSON.stringify(deps);
  const [round, setRound] = useState(0);
  useEffect(() => {
    const abort = new AbortController();
    let timer;
    const look = async () => {
      try {
        const data = await load(abort.signal);
        if (!abort.signal.aborted) setState({ data, error: null, key });
      } catch (error) {
        if (abort.signal.aborted || error.name === "AbortError") return;
        setState((old) => ({ ...old, error, key }));
      }
      if (every && !abort.signal.aborted) timer = setTimeout(whenSeen, every);
    };
    const whenSeen = () => {
      if (document.visibilityState === "visible") look();
      else timer = setTimeout(whenSeen, every);
    };
    look();
    return () => { abort.abort(); clearTimeout(timer); };
  }, [key, round]);
  const reload = useCallback(() => setRound((count) => count + 1), []);
  return { ...state, isOld: state.key !== key, reload };
}

const ticking = new Set();
setInterval(() => {
  if (document.visibilityState === "visible") for (const tick of ticking) tick(serverNow());
}, 1000);

/** The server's time, drawn anew each second. */
export function useNow() {
  const [now, setNow] = useState(serverNow());
  useEffect(() => {
    ticking.add(setNow);
    return () => ticking.delete(setNow);
  }, []);
  return now;
}

// -- times ----------------------------------------------------------------------------------------

/** In the reader's zone, or relative; exact and in UTC on hover. */
export function Time({ at, as = "relative" }) {
  const now = useNow();
  if (!at) return html`<span class="none">–</span>`;
  const title = `${at} · ${local(at)} in your zone`;
  if (as === "local") return html`<time datetime=${at} title=${title}>${local(at)}</time>`;
  if (as === "both") {
    return html`<time datetime=${at} title=${title}><span class="clock">${local(at)} </span><span class="dim">${relative(at, now)}</span></time>`;
  }
  return html`<time datetime=${at} title=${title}>${relative(at, now)}</time>`;
}

// -- small parts ----------------------------------------------------------------------------------

const TONES = {
  dead: "bad", failed: "bad", expired: "warn", interrupted: "warn", paused: "warn", late: "warn",
  quarantined: "bad", looping: "bad", undelivered: "bad", FAIL: "bad", GONE: "warn", STOP: "warn",
  silent: "warn", running: "live", WORK: "live", TAKE: "live", succeeded: "good", done: "good", DONE: "good",
};

export const Badge = ({ text, title }) => html`<span class=${`badge ${TONES[text] || ""}`} title=${title}>${text}</span>`;

export const Json = ({ value, label }) =>
  html`<pre class="code" tabindex="0" role="region" aria-label=${label || "JSON"}>${JSON.stringify(value, null, 2)}</pre>`;

/** `label` names what is empty; the children teach how to fill it. */
export const Empty = ({ label, children }) => html`<div class="empty"><p><strong>${label}</strong></p>${children}</div>`;

export function Failure({ error, again }) {
  if (!error) return null;
  return html`<div class="failure" role="alert">
    <span>${error.path ? `${error.path}: ` : ""}${error.message}</span>
    ${again && html`<button type="button" onClick=${again}>Try again</button>`}
  </div>`;
}

/** Loading, failed, or the children: called with the data. */
export function Loaded({ from, children }) {
  if (from.data === undefined) {
    return from.error ? html`<${Failure} error=${from.error} again=${from.reload} />` : html`<p class="dim" aria-busy="true">Loading …</p>`;
  }
  return html`<${Fragment}>${from.error && html`<${Failure} error=${from.error} again=${from.reload} />`}${children(from.data)}<//>`;
}

export function Copy({ text, label }) {
  const [done, setDone] = useState(false);
  if (!navigator.clipboard) return null; // over plain HTTP a browser has none: select the text
  const copy = async () => {
    await navigator.clipboard.writeText(text);
    setDone(true);
    setTimeout(() => setDone(false), 1500);
  };
  return html`<button type="button" class="quiet" onClick=${copy}>${done ? "copied" : label}</button>`;
}

/** The same thing in other ways: [[name, text], …], to be read and copied. */
export function CopyAs({ ways }) {
  const [shown, setShown] = useState(null);
  return html`<div class="copy-as">
    <div class="row"><span class="dim">Copy as</span>
      ${ways.map(([name]) => html`<button type="button" class=${name === shown ? "quiet on" : "quiet"} aria-expanded=${name === shown}
        onClick=${() => setShown(name === shown ? null : name)}>${name}</button>`)}
      ${shown && html`<${Copy} text=${ways.find(([name]) => name === shown)[1]} label="Copy" />`}
    </div>
    ${shown && html`<pre class="code" tabindex="0" role="region" aria-label=${shown}>${ways.find(([name]) => name === shown)[1]}</pre>`}
  </div>`;
}

/** A question before something is done. */
export function Dialog({ title, onClose, children }) {
  const element = useRef(null);
  useEffect(() => {
    element.current.showModal();
    return () => element.current?.close();
  }, []);
  return html`<dialog ref=${element} onCancel=${onClose} onClose=${onClose} aria-label=${title}>
    <h2>${title}</h2>${children}
  </dialog>`;
}

/** A definition list of what is known: [[name, value], …]; what is empty is left out. */
export function Facts({ rows, wide }) {
  const given = rows.filter(([, value]) => value !== undefined && value !== null && value !== "" && value.length !== 0);
  return html`<dl class=${wide ? "facts wide" : "facts"}>${given.map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
}

/** columns: [{name, cell(row), className}]; `extra` ones are left out where the window is narrow. On a phone each row is
 * a card and each cell says its name: the roles tell that it is a table still. */
export function Table({ columns, rows, label }) {
  return html`<div class="table" tabindex="0" role="region" aria-label=${label}><table role="table">
    <thead role="rowgroup"><tr role="row">${columns.map((column) => html`<th role="columnheader" scope="col" class=${column.className}>${column.name}</th>`)}</tr></thead>
    <tbody role="rowgroup">${rows.map((row) => html`<tr role="row">${columns.map((column) => html`<td role="cell" class=${column.className} data-name=${column.name}>${column.cell(row)}</td>`)}</tr>`)}</tbody>
  </table></div>`;
}

export function Figure({ name, value, note, tone, href }) {
  const inside = html`<div class="figure-name">${name}</div><div class="figure-value">${value}</div>${note && html`<div class="figure-note">${note}</div>`}`;
  const className = `figure ${tone || ""}`;
  return href ? html`<a class=${className} href=${href}>${inside}</a>` : html`<div class=${className}>${inside}</div>`;
}

/** Pages by keyset: to the next, and back to the first. */
export const Pager = ({ count, first, next, what }) => html`<nav class="row pager" aria-label="Pages">
  <span class="dim">${count} ${count === 1 ? what.replace(/ies$/, "y").replace(/s$/, "") : what} on this page</span>
  <span class="grow"></span>
  ${first && html`<a class="button" href=${first}>First page</a>`}
  ${next && html`<a class="button" href=${next} rel="next">Next page</a>`}
</nav>`;
