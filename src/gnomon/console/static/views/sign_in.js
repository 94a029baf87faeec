// Sign in with a token. It is kept for this tab alone.

import { session } from "../api.js";
import { Failure, html, useState } from "../ui.js";

export function SignIn({ error, onToken }) {
  const [token, setToken] = useState("");
  const submit = (event) => {
    event.preventDefault();
    session.signIn(token.trim());
    onToken();
  };
  return html`<main class="alone">
    <h1>Gnomon</h1>
    <form onSubmit=${submit} class="stack">
      <p>This server wants a token. It stays in this tab, and goes to this server only.</p>
      <label>Token <input type="password" name="token" autocomplete="off" required autofocus placeholder="gnomon_…"
        value=${token} onInput=${(event) => setToken(event.target.value)} /></label>
      <div class="row"><button type="submit" class="main">Sign in</button></div>
      <${Failure} error=${error} />
      <p class="dim">An operator makes one: <code>gnomon token create NAME --scope read</code>. With <code>--scope write</code> it may act as well.</p>
    </form>
  </main>`;
}
