// A new action: a form made from the function's signature or the effect's own schema, or a copy of another action.

import { address, call, get } from "../api.js";
import { link } from "../routing.js";
import { CopyAs, Failure, html, Json, useEffect, useLoad, useMemo, useState } from "../ui.js";
import { quoted } from "../words.js";
import { effectFields, Field, parameterFields, presetText, readField } from "./fields.js";

const REPEATS = { once: "once", periodic: "every", cron: "by cron" };
const EMPTY = { id: "", type: "http", start: "now", at: "", delay: "10s", repeat: "once", period: "5m", expression: "0 9 * * 1-5", timezone: "UTC", retries: "0", queue: "default", labels: "" };
const CALL = "argument."; // before the names of parameters, which may be those of fields
const WRITTEN = new Set(["action", "policy", "start_at", "queue", "labels"]);

const same = (one, other) => JSON.stringify(one) === JSON.stringify(other);

/** A function's parameters as its arguments. What is as the function has it anyway is left out, unless something by place follows. */
function argumentsOf(parameters, values, problems) {
  const kwargs = {}, args = [];
  for (const field of parameters) {
    try {
      const value = readField(field, values[`${CALL}${field.name}`] ?? presetText(field));
      if (!field.named) args.push(value === undefined ? field.preset ?? null : value);
      else if (value !== undefined && !same(value, field.preset)) kwargs[field.name] = value;
    } catch (error) { problems[`${CALL}${field.name}`] = error.message; }
  }
  return { ...(args.length && { args }), ...(Object.keys(kwargs).length && { kwargs }) };
}

/** The form's texts as the body of a call, and what is wrong with them by field. */
function bodyOf(form, values, fields, parameters, rest) {
  const problems = {};
  const action = { type: form.type };
  for (const field of fields) {
    try {
      const value = readField(field, values[field.name] ?? "");
      if (value !== undefined) action[field.name] = value;
    } catch (error) { problems[field.name] = error.message; }
  }
  if (parameters) Object.assign(action, argumentsOf(parameters, values, problems));
  const spec = { ...rest, action };
  if (form.repeat === "periodic") spec.policy = { type: "periodic", period: form.period };
  if (form.repeat === "cron") spec.policy = { type: "cron", expression: form.expression, timezone: form.timezone };
  if (form.start === "in") {
    try { spec.start_at = laterBy(form.delay); } catch (error) { problems.delay = error.message; }
  }
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

/** The text in which a value stands in its field. */
const textOf = (value) => (typeof value === "string" ? value : JSON.stringify(value, null, 2));

/** The arguments of a stored call as texts of the parameters' fields. None if they do not fit the function as it is now. */
function argumentTexts(action, parameters) {
  const { args = [], kwargs = {} } = action;
  const names = parameters.map((field) => field.name);
  const byName = { ...Object.fromEntries(args.map((value, place) => [names[place], value])), ...kwargs };
  if (args.length > names.length || Object.keys(byName).some((name) => !names.includes(name))) return null;
  return Object.fromEntries(parameters.filter((field) => field.name in byName).map((field) => {
    const value = byName[field.name];
    if (field.kind === "flag") return [`${CALL}${field.name}`, value];
    if (field.kind === "time") return [`${CALL}${field.name}`, localTime(value)];
    return [`${CALL}${field.name}`, field.kind === "json" ? JSON.stringify(value, null, 2) : textOf(value)];
  }));
}

const localTime = (text) => {
  const at = new Date(text);
  return new Date(at - at.getTimezoneOffset() * 60000).toISOString().slice(0, 19);
};

/** Where the server says that something is wrong, as the name of a field here. */
function fieldOf(path) {
  const found = /^spec\.action\.(?:kwargs\.)?([^.[]+)/.exec(path || "");
  return found && (path.includes(".kwargs.") ? `${CALL}${found[1]}` : found[1]);
}

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
    .map(([name, value]) => [name, textOf(value)]));
  return { form, values, rest };
}

const ways = (body) => [
  ["curl", `curl -s -X POST ${quoted(address("v1/actions").href)} -H 'Content-Type: application/json' \\\n  -d ${quoted(JSON.stringify(body))}`],
  ["CLI", `gnomon action create ${body.id ? `--id ${quoted(body.id)} ` : ""}--spec - <<'JSON'\n${JSON.stringify(body.spec, null, 2)}\nJSON`],
];

/** Which function: one that a living program serves, or any by its name. */
function Functions({ served, value, problem, onInput }) {
  const known = served.data || [];
  return html`<label class="full">function
    <input name="effect.function" list="functions-served" value=${value} spellcheck="false" autocomplete="off" placeholder=${known.length ? "choose one, or write its name" : "its name"}
      aria-invalid=${problem ? "true" : undefined} onInput=${(event) => onInput(event.target.value)} />
    <datalist id="functions-served">${known.map((one) => html`<option value=${one.name}>${one.summary || one.program}</option>`)}</datalist>
    ${problem && html`<span class="bad-text">${problem}</span>`}
    <span class="hint">${served.data === undefined ? "" : !known.length ? "No living program publishes functions: write arguments as JSON." : value && !known.some((one) => one.name === value) ? "No living program serves a function of this name." : ""}</span></label>`;
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
  const served = useLoad(async (signal) => (await get("v1/functions", {}, signal)).functions, [], { every: 10000 });
  const schema = schemas[kinds[form.type].split("/").pop()];
  const chosen = form.type === "python" ? served.data?.find((one) => one.name === values.function) : undefined;
  const isCall = Boolean(chosen && !chosen.takes_more && !form.raw);
  const fields = useMemo(() => effectFields(schema).filter((field) => !isCall || field.name === "function"), [schema, isCall]);
  const parameters = useMemo(() => (isCall ? parameterFields(chosen) : null), [chosen, isCall]);
  useEffect(() => { // a copy came with its arguments whole
    if (!parameters || !(values.kwargs || values.args)) return;
    const texts = argumentTexts({ args: JSON.parse(values.args || "[]"), kwargs: JSON.parse(values.kwargs || "{}") }, parameters);
    if (texts) setValues({ function: values.function, ...texts });
    else setForm({ ...form, raw: true });
  }, [parameters]);
  const set = (name) => (event) => setForm({ ...form, [name]: event.target.value });
  const { body, problems } = bodyOf(form, values, fields, parameters, rest);
  const told = error && fieldOf(error.path);
  const problemOf = (name) => (shown && problems[name]) || (told === name && error.message);
  const submit = async (event) => {
    event.preventDefault();
    setShown(true);
    setError(null);
    if (Object.keys(problems).length) return;
    try {
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
        ${form.type === "python" && html`<${Functions} served=${served} value=${values.function || ""} problem=${problemOf("function")} onInput=${(name) => setValues({ function: name })} />`}
        ${fields.filter((field) => form.type !== "python" || field.name !== "function").map((field) => html`<${Field} key=${`${form.type}.${field.name}`} field=${field} value=${values[field.name] ?? ""} problem=${problemOf(field.name)}
          onInput=${(value) => setValues({ ...values, [field.name]: value })} />`)}
        ${chosen?.summary && html`<p class="hint full">${chosen.summary}</p>`}
        ${isCall && parameters.map((field) => html`<${Field} key=${`${chosen.name}.${field.name}`} under="argument" field=${field} value=${values[`${CALL}${field.name}`] ?? presetText(field)}
          problem=${problemOf(`${CALL}${field.name}`)} onInput=${(value) => setValues({ ...values, [`${CALL}${field.name}`]: value })} />`)}
      </div></fieldset>
      <fieldset><legend>When</legend><div class="fields">
        <label>Starts<select name="start" value=${form.start} onChange=${set("start")}><option value="now">now</option><option value="in">in</option><option value="at">at</option></select></label>
        ${form.start === "in" && html`<label>In <input name="delay" value=${form.delay} onInput=${set("delay")} />${shown && problems.delay && html`<span class="bad-text">${problems.delay}</span>`}</label>`}
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
      <details class="sent" open><summary>What is sent</summary><${Json} value=${body} label="What is sent" /></details>
      <${CopyAs} ways=${ways(body)} />
    </form>`;
}
