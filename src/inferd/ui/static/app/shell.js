// What surrounds every view: the state of the server, the way to each view, and what went wrong.

import { onAccess } from './access.js';
import { about } from './calls.js';
import { useEvents } from './events.js';
import { NOTHING, span } from './format.js';
import { html, useEffect, useReducer, useRef, useState } from './html.js';
import { KeyForm } from './key_form.js';
import { changeOverview, emptyOverview } from './overview_state.js';
import { link, readRoute } from './place.js';
import { Notes, useNotes } from './notes.js';
import { onToken, tokenResult } from './token.js';
import { Overview } from '../views/overview.js';

const VIEWS = [
  ['', 'Overview'], ['models', 'Models'], ['try', 'Try it'], ['requests', 'Requests'],
  ['logs', 'Logs'], ['settings', 'Settings'],
];
// Only the first view is there from the start; the others come when somebody goes there.
const LATER = {
  models: () => import('../views/models.js'),
  model: () => import('../views/model.js'),
  try: () => import('../views/try.js'),
  requests: () => import('../views/requests.js'),
  logs: () => import('../views/logs.js'),
  settings: () => import('../views/settings.js'),
};

/** The route, and again whenever the address changes. */
function useRoute() {
  const [hash, setHash] = useState(location.hash);
  useEffect(() => {
    const changed = () => setHash(location.hash);
    addEventListener('hashchange', changed);
    return () => removeEventListener('hashchange', changed);
  }, []);
  return readRoute(hash);
}

/** What GET ui/about says; {} until it is known. */
function useAbout() {
  const [known, setKnown] = useState({});
  useEffect(() => {
    let over = false;
    let timer;
    const ask = () => about().then((one) => over || setKnown(one), () => {
      if (!over) timer = setTimeout(ask, 3000);
    });
    ask();
    return () => {
      over = true;
      clearTimeout(timer);
    };
  }, []);
  return known;
}

export function Shell() {
  const { parts, query } = useRoute();
  const known = useAbout();
  const [overview, state] = useEvents({ topics: 'overview' }, changeOverview, emptyOverview);
  const notes = useNotes();
  const [, redraw] = useReducer((number) => number + 1, 0);
  useEffect(() => onAccess(redraw), []);
  useEffect(() => onToken(() => {
    const { ok, text } = tokenResult();
    notes.add(text, ok ? 'good' : 'bad');
  }), []);

  const view = parts[0] ?? '';
  const heading = useRef(null);
  const shown = parts.join('/');
  const first = useRef(true);
  const moved = useRef(false);
  useEffect(() => {
    if (!first.current) moved.current = true;
    first.current = false;
    scrollTo(0, 0);
    showCurrent(document.querySelector('.top nav'));
  }, [shown]);
  useEffect(() => {
    // A view that is read from the server first has its title later.
    const title = heading.current?.querySelector('h1:not([aria-busy])');
    if (!moved.current || !title) return;
    moved.current = false;
    title.focus({ preventScroll: true });
  });

  const skip = (event) => {
    event.preventDefault();
    (heading.current?.querySelector('h1') ?? heading.current)?.focus();
  };
  return html`
    <a class="skip" href="#main" onClick=${skip}>Skip to the content</a>
    <header class="top"><div class="top-in">
      <a class="brand" href="#/"><img src="static/icon.svg" alt="" width="22" height="22" />inferd</a>
      <nav aria-label="Views"><ul class="tabs">
        ${VIEWS.map(([name, title]) => html`<li key=${name}>
          <a href=${link(name)} aria-current=${name === view ? 'page' : undefined}>${title}</a></li>`)}
      </ul></nav>
      <${ServerState} tick=${overview.tick} state=${state} />
    </div></header>
    <${Banner} state=${state} />
    <main class="page" id="main" tabindex="-1" ref=${heading}>
      ${state.kind === 'denied' && view !== 'settings'
        ? html`<${KeyForm} about=${known} status=${state.status} text=${state.text} />`
        : html`<${View} name=${view} parts=${parts} query=${query} overview=${overview} onLoaded=${redraw}
            about=${known} notes=${notes} />`}
    </main>
    <${Notes} notes=${notes} />
    <footer class="foot">${footer(overview.tick)}</footer>`;
}

// Not by scrollIntoView: in Chromium the Tab key then goes on from there, past the skip link.
function showCurrent(strip) {
  const current = strip.querySelector('[aria-current]')?.getBoundingClientRect();
  const seen = strip.getBoundingClientRect();
  if (current) strip.scrollLeft += current.left + current.width / 2 - seen.left - seen.width / 2;
}

function View({ name, parts, onLoaded, ...rest }) {
  const which = name === 'models' && parts.length > 1 ? 'model' : name;
  const loaded = useRef({});
  const [, redraw] = useReducer((number) => number + 1, 0);
  const [failed, setFailed] = useState('');
  useEffect(() => {
    if (!LATER[which] || loaded.current[which]) return;
    LATER[which]().then((module) => {
      loaded.current[which] = module.default;
      setFailed('');
      redraw();
      onLoaded();
    }, () => setFailed('This view could not be read from the server. Load the page again.'));
  }, [which]);
  if (which === '') return html`<${Overview} ...${rest} />`;
  if (!LATER[which]) {
    return html`<h1 tabindex="-1">There is no such view</h1>
      <p>Go to the <a href="#/">overview</a>.</p>`;
  }
  const Loaded = loaded.current[which];
  if (failed) return html`<p class="bad-text" role="alert">${failed}</p>`;
  if (!Loaded) return html`<h1 tabindex="-1" class="quiet" aria-busy="true">…</h1>`;
  const [, model, version] = parts;
  return html`<${Loaded} key=${`${which}/${model}/${version}`} model=${model} version=${version}
    ...${rest} />`;
}

const KINDS = {
  ready: 'good', starting: 'wait', draining: 'wait', overloaded: 'bad', 'not ready': 'bad',
};

function ServerState({ tick, state }) {
  if (state.kind === 'lost') {
    return html`<span class="state bad"><i class="dot" aria-hidden="true"></i>no connection</span>`;
  }
  if (!tick) return html`<span class="state wait"><i class="dot" aria-hidden="true"></i>connecting</span>`;
  const { server } = tick;
  return html`<span class=${`state ${KINDS[server.state] ?? 'bad'}`} title=${server.why || undefined}>
    <i class="dot" aria-hidden="true"></i>${server.state}</span>`;
}

/** Says once that the connection broke, and shows when it is tried again. */
function Banner({ state }) {
  const [, redraw] = useReducer((number) => number + 1, 0);
  const lost = state.kind === 'lost';
  useEffect(() => {
    if (!lost) return undefined;
    const timer = setInterval(redraw, 1000);
    return () => clearInterval(timer);
  }, [lost]);
  const left = lost ? Math.max(0, Math.ceil((state.until - Date.now()) / 1000)) : 0;
  return html`<div class=${lost ? 'banner' : ''}>
    <p role="status">${lost ? state.text : ''}</p>
    ${lost && html`<p aria-hidden="true">What you see is from before. ${left
      ? `Trying again in ${left} s.` : 'Trying again…'}</p>`}
  </div>`;
}

function footer(tick) {
  if (!tick) return NOTHING;
  const { server } = tick;
  return html`${server.name} ${server.version}${server.compiled ? ', compiled' : ''}
    ${server.id ? html`, <bdi>${server.id}</bdi>` : ''}, up for ${span(tick.time - server.started)}`;
}
