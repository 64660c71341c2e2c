// A question before anything is changed.

import { html, useEffect, useRef, useState } from './html.js';

/**
 * A dialog over the page. `children` is what it says; with `act`, an async function, it has a
 * button `label` that does it, and stays open with the reason where that fails.
 */
export function Dialog({ title, label, act, close, danger, children }) {
  const ref = useRef(null);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState('');
  useEffect(() => {
    const before = document.activeElement;
    const dialog = ref.current;
    dialog.showModal();
    return () => {
      dialog.close(); // while it is open, nothing else can have the focus
      before?.focus?.();
    };
  }, []);
  const go = async (event) => {
    event.preventDefault();
    if (!act) return close();
    setBusy(true);
    setError('');
    try {
      await act();
      close();
    } catch (failed) {
      setError(failed.message);
      setBusy(false);
    }
    return undefined;
  };
  return html`<dialog ref=${ref} aria-labelledby="dialog-title" onClose=${close}
      onCancel=${(event) => busy && event.preventDefault()}>
    <form onSubmit=${go}>
      <h2 id="dialog-title">${title}</h2>
      ${children}
      <p role="alert" class="bad-text">${error}</p>
      <div class="buttons">
        <button type="button" onClick=${close} disabled=${busy}>${act ? 'Cancel' : 'Close'}</button>
        ${act && html`<button class=${danger ? 'danger' : 'main'} disabled=${busy}>
          ${busy ? 'Working…' : label}</button>`}
      </div>
    </form>
  </dialog>`;
}
