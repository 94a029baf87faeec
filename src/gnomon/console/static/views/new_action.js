// A new action: a form made from the effect's own schema, or a copy of another action.

import { address, call, get } from "../api.js";
import { link } from "../routing.js";
import { CopyAs, Failure, html, useEffect, useMemo, useState } from "../ui.js";
import { quoted } from "../words.js";
import { effectFields, Field, readField } from "./fields.js";

const REPEATS = { once: "once", periodic: "every", cron: "by cron" };
const EMPTY = { id: "", type: "http", start: "now", at: "", delay: "10s", repeat: "once", period: "5m", expression: "0 9 * * 1-5", timezone: "UTC", retries: "0", queue: "default", labels: "" };
const WRITTEN = new Set(["action", "policy", "start_at", "queue", "labels"]);

/** The form's texts as the body of a call, and what is wrong with them by field. */
function bodyOf(form, values, fields, rest) {
  const problems = {};
  const action = { type: form.type };
  for (const field of fields) {
    try {
      const value = readField(field, values[field.name] ?? "");
      if (value !== undefined) action[field.name] = value;
    } catch (error) { problems[field.name] = error.message; }
  }
  const spec = { ...rest, action };
  if (form.repeat === "periodic") spec.policy = { type: "periodic", period: form.period };
  if (form.repeat === "cron") spec.policy = { type: "cron", expression: form.expression, timezone: form.timezone };
  if (form.start === "at") {
    if (form.at) spec.start_at = new Date(form.at).toISOString();
    else problems.at = "say when";
  }
  if (Number(form.retries) > 0) spec.retry = { max_period: "1h", scale: 1, back_off: 2, ...rest.retry, max: Number(form.retries) };
  if (form.queue && form.queue !== "default") spec.queue = form.queue;
  const labels = Object.fromEntries(form.labels.split(/[\s,]+/).filter(Boolean).map((text) => {
    const [name, ...value] = text.split("=");
    return [name, value.join("=")];
  }));
  if (Object.keys(labels).length) spec.labels = labels;
  return { body: { ...(form.id && { id: form.id }), spec }, problems };
}

const LENGTHS = { s: 1, m: 60, h: 3600, d: 86400 };
const laterBy = (text) => {
  const found = /^(\d+)\s*([smhd])$/.exec(text.trim());
  if (!found) throw new Error("write a length such as 30s, 5m, 2h, 1d");
  return new Date(Date.now() + found[1] * LENGTHS[found[2]] * 1000).toISOString();
};

/** What a stored action looks like in the form; what the form does not know stays as it is. */
function formOf(action) {
  const { spec, meta } = action;
  const policy = spec.policy || { type: "once" };
  const rest = Object.fromEntries(Object.entries(spec).filter(([name]) => !WRITTEN.has(name)));
  const form = {
    ...EMPTY, id: `${meta.id}-copy`, type: spec.action.type, repeat: policy.type, period: policy.period || EMPTY.period,
    expression: policy.expression || EMPTY.expression, timezone: policy.timezone || EMPTY.timezone,
    retries: String(spec.retry?.max || 0), queue: spec.queue || "default",
    labels: Object.entries(spec.labels || {}).map(([name, value]) => `${name}=${value}`).join(" "),
  };
  const values = Object.fromEntries(Object.entries(spec.action).filter(([name]) => name !== "type")
    .map(([name, value]) => [name, typeof value === "string" ? value : JSON.stringify(value, null, 2)]));
  return { form, values, rest };
}

export function NewAction({ server, query }) {
  const from = query.get("from");
  const schemas = server.openapi.components.schemas;
  const kinds = schemas.Spec.properties.action.discriminator.mapping;
  const [form, setForm] = useState(EMPTY);
  const [values, setValues] = useState({});
  const [rest, setRest] = useState({});
  const [shown, setShown] = useState(false);
  const [error, setError] = useState(null);
  useEffect(() => {
    if (!from) return;
    get(`v1/actions/${encodeURIComponent(from)}`).then((action) => {
      const copy = formOf(action);
      setForm(copy.form);
      setValues(copy.values);
      setRest(copy.rest);
    }, setError);
  }, [from]);
  const schema = schemas[kinds[form.type].split("/").pop()];
  const fields = useMemo(() => effectFields(schema), [schema]);
  const set = (name) => (event) => setForm({ ...form, [name]: event.target.value });
  const { body, problems } = bodyOf(form, values, fields, rest);
  const submit = async (event) => {
    event.preventDefault();
    setShown(true);
    if (Object.keys(problems).length) return;
    try {
      if (form.start === "in") body.spec.start_at = laterBy(form.delay);
      const { data } = await call("POST", "v1/actions", { body, headers: { "Idempotency-Key": crypto.randomUUID?.() || String(Math.random()) } });
      location.hash = link(["action", data.meta.id]);
    } catch (refusal) { setError(refusal); }
  };
  if (!server.can("write")) return html`<h1>New action</h1><p class="notice">This needs a token with the scope <code>write</code>.</p>`;
  return html`<h1>${from ? `Copy of ${from}` : "New action"}</h1>
    <form class="form" onSubmit=${submit} novalidate>
      <fieldset><legend>What</legend><div class="fields">
        <label>Does<select name="type" value=${form.type} onChange=${(event) => { setForm({ ...form, type: event.target.value }); setValues({}); }}>
          ${Object.keys(kinds).map((kind) => html`<option value=${kind} selected=${kind === form.type}>${kind}</option>`)}</select></label>
        <label>Id <input name="id" value=${form.id} onInput=${set("id")} placeholder="made up if left empty" spellcheck="false" /></label>
        <p class="hint full">${schema.description.replaceAll("`", "")}</p>
        ${fields.map((field) => html`<${Field} key=${`${form.type}.${field.name}`} field=${field} value=${values[field.name] ?? ""} problem=${shown && problems[field.name]}
          onInput=${(value) => setValues({ ...values, [field.name]: value })} />`)}
      </div></fieldset>
      <fieldset><legend>When</legend><div class="fields">
        <label>Starts<select name="start" value=${form.start} onChange=${set("start")}><option value="now">now</option><option value="in">in</option><option value="at">at</option></select></label>
        ${form.start === "in" && html`<label>In <input name="delay" value=${form.delay} onInput=${set("delay")} /></label>`}
        ${form.start === "at" && html`<label>At, in your zone <input name="at" type="datetime-local" step="1" value=${form.at} onInput=${set("at")} />${shown && problems.at && html`<span class="bad-text">${problems.at}</span>`}</label>`}
        <label>Fires<select name="repeat" value=${form.repeat} onChange=${set("repeat")}>${Object.entries(REPEATS).map(([value, text]) => html`<option value=${value} selected=${value === form.repeat}>${text}</option>`)}</select></label>
        ${form.repeat === "periodic" && html`<label>Period <input name="period" value=${form.period} onInput=${set("period")} /></label>`}
        ${form.repeat === "cron" && html`<label>Cron expression <input name="expression" class="mono" value=${form.expression} onInput=${set("expression")} /></label>
          <label>Time zone <input name="timezone" value=${form.timezone} onInput=${set("timezone")} /></label>`}
      </div></fieldset>
      <fieldset><legend>How</legend><div class="fields">
        <label>Retries <input name="retries" type="number" min="0" value=${form.retries} onInput=${set("retries")} /></label>
        <label>Queue <input name="queue" value=${form.queue} onInput=${set("queue")} spellcheck="false" /></label>
        <label class="full">Labels <input name="labels" value=${form.labels} onInput=${set("labels")} placeholder="team=ads tier=gold" spellcheck="false" /></label>
      </div></fieldset>
      <${Failure} error=${error} />
      <div class="row"><button type="submit" class="main">Create</button><a class="button" href="#/actions">Leave it</a></div>
      <${CopyAs} ways=${[["curl", `curl -s -X POST ${quoted(address("v1/actions").href)} -H 'Content-Type: application/json' \\\n  -d ${quoted(JSON.stringify(body))}`], ["JSON", JSON.stringify(body, null, 2)]]} />
    </form>`;
}
