// The filter language of lists: `state:dead queue:mail label.team=ads arg.order=17 due<1h id:order-`.
// A word becomes a field of the API's query; what is not understood is said, not guessed.

import { serverNow } from "./api.js";

export const STATES = ["active", "paused", "done", "dead", "cancelled", "expired"];
const LENGTHS = { s: 1, m: 60, h: 3600, d: 86400, w: 604800 };
const WORD = /(?:[^\s"]|"(?:[^"\\]|\\.)*")+/g;

// Word → field of the query of GET /v1/actions.
const FIELDS = { queue: "queue", id: "id_prefix", function: "function", error: "error_contains", paused: "paused_for", any: "search" };
const HINTS = {
  "state:": "active, paused, done, dead, cancelled, expired",
  "queue:": "of this queue",
  "id:": "ids that begin so",
  "label.": "label.team=ads",
  "arg.": "arg.customer.id=7: an argument or a part of the payload",
  "due<": "due within 15m, 1h, 2d",
  "function:": "calls this Python function",
  "error:": "its last error contains this text",
  "paused:": "paused for this reason",
  "any:": "in its id, queue or function",
};

export const wordsOf = (text) => text.match(WORD) || [];
const plain = (value) => (value.startsWith('"') && value.endsWith('"') && value.length > 1
  ? value.slice(1, -1).replace(/\\(.)/g, "$1") : value);

/** {query, problems}: the fields for the API, and what could not be read. `known` are the fields
 *  that this server has; words for others are refused. */
export function readFilter(text, known) {
  const query = { state: [], label: [], argument: [] };
  const problems = [];
  for (const word of wordsOf(text)) {
    const found = /^(state|due|label\.[\w.-]+|arg\.[^\s:<="]*|[a-z]+)(:|<|=)(.*)$/.exec(word);
    if (!found) {
      query.id_prefix = plain(word);
      continue;
    }
    const [, name, sign, raw] = found;
    const value = plain(raw);
    if (name === "state" && sign === ":") readStates(value, query, problems);
    else if (name.startsWith("label.") && sign !== "<") query.label.push(`${name.slice(6)}=${value}`);
    else if (name.startsWith("arg.") && sign !== "<") readArgument(name.slice(4), value, query, problems);
    else if (name === "due" && sign === "<") readDue(value, query, problems);
    else if (sign === ":" && FIELDS[name] && known.has(FIELDS[name])) query[FIELDS[name]] = value;
    else if (!/^(queue|state|due)$/.test(name) && sign === ":") query.id_prefix = plain(word);
    else problems.push(`${word}: not understood; write ${hintsFor(known).join(" ")}`);
  }
  return { query, problems };
}

function readStates(value, query, problems) {
  for (const state of value.split(",").filter(Boolean)) {
    if (STATES.includes(state)) query.state.push(state);
    else problems.push(`state:${state}: must be one of ${STATES.join(", ")}`);
  }
}

function readArgument(path, value, query, problems) {
  if (/^[^."'\\[\]$*]+(\.[^."'\\[\]$*]+)*$/.test(path)) query.argument.push(`${path}=${value}`);
  else problems.push(`arg.${path}: write names with dots between them, such as arg.customer.id=7 or arg.items.0=x`);
}

function readDue(value, query, problems) {
  const found = /^(\d+)([smhdw])$/.exec(value);
  const at = found ? serverNow() + Number(found[1]) * LENGTHS[found[2]] * 1000 : Date.parse(value);
  // To the minute, so that the pages of one list ask the same question.
  if (Number.isNaN(at)) problems.push(`due<${value}: write a length such as 15m, 1h, 2d, or a time`);
  else query.due_before = new Date(Math.ceil(at / 60000) * 60000).toISOString();
}

const hintsFor = (known) => Object.keys(HINTS).filter((word) => {
  const field = FIELDS[word.slice(0, -1)];
  return !field || known.has(field);
});

/** What may stand at the end of the text: [{text, hint}], each the whole text after it is chosen. */
export function complete(text, { known, queues = [], labels = [] }) {
  const last = /\S*$/.exec(text)[0];
  const before = text.slice(0, text.length - last.length);
  const offers = [];
  const add = (word, hint = "") => {
    if (word.startsWith(last) && word !== last) offers.push({ word, text: before + word, hint });
  };
  for (const word of hintsFor(known)) add(word, HINTS[word]);
  if (last.startsWith("state:")) for (const state of STATES) add(`state:${state}`);
  if (last.startsWith("queue:")) for (const queue of queues) add(`queue:${queue}`);
  if (last.startsWith("label.")) for (const label of labels) add(`label.${label}`);
  if (last.startsWith("due<")) for (const length of ["5m", "1h", "1d", "7d"]) add(`due<${length}`);
  return offers.slice(0, 8);
}
