// Calls of the public REST API. The token lives in this tab only, and goes to this host only.

const BASE = new URL(".", document.baseURI);
const TOKEN = "gnomon.token";

/** What the server refused, as its problem document says. */
export class Problem extends Error {
  constructor(status, body) {
    super(body.detail || body.title || `the server answered ${status}`);
    this.status = status;
    this.code = body.code || "";
    this.path = body.path || "";
  }
}

let onSignedOut = () => {};
let clockOffset = 0;

export const session = {
  get token() { return sessionStorage.getItem(TOKEN) || ""; },
  signIn(token) { sessionStorage.setItem(TOKEN, token); },
  signOut() { sessionStorage.removeItem(TOKEN); },
  whenSignedOut(callback) { onSignedOut = callback; },
};

/** The server's time, as far as its last answer tells. */
export const serverNow = () => Date.now() + clockOffset;
export const setServerNow = (text) => { clockOffset = Date.parse(text) - Date.now(); };

/** Where a route is; relative to the page, so that a path prefix before it does no harm. */
export function address(path, query) {
  const url = new URL(path.replace(/^\//, ""), BASE);
  for (const [name, value] of Object.entries(query || {})) {
    for (const item of Array.isArray(value) ? value : [value]) {
      if (item !== undefined && item !== null && item !== "") url.searchParams.append(name, item);
    }
  }
  return url;
}

async function send(method, path, { query, body, headers, signal, type } = {}) {
  const sent = { ...headers, "Gnomon-Face": "console" };
  if (session.token) sent.Authorization = `Bearer ${session.token}`;
  if (body !== undefined) sent["Content-Type"] = type || "application/json";
  let answer;
  try {
    answer = await fetch(address(path, query), {
      method, headers: sent, signal, cache: "no-store", credentials: "omit", redirect: "error",
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, { detail: "the server cannot be reached", code: "unreachable" });
  }
  if (answer.ok) return answer;
  const problem = new Problem(answer.status, await answer.json().catch(() => ({})));
  if (answer.status === 401) onSignedOut(problem);
  throw problem;
}

/** A call and its answer in JSON, with the ETag if there is one. */
export async function call(method, path, options) {
  const answer = await send(method, path, options);
  const data = answer.status === 204 ? null : await answer.json();
  return { data, etag: answer.headers.get("ETag"), status: answer.status };
}

export const get = async (path, query, signal) => (await call("GET", path, { query, signal })).data;

/**
 * Server-sent events of a path, read by hand: EventSource can send no token. `onEvent` gets each
 * event's data. Ends when the server ends the stream; throws when it breaks.
 */
export async function events(path, onEvent, { signal, onOpen } = {}) {
  const answer = await send("GET", path, { signal });
  onOpen?.();
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    const parts = text.split("\n\n");
    text = parts.pop();
    for (const part of parts) {
      const data = part.split("\n").filter((line) => line.startsWith("data: "));
      if (data.length) onEvent(JSON.parse(data.map((line) => line.slice(6)).join("\n")));
    }
  }
}

const RETRY_MS_MAX = 15000;

/** As `events`, again and again until `isOver` says so; `onState` hears live, waiting, over. */
export function follow(path, onEvent, { isOver, onState }) {
  const abort = new AbortController();
  let wait = 500;
  const again = async () => {
    while (!abort.signal.aborted) {
      try {
        await events(path, onEvent, {
          signal: abort.signal, onOpen: () => { wait = 500; onState("live"); },
        });
      } catch (error) {
        if (abort.signal.aborted) return;
        if ([401, 403, 404].includes(error.status)) return onState("over");
      }
      if (isOver()) return onState("over");
      onState("waiting");
      await new Promise((resolve) => setTimeout(resolve, wait));
      wait = Math.min(wait * 2, RETRY_MS_MAX);
    }
  };
  again();
  return () => abort.abort();
}
