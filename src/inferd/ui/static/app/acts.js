// Loading, unloading and changing settings: asked before, and told why where it is not possible.

import { hasKey, isUnlocked } from './access.js';
import { act, unlock } from './calls.js';
import { Dialog } from './dialog.js';
import { html, useState } from './html.js';

const MODELS = {
  load: ['Load', 'The server reads the model from its repository and serves it.'],
  unload: ['Unload', 'Requests under way are answered; later ones are refused until it is loaded again.'],
  reload: ['Reload', 'The server reads the model again. The old one answers until the new one is ready.'],
};

/** Why the page may not act; '' where it may try. */
export function whyNot(about) {
  if (about.mode === undefined) return 'The server has not yet said what this page may do.';
  if (about.mode !== 'full') {
    return 'This page only shows. Start the server with --ui full to act from here.';
  }
  return '';
}

const isLocked = () => !isUnlocked() && !hasKey();

/** A field for the token, shown where the page is locked. `typed` and `setTyped` keep it. */
function TokenField({ typed, setTyped }) {
  return html`<div class="field">
    <label for="token">Token, as the server printed it when it started</label>
    <input id="token" type="password" autocomplete="off" value=${typed} required
      onInput=${(event) => setTyped(event.target.value)} />
  </div>`;
}

/** Ask, then act. `what` is the body of the act. */
export function ActDialog({ title, label, what, about, notes, close, danger, done, children }) {
  const [typed, setTyped] = useState('');
  const [locked, setLocked] = useState(isLocked);
  const reason = whyNot(about);
  if (reason) {
    return html`<${Dialog} title=${title} close=${close}><p>${reason}</p><//>`;
  }
  const go = async () => {
    if (locked) {
      await unlock(typed);
      setLocked(false);
    }
    const text = await act(what).catch((error) => {
      setLocked(isLocked());
      throw error;
    });
    notes.add(text, 'good');
    done?.();
  };
  return html`<${Dialog} title=${title} label=${label} act=${go} close=${close} danger=${danger}>
    ${children}
    ${locked && html`<${TokenField} typed=${typed} setTyped=${setTyped} />`}
  <//>`;
}

/** The buttons of a model. */
export function ModelActs({ model, state, about, notes }) {
  const [open, setOpen] = useState('');
  const offered = state === 'READY' ? ['reload', 'unload'] : ['load'];
  const [label, words] = MODELS[open] ?? [];
  return html`${offered.map((name) => html`<button key=${name} onClick=${() => setOpen(name)}>
      ${MODELS[name][0]}</button>`)}
    ${open && html`<${ActDialog} title=${html`${label} <bdi>${model}</bdi>?`} label=${label}
      what=${{ act: open, model }} about=${about} notes=${notes} danger=${open === 'unload'}
      close=${() => setOpen('')}><p>${words}</p><//>`}`;
}
