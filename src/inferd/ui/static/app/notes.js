// Short notes at the foot of the page: what an act did, or why it did not.

import { html, useReducer, useRef } from './html.js';

const LIFE_MS = 8000;

export function useNotes() {
  const [, redraw] = useReducer((number) => number + 1, 0);
  const kept = useRef(null);
  kept.current ??= {
    list: [],
    add(text, kind = '') {
      const note = { text, kind, key: performance.now() };
      this.list = [...this.list.slice(-2), note];
      redraw();
      if (kind !== 'bad') setTimeout(() => this.remove(note), LIFE_MS);
    },
    remove(note) {
      this.list = this.list.filter((one) => one !== note);
      redraw();
    },
  };
  return kept.current;
}

export const Notes = ({ notes }) => html`<div class="notes" role="status">
  ${notes.list.map((note) => html`<div key=${note.key} class=${`note ${note.kind}`}>
    <p>${note.text}</p>
    <button class="plain" onClick=${() => notes.remove(note)} aria-label="Close this note">✕</button>
  </div>`)}</div>`;
