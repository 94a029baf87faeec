// The shell: who is signed in, where the reader is, and the keys.

import { get, session, setServerNow } from "./api.js";
import { go, link, readPlace } from "./routing.js";
import { Failure, html, render, useEffect, useState } from "./ui.js";
import { SignIn } from "./views/sign_in.js";
import { Keys } from "./views/keys.js";
import { VIEWS } from "./views/all.js";

/** What the server can do: its routes, and the fields that each reads. */
function understand(openapi) {
  const fields = (path, method = "get") =>
    new Set((openapi.paths[path]?.[method]?.parameters || []).map((parameter) => parameter.name));
  return { openapi, has: (path) => path in openapi.paths, fields };
}

async function open() {
  const me = await get("v1/me");
  const [health, openapi, installations] = await Promise.all([get("health"), get("openapi.json"), get("v1/installations")]);
  setServerNow(health.now);
  const can = (scope) => me.scopes.includes(scope) || me.scopes.includes("admin");
  return { me, can, canOperate: can("operate"), health, installations, ...understand(openapi) };
}

function usePlace() {
  const [place, setPlace] = useState(readPlace());
  const [first] = useState(location.hash);
  useEffect(() => {
    const changed = () => setPlace(readPlace());
    addEventListener("hashchange", changed);
    if (location.hash !== first) changed(); // it came before anybody listened
    return () => removeEventListener("hashchange", changed);
  }, []);
  return place;
}

function useTheme() {
  const isDark = () => {
    const chosen = document.documentElement.dataset.theme;
    return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  };
  const [dark, setDark] = useState(isDark());
  const toggle = () => {
    const next = dark ? "light" : "dark";
    document.documentElement.dataset.theme = next;
    localStorage.setItem("gnomon.theme", next);
    setDark(!dark);
  };
  return [dark, toggle];
}

const isTyping = (target) => target.closest?.("input, textarea, select, [contenteditable]");

let wentAt = 0; // when `g` was pressed; the shell is drawn anew all the time

function useKeys(views, showKeys) {
  useEffect(() => {
    const pressed = (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
      if (event.key === "/") {
        const field = document.querySelector("[data-search]");
        if (field) { event.preventDefault(); field.focus(); } else go(["actions"]);
      } else if (event.key === "?") showKeys(true);
      else if (event.key === "n") go(["new"]);
      else if (event.key === "g") wentAt = Date.now();
      else if (Date.now() - wentAt < 1500) {
        const view = views.find((item) => item.letter === event.key);
        if (view) { wentAt = 0; go([view.name]); }
      }
    };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, [views.length]);
}

/** The same view of another installation. A page of a list begins elsewhere there. */
function elsewhere(url, { parts, query }) {
  const kept = Object.fromEntries([...query].filter(([name]) => !["after", "before", "looked"].includes(name)));
  return `${url.replace(/\/?$/, "/")}${link(parts, kept)}`;
}

/** Which installation this is, on every page, so that nobody acts on the wrong one; and the way to others. */
function Installations({ installations: { name, color, others }, place }) {
  if (!name && !others.length) return null;
  return html`<div class="installations">
    ${name && html`<strong class=${`installation ${color}`}>${name}</strong>`}
    ${others.length > 0 && html`<details><summary>Others</summary><ul>${others.map((one) => html`<li><a rel="noreferrer" href=${elsewhere(one.url, place)}>${one.name}</a></li>`)}</ul></details>`}
  </div>`;
}

function Shell({ server }) {
  const place = usePlace();
  const [dark, toggleTheme] = useTheme();
  const [keys, showKeys] = useState(false);
  const views = VIEWS.filter((view) => !view.needs || server.has(view.needs));
  useKeys(views, showKeys);
  const name = place.parts[0] || "overview";
  const view = views.find((item) => item.name === name) || views[0];
  const current = view.under || view.name;
  useEffect(() => { document.title = `${place.parts[1] || view.title} · ${server.installations.name || "Gnomon"}`; }, [place, view]);
  const signOut = () => { session.signOut(); location.reload(); };
  return html`<div class="shell">
    <header>
      <a class="brand" href="#/"><img src="console/icon.svg" alt="" width="20" height="20" /> Gnomon</a>
      <${Installations} installations=${server.installations} place=${place} />
      <nav aria-label="Views">${views.filter((item) => !item.under).map((item) => html`
        <a href=${link([item.name])} aria-current=${item.name === current ? "page" : undefined}>${item.title}</a>`)}</nav>
      <div class="who">
        <span class="dim" title=${`scopes: ${server.me.scopes.join(", ")}`}>${server.me.name}${server.can("write") ? "" : " · read only"}</span>
        <button type="button" class="quiet" onClick=${toggleTheme} aria-label=${dark ? "Light theme" : "Dark theme"}>${dark ? "☀" : "☾"}</button>
        <button type="button" class="quiet" onClick=${() => showKeys(true)} aria-label="Keys">?</button>
        ${session.token && html`<button type="button" class="quiet" onClick=${signOut}>Sign out</button>`}
      </div>
    </header>
    <main id="main" key=${view.name}><${view.view} server=${server} parts=${place.parts.slice(1)} query=${place.query} /></main>
    ${keys && html`<${Keys} views=${views} onClose=${() => showKeys(false)} />`}
  </div>`;
}

function Console() {
  const [state, setState] = useState({});
  const start = () => {
    setState({});
    open().then((server) => setState({ server }), (error) => setState({ error }));
  };
  useEffect(() => {
    session.whenSignedOut((problem) => setState({ error: problem }));
    start();
  }, []);
  const { server, error } = state;
  if (server) return html`<${Shell} server=${server} />`;
  if (error?.status === 401 || error?.status === 403) return html`<${SignIn} error=${session.token && error} onToken=${start} />`;
  if (error) return html`<main class="alone"><h1>Gnomon</h1><${Failure} error=${error} again=${start} /></main>`;
  return html`<main class="alone"><p class="dim" aria-busy="true">Loading …</p></main>`;
}

render(html`<${Console} />`, document.getElementById("app"));
