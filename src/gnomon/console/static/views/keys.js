// What keys do.

import { Dialog, html } from "../ui.js";

export const Keys = ({ views, onClose }) => html`<${Dialog} title="Keys" onClose=${onClose}>
  <dl class="keys">
    <div><dt><kbd>/</kbd></dt><dd>filter</dd></div>
    <div><dt><kbd>n</kbd></dt><dd>new action</dd></div>
    <div><dt><kbd>?</kbd></dt><dd>this list</dd></div>
    ${views.filter((view) => view.letter).map((view) => html`<div><dt><kbd>g</kbd> <kbd>${view.letter}</kbd></dt><dd>${view.title}</dd></div>`)}
  </dl>
  <div class="row"><button type="button" class="main" onClick=${onClose}>Close</button></div>
<//>`;
