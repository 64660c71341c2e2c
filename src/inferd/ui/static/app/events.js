// The server's events, read with fetch(): EventSource could not send a key.

import { accessHeaders, onAccess } from './access.js';
import { call, errorOf } from './calls.js';
import { useEffect, useReducer, useRef } from './html.js';
import { parseJson } from './json.js';
import { ofPage } from './place.js';

const LONGEST_MS = 15_000;
const SILENCE_MS = 45_000; // the server says something every 15 s
const HIDDEN_MS = 20_000; // a page that nobody sees asks for nothing

/** Call `each(name, data)` for every event of a body, until it ends. Throws where it breaks. */
export async function readEvents(response, each, heard = () => {}) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    heard();
    const blocks = (rest + value).replaceAll('\r\n', '\n').split('\n\n');
    rest = blocks.pop();
    for (const block of blocks) readBlock(block, each);
  }
}

function readBlock(block, each) {
  let name = 'message';
  const data = [];
  for (const line of block.split('\n')) {
    const [, field, value] = /^([a-z]*): ?(.*)$/s.exec(line) ?? [];
    if (field === 'event') name = value;
    if (field === 'data') data.push(value);
  }
  if (data.length) each(name, parseJson(data.join('\n')));
}

/** The first event of each topic, by its name. Throws CallError. */
export async function firstEvents(query) {
  const found = {};
  const response = await call(ofPage(`events?${new URLSearchParams({ ...query, once: 1 })}`));
  await readEvents(response, (name, data) => { found[name] = data; });
  return found;
}

/** A stream that comes back when it breaks; `onState` hears how it is. */
class EventStream {
  constructor(url, onEvent, onState) {
    Object.assign(this, { url, onEvent, onState, tries: 0, timer: 0, over: false });
    this.run();
  }

  close() {
    this.over = true;
    clearTimeout(this.timer);
    this.abort?.abort();
  }

  async run() {
    this.abort = new AbortController();
    let why;
    let status = 0;
    try {
      const response = await fetch(this.url, {
        headers: { ...accessHeaders(), accept: 'text/event-stream' },
        signal: this.abort.signal,
        cache: 'no-store',
      });
      if (!response.ok) throw await errorOf(response);
      await this.read(response);
      why = 'The server ended the stream of events.';
    } catch (error) {
      if (this.over) return;
      if ([401, 403].includes(error.status)) {
        this.onState({ kind: 'denied', status: error.status, text: error.message });
        return;
      }
      status = error.status;
      why = error.status ? error.message : 'The connection to the server is lost.';
    }
    if (!this.over) this.wait(why, status);
  }

  async read(response) {
    let watch;
    const heard = () => {
      clearTimeout(watch);
      watch = setTimeout(() => this.abort.abort(), SILENCE_MS);
    };
    heard();
    this.onEvent('open', null); // what comes now begins anew
    try {
      await readEvents(response, (name, data) => {
        this.tries = 0;
        this.onState({ kind: 'live' });
        this.onEvent(name, data);
      }, heard);
    } finally {
      clearTimeout(watch);
    }
  }

  wait(why, status) {
    // Pages that lost a server together do not all come back together.
    const pause = Math.min(LONGEST_MS, 1000 * 2 ** this.tries) * (0.75 + Math.random() / 2);
    this.tries += 1;
    this.onState({ kind: 'lost', status, text: why, until: Date.now() + pause });
    this.timer = setTimeout(() => this.run(), pause);
  }
}

/**
 * Follow topics while the component is there and the page is seen. `reduce(state, name, data)`
 * makes the next state; returns the state and how the stream is.
 */
export function useEvents(query, reduce, initial) {
  const url = ofPage(`events?${new URLSearchParams(query)}`);
  const kept = useRef(null);
  if (kept.current?.url !== url) {
    kept.current = { url, state: initial(), link: { kind: 'connecting' } };
  }
  const [, redraw] = useReducer((number) => number + 1, 0);
  useEffect(() => {
    const here = kept.current;
    let stream = null;
    let hiding = 0;
    const open = () => {
      stream ??= new EventStream(url, (name, data) => {
        here.state = reduce(here.state, name, data);
        redraw();
      }, (link) => {
        if (link.kind === 'live' && here.link.kind === 'live') return;
        here.link = link;
        redraw();
      });
    };
    const close = () => {
      stream?.close();
      stream = null;
    };
    const seen = () => {
      clearTimeout(hiding);
      if (document.hidden) hiding = setTimeout(close, HIDDEN_MS);
      else open();
    };
    const stop = onAccess(() => {
      close();
      seen();
    });
    document.addEventListener('visibilitychange', seen);
    seen();
    return () => {
      document.removeEventListener('visibilitychange', seen);
      clearTimeout(hiding);
      stop();
      close();
    };
  }, [url]);
  return [kept.current.state, kept.current.link];
}
