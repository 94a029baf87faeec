// Edit an action: the spec as JSON, the difference before it is sent, and what to do when somebody
// else was quicker.

import { call, get } from "../api.js";
import { diffLines } from "../diff.js";
import { Failure, html, useState } from "../ui.js";

const pretty = (value) => JSON.stringify(value, null, 2);
const CLASSES = { "+": "added", "-": "removed", " ": "" };

export function Diff({ before, after, label }) {
  const rows = diffLines(before, after);
  if (rows.every((row) => row.sign === " ")) return html`<p class="dim">No difference.</p>`;
  return html`<div class="diff" tabindex="0" role="region" aria-label=${label}>
    ${rows.map((row) => html`<div class=${CLASSES[row.sign]}>${row.sign} ${row.line}</div>`)}</div>`;
}

function read(text) {
  try {
    return { spec: JSON.parse(text) };
  } catch (error) {
    return { problem: { message: `This is not JSON yet: ${error.message}` } };
  }
}

export function EditSpec({ action, onClose, onSaved }) {
  // What the edit began with; the page behind may show something newer by now.
  const [base, setBase] = useState(action);
  const [text, setText] = useState(pretty(action.spec));
  const [theirs, setTheirs] = useState(null);
  const [error, setError] = useState(null);
  const { spec, problem } = read(text);
  const path = `v1/actions/${encodeURIComponent(action.meta.id)}`;
  const save = async (over) => {
    setError(null);
    try {
      const headers = { "If-Match": `"${over.meta.guid}"` };
      onSaved((await call("PUT", path, { body: { spec }, headers })).data);
    } catch (refusal) {
      if (refusal.status === 412) setTheirs(await get(path));
      else setError(refusal);
    }
  };
  const takeTheirs = () => { setBase(theirs); setText(pretty(theirs.spec)); setTheirs(null); };
  return html`<section class="card stack" aria-label="Edit">
    <h2>Edit</h2>
    <label>Spec<textarea rows="14" spellcheck="false" value=${text} onInput=${(event) => setText(event.target.value)}></textarea></label>
    <${Failure} error=${problem} />
    ${!problem && html`<div><h2>What changes</h2><${Diff} before=${pretty(base.spec)} after=${pretty(spec)} label="What changes" /></div>`}
    <${Failure} error=${error} />
    ${theirs ? html`<div class="stack" role="alert">
        <p class="notice warn">Somebody changed it while you edited. This is what they changed:</p>
        <${Diff} before=${pretty(base.spec)} after=${pretty(theirs.spec)} label="What they changed" />
        <div class="row"><button type="button" class="main" onClick=${takeTheirs}>Begin again with theirs</button>
          <button type="button" class="danger" disabled=${problem} onClick=${() => save(theirs)}>Replace theirs with mine</button>
          <button type="button" onClick=${onClose}>Leave it</button></div></div>`
      : html`<div class="row"><button type="button" class="main" disabled=${problem || pretty(spec) === pretty(base.spec)} onClick=${() => save(base)}>Save</button>
          <button type="button" onClick=${onClose}>Leave it</button>
          <span class="hint">A new generation: its counters begin at zero.</span></div>`}
  </section>`;
}
