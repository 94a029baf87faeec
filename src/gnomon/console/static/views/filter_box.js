// The field of the filter language, with completion.

import { complete } from "../filter.js";
import { html, useState } from "../ui.js";

export function FilterBox({ value, onChange, offers, placeholder }) {
  // What is typed counts until the filter itself changes. An effect would come after the first
  // letters of somebody who types at once, and take them away.
  const [draft, setDraft] = useState({ of: value, text: value });
  const text = draft.of === value ? draft.text : value;
  const setText = (typed) => setDraft({ of: value, text: typed });
  const [open, setOpen] = useState(false);
  const [chosen, setChosen] = useState(-1);
  const choices = open ? complete(text, offers) : [];
  const take = (choice) => {
    setText(choice.text);
    setChosen(-1);
    if (!/[:.<=]$/.test(choice.text)) { setOpen(false); onChange(choice.text); }
  };
  const keyed = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && choices.length) {
      event.preventDefault();
      setChosen((chosen + step + choices.length) % choices.length);
    } else if (event.key === "Tab" && choices.length && open && chosen >= 0) {
      event.preventDefault();
      take(choices[chosen]);
    } else if (event.key === "Enter") {
      event.preventDefault();
      if (open && chosen >= 0) take(choices[chosen]);
      else { setOpen(false); onChange(event.target.value.trim()); }
    } else if (event.key === "Escape") {
      if (open) setOpen(false); else event.target.blur();
    }
  };
  return html`<div class="search" onFocusOut=${(event) => event.currentTarget.contains(event.relatedTarget) || setOpen(false)}>
    <input type="search" data-search role="combobox" aria-label="Filter" aria-autocomplete="list" aria-controls="filter-offers"
      aria-expanded=${choices.length > 0} aria-activedescendant=${chosen >= 0 ? `filter-offer-${chosen}` : undefined}
      spellcheck="false" autocomplete="off" placeholder=${placeholder} value=${text}
      onInput=${(event) => { setText(event.target.value); setOpen(true); setChosen(-1); }}
      onFocus=${() => setOpen(true)} onKeyDown=${keyed} />
    ${choices.length > 0 && html`<ul id="filter-offers" role="listbox" aria-label="Completions">
      ${choices.map((choice, index) => html`<li id=${`filter-offer-${index}`} role="option" aria-selected=${index === chosen}
        onMouseDown=${(event) => { event.preventDefault(); take(choice); }}>
        <code>${choice.word}</code><span class="dim">${choice.hint}</span></li>`)}
    </ul>`}
  </div>`;
}
