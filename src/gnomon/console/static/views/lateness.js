// How late attempts began, how long they took, and how many there were: over time, and kept.

import { get, serverNow } from "../api.js";
import { Bars, HeatMap, Lines } from "../chart.js";
import { go, link } from "../routing.js";
import { Empty, Figure, html, Loaded, useLoad } from "../ui.js";
import { number, secondsOf, spell } from "../words.js";

const SPANS = { "1h": [3600, "PT1M"], "6h": [21600, "PT5M"], "24h": [86400, "PT15M"], "7d": [604800, "PT2H"], "30d": [2592000, "PT12H"] };
const EVERY_MS = 15000;

const seconds = (text) => (text === null || text === undefined ? null : secondsOf(text));
const sum = (points, name) => points.reduce((total, point) => total + point[name], 0);

/** The history of the last `span`, of all queues or one. */
export function useHistory(span, queue) {
  const [length, step] = SPANS[span] || SPANS["1h"];
  return useLoad((signal) => get("v1/history", { from: new Date(serverNow() - length * 1000).toISOString(), to: new Date(serverNow()).toISOString(), step, queue }, signal), [span, queue], { every: EVERY_MS });
}

export function Throughput({ points }) {
  const times = points.map((point) => point.at);
  const series = [["succeeded", ""], ["failed", "bad"], ["interrupted", "warn"]].map(([name, tone]) => ({ name, tone, values: points.map((point) => point[name]) }));
  return html`<${Bars} label="Attempts ended" times=${times} series=${series} format=${number} titles=${(index) => `${times[index]}: ${series.map((one) => `${one.values[index]} ${one.name}`).join(", ")}`} />`;
}

export function Quantiles({ points, name, label }) {
  const values = (part) => points.map((point) => seconds(point[name][part]));
  return html`<${Lines} label=${label} times=${points.map((point) => point.at)} format=${(value) => (value ? spell(value) : "0")}
    series=${[{ name: "half began within", values: values("p50") }, { name: "99 % within", tone: "warn", values: values("p99") }].map((one, index) => (name === "duration" ? { ...one, name: ["half took up to", "99 % up to"][index] } : one))} />`;
}

export function Lateness({ query }) {
  const span = SPANS[query.get("span")] ? query.get("span") : "1h", queue = query.get("queue") || "";
  const history = useHistory(span, queue);
  const queues = useLoad((signal) => get("v1/figures", {}, signal), []);
  return html`<div class="head"><h1>Lateness</h1>
      <div class="row" role="group" aria-label="How far back">${Object.keys(SPANS).map((name) => html`<a class=${name === span ? "button on" : "button"} aria-current=${name === span ? "true" : undefined} href=${link(["lateness"], { span: name, queue })}>${name}</a>`)}</div>
      <label class="check">Queue <select onChange=${(event) => go(["lateness"], { span, queue: event.target.value })}><option value="">all</option>
        ${(queues.data?.queues || []).map((row) => html`<option value=${row.queue} selected=${row.queue === queue}>${row.queue}</option>`)}</select></label></div>
    <${Loaded} from=${history}>${({ points, bounds }) => sum(points, "begun") === 0
      ? html`<${Empty} label="No attempt began in this time."><p>Workers count attempts and store what they counted once a minute, so the first figures come after a minute. They are kept for 30 days.</p><//>`
      : html`
      <div class="figures"><${Figure} name="Begun" value=${number(sum(points, "begun"))} /><${Figure} name="Succeeded" value=${number(sum(points, "succeeded"))} />
        <${Figure} name="Failed" value=${number(sum(points, "failed"))} tone=${sum(points, "failed") ? "bad" : ""} /><${Figure} name="Interrupted" value=${number(sum(points, "interrupted"))} tone=${sum(points, "interrupted") ? "warn" : ""} />
        <${Figure} name="Ended as dead" value=${number(sum(points, "dead"))} tone=${sum(points, "dead") ? "bad" : ""} /></div>
      <section class="card"><h2>From due to called</h2><${Quantiles} points=${points} name="lateness" label="Lateness over time" /></section>
      <section class="card"><h2>How many were how late</h2><${HeatMap} label="Lateness by time" times=${points.map((point) => point.at)} rows=${[...bounds.map((bound) => `≤ ${spell(secondsOf(bound))}`), "more"]} cells=${points.map((point) => point.lateness.counts)} /></section>
      <section class="card"><h2>Attempts ended</h2><${Throughput} points=${points} /></section>
      <section class="card"><h2>From called to ended</h2><${Quantiles} points=${points} name="duration" label="Duration over time" /></section>`}<//>`;
}
