// Asks for the API key that the server wants.

import { hasKey, keyFor, setKey } from './access.js';
import { html, useState } from './html.js';

const titleOf = (header) => (
  header === 'authorization' ? 'API key' : `Value of the header ${header}`
);

/** The headers that a key may stand in, one of them for API keys. */
export const headersOf = (about) => [
  ...(about.keys ? ['authorization'] : []),
  ...(about.key_headers ?? []).filter((one) => !['authorization', 'x-api-key'].includes(one)),
];

export function KeyFields({ headers, label = 'Use it' }) {
  return headers.map((header) => html`<${KeyField} key=${header} header=${header} label=${label} />`);
}

function KeyField({ header, label }) {
  const [typed, setTyped] = useState(keyFor(header));
  const submit = (event) => {
    event.preventDefault();
    setKey(header, typed);
  };
  const id = `key-${header}`;
  return html`<form class="line" onSubmit=${submit}>
    <label for=${id}>${titleOf(header)}</label>
    <input id=${id} type="password" autocomplete="off" spellcheck="false" value=${typed}
      onInput=${(event) => setTyped(event.target.value)} />
    <button class="main">${label}</button>
    ${keyFor(header) && html`<button type="button" onClick=${() => {
      setTyped('');
      setKey(header, '');
    }}>Forget it</button>`}
  </form>`;
}

export function KeyForm({ about, status, text }) {
  const headers = headersOf(about);
  const title = hasKey() ? 'This key does not open the page' : 'This server needs a key';
  return html`<section class="card narrow">
    <h1 tabindex="-1">${title}</h1>
    <p role="alert">${status}: ${text}</p>
    <p class="quiet">The key is kept in this tab until you close it, and sent only to this server.</p>
    <${KeyFields} headers=${headers.length ? headers : ['authorization']} />
  </section>`;
}
