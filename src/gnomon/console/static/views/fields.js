// Fields of a form, made from a JSON schema: of an effect as the API has it, or of a function's parameters.

import { html } from "../ui.js";

const DURATION = "#/components/schemas/Duration";

/** [{name, kind, required, options}] of an effect; kind: text, long, number, flag, choice, length, time, day, json. */
export function effectFields(schema) {
  const fields = Object.entries(schema.properties).filter(([name]) => name !== "type").map(([name, property]) => ({
    name, required: (schema.required || []).includes(name), ...kindOf(name, property),
  }));
  return fields.sort((one, other) => Number(other.required) - Number(one.required));
}

/** The same of a function, in the order of its parameters. */
export const parameterFields = ({ parameters = [] }) => parameters.map(({ name, required = false, schema = {}, named = true, default: preset }) => ({
  name, required, named, preset, ...kindOf(name, schema, schema.$defs),
}));

function kindOf(name, property, defs = {}) {
  const parts = property.anyOf?.filter((item) => item.type !== "null");
  let given = parts?.length === 1 ? parts[0] : property;
  if (given.$ref === DURATION) return { kind: "length" };
  if (given.$ref?.startsWith("#/$defs/")) given = defs[given.$ref.slice(8)] || {};
  if (given.enum) return { kind: "choice", options: given.enum };
  if (given.type === "integer") return { kind: "number", whole: true };
  if (given.type === "number") return { kind: "number" };
  if (given.type === "boolean") return { kind: "flag" };
  if (given.type === "string" && given.format === "date-time") return { kind: "time" };
  if (given.type === "string" && given.format === "date") return { kind: "day" };
  if (given.type === "string") return { kind: ["body", "statement", "value"].includes(name) ? "long" : "text", format: given.format };
  return { kind: "json", shape: { array: "[…]", object: "{…}" }[given.type] || "any JSON" };
}

/** What is chosen unless something else is. */
const first = ({ options, preset, required }) => preset ?? (options.includes("GET") ? "GET" : required ? options[0] : "");

/** The text that stands in the field before anybody types. */
export function presetText({ kind, preset }) {
  if (preset === undefined || preset === null) return "";
  if (kind === "flag" || typeof preset === "string") return preset;
  return JSON.stringify(preset);
}

/** The value that a text means; undefined if it is left out. Throws what is wrong with it. */
export function readField(field, text) {
  if (field.kind === "flag" && (field.preset !== undefined || field.required) && field.named !== undefined) return text === true || text === "true";
  if (text === "" || text === false) {
    if (!field.required) return undefined;
    if (field.kind === "choice") return first(field);
    throw new Error("is needed");
  }
  switch (field.kind) {
    case "number": {
      if (Number.isNaN(Number(text))) throw new Error("must be a number");
      if (field.whole && !/^-?\d+$/.test(String(text).trim())) throw new Error("must be a whole number");
      return Number(text);
    }
    case "choice": return field.options.find((option) => String(option) === String(text)) ?? text;
    case "flag": return text === true || text === "true";
    case "time": {
      const at = new Date(text);
      if (Number.isNaN(at.getTime())) throw new Error("must be a time");
      return at.toISOString();
    }
    case "json":
      try { return JSON.parse(text); } catch { throw new Error(`must be JSON: ${field.shape}`); }
    default: return text;
  }
}

const INPUTS = { number: "number", time: "datetime-local", day: "date" };

export function Field({ field, value, problem, onInput, under = "effect" }) {
  const name = `${under}.${field.name}`, problemId = `${name}-problem`;
  const typed = (event) => onInput(event.target.value);
  const hints = [field.required ? "" : "optional", field.shape || "", field.kind === "time" ? "in your zone" : "", field.kind === "text" && field.format || ""].filter(Boolean).join(", ");
  const label = html`<span>${field.name} <span class="hint">${hints}</span></span>`;
  const told = problem && html`<span class="bad-text" id=${problemId}>${problem}</span>`;
  const wrong = problem ? { "aria-invalid": "true", "aria-describedby": problemId } : {};
  if (field.kind === "flag") {
    return html`<label class="check"><input type="checkbox" name=${name} checked=${value === true || value === "true"} onChange=${(event) => onInput(event.target.checked)} />${field.name}${told}</label>`;
  }
  if (field.kind === "choice") {
    const chosen = value === "" ? first(field) : value;
    const options = field.required || chosen !== "" ? field.options : ["", ...field.options];
    return html`<label>${label}<select name=${name} value=${chosen} onChange=${typed} ...${wrong}>${options.map((option) => html`<option value=${option} selected=${String(option) === String(chosen)}>${String(option)}</option>`)}</select>${told}</label>`;
  }
  if (field.kind === "json" || field.kind === "long") {
    return html`<label class="full">${label}<textarea name=${name} rows=${value ? Math.min(12, String(value).split("\n").length + 1) : 2} spellcheck="false" value=${value} onInput=${typed} ...${wrong}></textarea>${told}</label>`;
  }
  return html`<label class=${field.name === "url" ? "full" : ""}>${label}<input name=${name} type=${INPUTS[field.kind] || "text"} step=${field.kind === "time" ? "1" : field.kind === "number" && !field.whole ? "any" : undefined}
    spellcheck="false" value=${value} onInput=${typed} placeholder=${field.kind === "length" ? "30s, 5m" : ""} ...${wrong} />${told}</label>`;
}
