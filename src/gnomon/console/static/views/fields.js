// Fields of a form, made from a JSON schema of the API.

import { html } from "../ui.js";

const DURATION = "#/components/schemas/Duration";

/** [{name, kind, required, options}] of an effect; kind: text, long, number, flag, choice, length, json. */
export function effectFields(schema) {
  const fields = Object.entries(schema.properties).filter(([name]) => name !== "type").map(([name, property]) => ({
    name, required: (schema.required || []).includes(name), ...kindOf(name, property),
  }));
  return fields.sort((one, other) => Number(other.required) - Number(one.required));
}

function kindOf(name, property) {
  const given = property.anyOf?.find((item) => item.type !== "null") || property;
  if (given.$ref === DURATION) return { kind: "length" };
  if (given.enum) return { kind: "choice", options: given.enum };
  if (given.type === "integer" || given.type === "number") return { kind: "number" };
  if (given.type === "boolean") return { kind: "flag" };
  if (given.type === "string") return { kind: ["body", "statement", "value"].includes(name) ? "long" : "text" };
  return { kind: "json", shape: { array: "[…]", object: "{…}" }[given.type] || "any JSON" };
}

/** What is chosen unless something else is. */
const first = ({ options }) => (options.includes("GET") ? "GET" : options[0]);

/** The value that a text means; undefined if it is left out. Throws what is wrong with it. */
export function readField(field, text) {
  if (text === "" || text === false) {
    if (!field.required) return undefined;
    if (field.kind === "choice") return first(field);
    throw new Error("is needed");
  }
  switch (field.kind) {
    case "number": {
      if (Number.isNaN(Number(text))) throw new Error("must be a number");
      return Number(text);
    }
    case "flag": return text === true || text === "true";
    case "json":
      try { return JSON.parse(text); } catch { throw new Error(`must be JSON: ${field.shape}`); }
    default: return text;
  }
}

export function Field({ field, value, problem, onInput }) {
  const name = `effect.${field.name}`;
  const typed = (event) => onInput(event.target.value);
  const label = html`<span>${field.name}${field.required ? "" : html` <span class="hint">optional${field.shape ? `, ${field.shape}` : ""}</span>`}</span>`;
  const told = problem && html`<span class="bad-text">${problem}</span>`;
  if (field.kind === "flag") {
    return html`<label class="check"><input type="checkbox" name=${name} checked=${value === true || value === "true"} onChange=${(event) => onInput(event.target.checked)} />${field.name}</label>`;
  }
  if (field.kind === "choice") {
    return html`<label>${label}<select name=${name} value=${value || first(field)} onChange=${typed}>${field.options.map((option) => html`<option value=${option} selected=${option === (value || first(field))}>${option}</option>`)}</select>${told}</label>`;
  }
  if (field.kind === "json" || field.kind === "long") {
    return html`<label class="full">${label}<textarea name=${name} rows=${value ? Math.min(12, String(value).split("\n").length + 1) : 2} spellcheck="false" value=${value} onInput=${typed}></textarea>${told}</label>`;
  }
  return html`<label class=${field.name === "url" ? "full" : ""}>${label}<input name=${name} type=${field.kind === "number" ? "number" : "text"} spellcheck="false" value=${value} onInput=${typed}
    placeholder=${field.kind === "length" ? "30s, 5m" : ""} />${told}</label>`;
}
