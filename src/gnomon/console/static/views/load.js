// The calendar of load: what will be due, and where very much falls on one second.

import { get } from "../api.js";
import { Bars } from "../chart.js";
import { link } from "../routing.js";
import { Empty, Figure, html, Loaded, Table, Time, useLoad } from "../ui.js";
import { about, local, number } from "../words.js";

const UNITS = { minute: [60, "next hour"], hour: [72, "next three days"], day: [60, "next two months"], second: [60, "next minute"] };
const EVERY_MS = 10000;

const HERDS = [
  { name: "At", className: "nowrap", cell: (row) => html`<${Time} at=${row.at} as="both" />` },
  { name: "Actions", className: "number", cell: (row) => html`<span class="warn-text">${number(row.count)}</span>` },
  { name: "Such as", className: "long", cell: (row) => row.ids.slice(0, 6).map((id) => html`<a href=${link(["action", id])}>${id}</a> `) },
];

export function Load({ query }) {
  const unit = UNITS[query.get("unit")] ? query.get("unit") : "minute";
  const load = useLoad((signal) => get("v1/load", { unit, count: UNITS[unit][0] }, signal), [unit], { every: EVERY_MS });
  return html`<div class="head"><h1>Load ahead</h1>
      <div class="row" role="group" aria-label="How far ahead">${Object.entries(UNITS).map(([name, [, words]]) => html`<a class=${name === unit ? "button on" : "button"} aria-current=${name === unit ? "true" : undefined} href=${link(["load"], { unit: name })}>${words}</a>`)}</div></div>
    <${Loaded} from=${load}>${({ buckets, herds, estimated }) => {
      const total = buckets.reduce((sum, one) => sum + one.due + one.recurring, 0), most = Math.max(0, ...buckets.map((one) => one.due + one.recurring));
      const times = buckets.map((one) => one.at);
      const told = (count) => (estimated && count ? about(count) : number(count));
      return html`
        <div class="figures"><${Figure} name=${`Due in the ${UNITS[unit][1]}`} value=${told(total)} /><${Figure} name=${`Most in one ${unit}`} value=${told(most)} /><${Figure} name="Herds" value=${number(herds.length)} tone=${herds.length ? "warn" : ""} note="50 or more in one second" /></div>
        ${estimated && html`<p class="notice">There is much ahead: not all of it was counted. Counts are estimates.</p>`}
        ${total ? html`<section class="card"><h2>Due in each ${unit}</h2><${Bars} label=${`Due in each ${unit}`} times=${times} format=${number}
            series=${[{ name: "waiting", values: buckets.map((one) => one.due) }, { name: "further firings of what repeats", tone: "soft", values: buckets.map((one) => one.recurring) }]}
            titles=${(index) => `${local(times[index])}: ${told(buckets[index].due)} waiting, ${number(buckets[index].recurring)} further firings`} /></section>`
          : html`<${Empty} label=${`Nothing is due in the ${UNITS[unit][1]}.`}><p>Look further ahead, or <a href="#/actions">see all actions</a>.</p><//>`}
        ${herds.length > 0 && html`<section class="card" aria-label="Herds"><h2>Herds</h2><p>Very many actions are due in one second. Give each a <code>jitter</code> in its spec (<code>"jitter": "10m"</code>): it is then delayed by its own fixed part of it. A limit of their queue holds them back as well.</p>
          <${Table} columns=${HERDS} rows=${herds} label="Herds" /></section>`}`;
    }}<//>`;
}
