// Values become words: times, lengths of time, effects, schedules. No markup here.

const UNITS = [["y", 31536000], ["d", 86400], ["h", 3600], ["m", 60], ["s", 1]];

/** Seconds as people say them: `3d 4h`, `12m 5s`, `0.35 s`. */
export function spell(seconds) {
  const size = Math.abs(seconds);
  if (size < 0.001) return "0 s";
  if (size < 1) return `${Math.round(size * 1000)} ms`;
  if (size < 10) return `${Number(size.toFixed(1))} s`;
  if (size < 59.5) return `${Math.round(size)} s`;
  const shown = [];
  let left = Math.round(size);
  for (const [unit, length] of UNITS) {
    const count = Math.floor(left / length);
    if (count || shown.length) shown.push([count, unit]);
    left -= count * length;
  }
  return shown.slice(0, 2).filter(([count]) => count).map(([count, unit]) => `${count}${unit}`).join(" ");
}

/** Seconds of an ISO 8601 length of time (`PT5M`, `P1DT2H`), as the API answers them. */
export function secondsOf(text) {
  const found = /^(-)?P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:([\d.]+)S)?)?$/.exec(text || "");
  if (!found) return NaN;
  const [, minus, days = 0, hours = 0, minutes = 0, rest = 0] = found;
  const total = days * 86400 + hours * 3600 + minutes * 60 + Number(rest);
  return minus ? -total : total;
}

export const spellDuration = (text) => (text ? spell(secondsOf(text)) : "");

/** `in 5m`, `30 s ago`. */
export function relative(moment, now) {
  const seconds = (Date.parse(moment) - now) / 1000;
  if (Math.abs(seconds) < 1) return "now";
  const words = spell(Math.round(seconds));
  return seconds > 0 ? `in ${words}` : `${words} ago`;
}

const two = (number) => String(number).padStart(2, "0");

/** In the reader's zone: `2026-11-17 09:20:31`. */
export function local(moment) {
  const at = new Date(moment);
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} `
    + `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

export const number = (value) => (value === undefined || value === null ? "" : value.toLocaleString("en-US"));

/** A count that ends at a limit. */
export const atLeast = (count, limit) => (count >= limit ? `${number(limit)}+` : number(count));

/** A number that is not exact anyway. */
export const about = (value) => `≈ ${value.toLocaleString("en-US", { notation: "compact", maximumSignificantDigits: 2 })}`;

const SIZES = ["B", "kB", "MB", "GB", "TB"];

export function bytes(count) {
  let size = count, unit = 0;
  while (size >= 1000 && unit < SIZES.length - 1) { size /= 1000; unit += 1; }
  return `${unit && size < 100 ? size.toFixed(1) : Math.round(size)} ${SIZES[unit]}`;
}

/** What an action does, in a few words. */
export function effectWords(effect) {
  switch (effect?.type) {
    case "http": return `${effect.method} ${effect.url}`;
    case "python": return effect.function;
    case "rabbitmq": return `${effect.target} ← ${effect.exchange ? `${effect.exchange}/` : ""}${effect.routing_key}`;
    case "kafka": return `${effect.target} ← ${effect.topic}`;
    case "grpc": return `${effect.target} ${effect.handler}`;
    case "sql": return `${effect.target}: ${effect.statement}`;
    case "push": return `${effect.target} → ${effect.user || effect.device || ""}`;
    case "mock": return effect.fail ? `fails ${effect.fail}×` : effect.answer || "succeeds";
    default: return "";
  }
}

/** When an action fires, in a few words. */
export function policyWords(policy) {
  switch (policy?.type) {
    case "periodic": return `every ${spellDuration(policy.period)}`;
    case "cron": return `${policy.expression} ${policy.timezone || "UTC"}`;
    default: return "once";
  }
}

export const isRecurring = (spec) => ["periodic", "cron"].includes(spec.policy?.type);

/** Quoted for a shell. */
export const quoted = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);
