// The list of actions: filtered in the URL, by keyset, so that the last page costs what the first does.

import { address, get } from "../api.js";
import { readFilter } from "../filter.js";
import { go, link } from "../routing.js";
import { Badge, CopyAs, Empty, Failure, html, Loaded, Pager, Table, Time, useEffect, useLoad, useMemo, useRef, useState } from "../ui.js";
import { effectWords, number, policyWords, quoted } from "../words.js";
import { Bulk } from "./bulk.js";
import { FilterBox } from "./filter_box.js";
import { PausedFor } from "./pause.js";

const PAGE = 50;
const EVERY_MS = 5000;
const LOOK_ON_MAX = 200;
const queuesSeen = new Set();
const labelsSeen = new Set();

export const stateOf = (action) => action.status.state || "active";

const outcome = ({ last_attempt: last }) => last
  && html`<${Badge} text=${last.outcome || "running"} title=${last.error} /> <span class="dim"><${Time} at=${last.ended_at || last.began_at} /></span>`;

/** While it runs, the store's time is the end of its reservation: nothing is due then. */
function due({ status }) {
  if (status.state === "paused") return html`<${PausedFor} reason=${status.reason} until=${status.paused_until} />`;
  if (status.current_attempt) return html`<span class="dim">began <${Time} at=${status.current_attempt.began_at} /></span>`;
  return html`<${Time} at=${status.scheduled_at} />`;
}

export const COLUMNS = [
  { name: "Id", className: "id", cell: (item) => html`<a href=${link(["action", item.meta.id])} title=${item.meta.id}>${item.meta.id}</a>` },
  { name: "State", cell: (item) => html`<${Badge} text=${item.status.current_attempt ? "running" : stateOf(item)} title=${item.status.reason} />` },
  { name: "Does", className: "text", cell: (item) => html`<span class="dim">${item.spec.action.type}</span> ${effectWords(item.spec.action)}` },
  { name: "When", cell: (item) => policyWords(item.spec.policy) },
  { name: "Due", cell: due },
  { name: "Last attempt", cell: (item) => outcome(item.status) },
  { name: "Succeeded", className: "number extra", cell: (item) => item.status.succeeded || "" },
  { name: "Failed", className: "number extra", cell: (item) => item.status.failed ? html`<span class="bad-text">${item.status.failed}</span>` : "" },
  { name: "Queue", className: "nowrap", cell: (item) => item.spec.queue || "default" },
];

export const ActionTable = ({ actions, label }) => html`<${Table} columns=${COLUMNS} rows=${actions} label=${label} />`;

function ways(query) {
  const url = address("v1/actions", query);
  const flags = Object.entries({ "--state": query.state, "--label": query.label, "--argument": query.argument, "--queue": query.queue, "--id-prefix": query.id_prefix, "--function": query.function, "--error-contains": query.error_contains, "--paused-for": query.paused_for, "--search": query.search, "--due-before": query.due_before })
    .flatMap(([name, value]) => [value || []].flat().map((item) => `${name} ${quoted(item)}`));
  return [
    ["curl", `curl -s ${quoted(url.href)}`],
    ["CLI", ["gnomon action list", ...flags].join(" ")],
  ];
}

/** A page that ended before it was full: how far it came, and the way on until something is found. `read` gives a page
 * from a cursor on, `isFound` whether it has rows, `show` goes there. */
export function LookOn({ read, isFound, show, found, next, looked }) {
  const [at, setAt] = useState(null);
  const [error, setError] = useState(null);
  const wish = useRef("");
  useEffect(() => () => { wish.current = "leave"; }, []);
  const look = async () => {
    let after = next, seen = looked;
    wish.current = "";
    setError(null);
    try {
      for (let step = 0; step < LOOK_ON_MAX && !wish.current; step++) {
        setAt(seen);
        const page = await read(after);
        if (wish.current) break;
        if (isFound(page) || !page.next) return show(after, seen);
        seen += page.looked_at || 0;
        after = page.next;
      }
      if (wish.current !== "leave") show(after, seen);
    } catch (refusal) { setError(refusal); } finally { setAt(null); }
  };
  return html`<div class="row" role="status"><span>Looked at ${number(at ?? looked)} rows so far${found ? "" : ", and none matches"}; there are more.</span>
    ${at === null ? html`<button type="button" onClick=${look}>Look on</button>`
      : html`<button type="button" onClick=${() => { wish.current = "stop"; }}>Stop</button>`}
    <${Failure} error=${error} /></div>`;
}

export function Actions({ server, query: place }) {
  const text = place.get("q") || "", after = place.get("after") || "", before = Number(place.get("looked")) || 0;
  const known = useMemo(() => server.fields("/v1/actions"), [server]);
  const filter = useMemo(() => readFilter(text, known), [text, known]);
  const ask = { ...filter.query, after, limit: PAGE };
  const page = useLoad(
    (signal) => (filter.problems.length ? { actions: [], next: null } : get("v1/actions", ask, signal)),
    [text, after], { every: EVERY_MS },
  );
  useEffect(() => {
    for (const { spec } of page.data?.actions || []) {
      queuesSeen.add(spec.queue || "default");
      for (const [name, value] of Object.entries(spec.labels || {})) labelsSeen.add(`${name}=${value}`);
    }
  }, [page.data]);
  const offers = { known, queues: [...queuesSeen].sort(), labels: [...labelsSeen].sort() };
  return html`
    <div class="head"><h1>Actions</h1>
      <${FilterBox} value=${text} offers=${offers} placeholder="state:dead queue:mail label.team=ads arg.order=17 due<1h id:order-"
        onChange=${(q) => go(["actions"], { q })} />
      ${server.can("write") && html`<a class="button main" href="#/new">New action</a>`}
    </div>
    ${filter.problems.map((problem) => html`<${Failure} error=${{ message: problem }} />`)}
    ${page.isOld && page.data !== undefined && html`<p class="dim" role="status" aria-busy="true">Looking …</p>`}
    <${Loaded} from=${page}>${({ actions, next, looked_at: looked }) => page.isOld ? "" : html`
      ${looked && html`<${LookOn} key=${next} found=${actions.length} next=${next} looked=${before + looked} read=${(from) => get("v1/actions", { ...ask, after: from })}
        isFound=${(some) => some.actions.length} show=${(from, seen) => go(["actions"], { q: text, after: from, looked: seen })} />`}
      ${actions.length ? html`<${ActionTable} actions=${actions} label="Actions" />
        <${Pager} count=${actions.length} what="actions" first=${after && link(["actions"], { q: text })}
          next=${next && link(["actions"], { q: text, after: next, looked: looked ? before + looked : "" })} />
        ${server.can("write") && text && html`<${Bulk} query=${filter.query} filter=${text} onDone=${page.reload} />`}
        <${CopyAs} ways=${ways(filter.query)} />`
      : looked ? "" : text || after ? html`<${Empty} label=${after ? "No more action matches." : "No action matches."}><p>The filter asks for <code>${text}</code>. <a href="#/actions">Show all actions</a></p><//>`
      : html`<${Empty} label="There are no actions yet.">
          <p>An action says what is to happen and when. ${server.can("write") && html`<a href="#/new">Make one here</a>, or in a terminal:`}</p>
          <p><code>gnomon action create --id hello --in 5s --mock</code></p><//>`}
    `}<//>`;
}
