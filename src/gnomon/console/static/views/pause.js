// A pause: why, and when it ends by itself. For one action, and for all that match.

import { serverNow } from "../api.js";
import { Dialog, Failure, html, Time, useState } from "../ui.js";
import { local } from "../words.js";

export const NO_TERMS = { reason: "", end: "none", length: "", time: "" };
const REASON_MAX = 200;
const HOUR_MS = 3600000;
const ENDS = {
  none: "no end: until it is resumed",
  hour: "in an hour",
  tomorrow: "tomorrow at 06:00",
  length: "after a length of time …",
  time: "at a time …",
};

/** Tomorrow at six in the reader's zone, by the server's date. */
function tomorrow() {
  const at = new Date(serverNow());
  at.setDate(at.getDate() + 1);
  at.setHours(6, 0, 0, 0);
  return at.toISOString();
}

/** A reason by which all that one maintenance paused can be found again. */
export const maintenance = () => `maintenance ${local(new Date(serverNow())).slice(0, 16)}`;

function untilOf({ end, length, time }) {
  switch (end) {
    case "hour": return new Date(serverNow() + HOUR_MS).toISOString();
    case "tomorrow": return tomorrow();
    case "length": return length.trim();
    case "time": return time && new Date(time).toISOString();
    default: return "";
  }
}

/** The fields of the API's query; what is empty is not sent. */
export const queryOf = (terms) => ({ reason: terms.reason.trim(), until: untilOf(terms) });

/** Whether something is missing that was chosen. */
export const isUnsaid = ({ end, length, time }) => (end === "length" && !length.trim()) || (end === "time" && !time);

export function PauseFields({ terms, onChange }) {
  const set = (name) => (event) => onChange({ ...terms, [name]: event.target.value });
  return html`<div class="stack">
    <label><span>Reason <span class="hint">optional; it is shown wherever the action is</span></span>
      <input name="reason" maxlength=${REASON_MAX} value=${terms.reason} onInput=${set("reason")} /></label>
    <label><span>It goes on</span><select name="end" value=${terms.end} onChange=${set("end")}>
      ${Object.entries(ENDS).map(([name, words]) => html`<option value=${name} selected=${name === terms.end}>${words}</option>`)}</select></label>
    ${terms.end === "length" && html`<label><span>Length of time <span class="hint">30m, 2h, 1d12h</span></span><input name="length" value=${terms.length} onInput=${set("length")} /></label>`}
    ${terms.end === "time" && html`<label><span>Time <span class="hint">in your zone</span></span><input type="datetime-local" step="1" name="time" value=${terms.time} onInput=${set("time")} /></label>`}
  </div>`;
}

/** Asks for the terms of one action's pause; the fields begin with those that it has. */
export function PauseDialog({ id, status, error, onPause, onClose }) {
  const [terms, setTerms] = useState({ ...NO_TERMS, reason: (status.state === "paused" && status.reason) || "" });
  return html`<${Dialog} title="Pause this action?" onClose=${onClose}>
    <p>No attempt of <code>${id}</code> begins until it goes on. An attempt that is under way goes on to its end.</p>
    <form class="stack" onSubmit=${(event) => { event.preventDefault(); if (!isUnsaid(terms)) onPause(queryOf(terms)); }}>
      <${PauseFields} terms=${terms} onChange=${setTerms} />
      <${Failure} error=${error} />
      <div class="row"><button type="submit" class="main" disabled=${isUnsaid(terms)}>Pause it</button>
        <button type="button" onClick=${onClose}>Leave it</button></div>
    </form><//>`;
}

/** Of something paused: why, and until when, in a few words. */
export function PausedFor({ reason, until }) {
  if (!reason && !until) return null;
  return html`<span class="dim">${reason}${reason && until ? ", " : ""}${until && html`goes on <${Time} at=${until} />`}</span>`;
}
