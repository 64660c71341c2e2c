// A model's configuration in force; what its author wrote is told from what the server filled in.

import { html, useState } from './html.js';
import { writeJson } from './json.js';
import { saveFile } from './parts.js';

const isEmpty = (value) => value === '' || value === null || value === 0 || value === '0' || value === false
  || (Array.isArray(value) ? value.length === 0 : typeof value === 'object' && Object.values(value).every(isEmpty));

const LINE = 76;

/** `value` without what is empty in it. */
function pruned(value) {
  if (Array.isArray(value)) return value.map(pruned);
  if (value === null || typeof value !== 'object') return value;
  return Object.fromEntries(Object.entries(value).filter(([, one]) => !isEmpty(one)).map(([name, one]) => [name, pruned(one)]));
}

/** JSON with what is short on one line. */
function laid(value, indent = '') {
  const line = writeJson(value);
  if (line.length + indent.length <= LINE || value === null || typeof value !== 'object') {
    return line.replaceAll(/("(?:[^"\\]|\\.)*")|([,:])/g, (_, text, sign) => text ?? `${sign} `);
  }
  const inner = `${indent}  `;
  const parts = Array.isArray(value) ? value.map((one) => inner + laid(one, inner))
    : Object.entries(value).map(([name, one]) => `${inner}${JSON.stringify(name)}: ${laid(one, inner)}`);
  const [open, close] = Array.isArray(value) ? '[]' : '{}';
  return `${open}\n${parts.join(',\n')}\n${indent}${close}`;
}

/** `written`: the names of the fields that the model's file has; null where nobody knows. */
export function ConfigView({ config, written }) {
  const [all, setAll] = useState(false);
  const own = written ? new Set(written) : null;
  const fields = Object.entries(config).filter(([name, value]) => all || own?.has(name) || !isEmpty(value));
  const save = () => saveFile(`${config.name}.config.json`, writeJson(config, 2), 'application/json');
  return html`<section class="card" aria-labelledby="config">
    <div class="bar-head"><h2 id="config">Configuration in force</h2>
      <div class="buttons"><label class="check small"><input type="checkbox" checked=${all} onChange=${() => setAll(!all)} />empty fields, too</label>
        <button onClick=${save}>Download</button></div></div>
    ${own && html`<p class="small quiet">${own.size ? html`Fields marked <span class="filled-mark">+</span> are not in the model’s configuration file: the server filled them in.`
      : 'The model has no configuration file: the server filled in all of this.'}</p>`}
    <dl class="config">${fields.map(([name, value]) => html`<div key=${name} class=${own && !own.has(name) ? 'filled' : ''}>
      <dt>${own && html`<span class="filled-mark" aria-hidden="true">${own.has(name) ? '' : '+'}</span>`}<code>${name}</code>
        ${own && !own.has(name) && html`<span class="visually-hidden">, filled in by the server</span>`}</dt>
      <dd><pre tabindex=${typeof value === 'object' && !isEmpty(value) ? 0 : undefined}>${typeof value === 'object' ? laid(all ? value : pruned(value)) : String(value)}</pre></dd></div>`)}</dl>
  </section>`;
}
