// All models as a table that stays quick with a thousand: only rows in sight are in the page.

import { repositoryIndex } from '../app/calls.js';
import { useEvents } from '../app/events.js';
import { ago, bytes, count, duration, figures, NOTHING, percent, plural, rate } from '../app/format.js';
import { html, useEffect, useMemo, useReducer, useRef, useState } from '../app/html.js';
import { cacheShare, changeModels, emptyModels, keyOf, meanBatch, pick } from '../app/models_state.js';
import { Choice, isFailed, NEVER_LOADED, PhaseBar, PhaseLegend, Search, StatePill } from '../app/parts.js';
import { link } from '../app/place.js';

const ROW_PX = 52;
const AROUND = 8; // rows kept above and below those in sight

const ONLY = {
  all: () => true, ready: (row) => row.state === 'READY', failed: isFailed,
  other: (row) => row.state !== 'READY' && !isFailed(row),
};

const dash = (value, format) => (value < 0 ? NOTHING : format(value));

// name, title, number?, what a row shows
const COLUMNS = [
  ['name', 'Model', false, (row) => html`<a class="name" href=${link('models', row.name, row.version)}><bdi>${row.name}</bdi></a>
    <small class="sub">${isFailed(row) ? html`<span class="bad-text" title=${row.reason}>${row.reason}</span>`
      : [row.version && `version ${row.version}`, row.platform || row.backend].filter(Boolean).join(', ') || 'not loaded'}</small>`],
  ['state', 'State', false, (row) => html`<${StatePill} ...${row} />`],
  ['rate', 'Rate', true, (row) => rate(row.rate)],
  ['p50', 'p50', true, (row) => duration(row.p50)],
  ['p95', 'p95', true, (row) => duration(row.p95)],
  ['phases', 'Phases', false, (row, longest) => html`<${PhaseBar} times=${row} longest=${longest} />`],
  ['success', 'Answered', true, (row) => count(row.success)],
  ['failure', 'Failed', true, (row) => html`<span class=${row.failure ? 'bad-text' : ''}>${count(row.failure)}</span>`],
  ['batch', 'Mean batch', true, (row) => dash(meanBatch(row), figures)],
  ['joined', 'Joined', false, (row) => html`<span title=${row.joined_reason || undefined}>${row.joined || NOTHING}</span>`],
  ['instances', 'Instances', true, (row) => count(row.instances)],
  ['cache', 'Cache hits', true, (row) => dash(cacheShare(row), percent)],
  ['memory', 'Memory', true, (row) => bytes(row.memory)],
  ['last', 'Last request', true, (row) => ago(row.last)],
];
const UNSORTED = new Set(['phases', 'joined']);

const INDEX_MS = 30_000;

/** Names of the repository, asked for now and then: models that were never loaded have no events. */
function useIndex() {
  const [index, setIndex] = useState([]);
  useEffect(() => {
    let over = false;
    const ask = () => document.hidden || repositoryIndex().then((all) => over || setIndex(all), () => {});
    ask();
    const timer = setInterval(ask, INDEX_MS);
    return () => {
      over = true;
      clearInterval(timer);
    };
  }, []);
  return index;
}

/** Rows with those that only the index of the repository has. */
function withIndex(rows, index) {
  const names = new Set([...rows.values()].map(({ name }) => name));
  const others = index.filter(({ name }) => !names.has(name));
  return [...rows.values(), ...others.map(({ name, version, reason }) => ({
    ...NEVER_LOADED, name, version: version ?? '', reason: reason ?? '' }))];
}

export default function Models({ query }) {
  const [{ rows: told, known, changes: ticks }] = useEvents({ topics: 'models' }, changeModels, emptyModels);
  const index = useIndex();
  const rows = useMemo(() => withIndex(told, index), [ticks, index]);
  const changes = rows;
  const [search, setSearch] = useState(query.get('search') ?? '');
  const [only, setOnly] = useState(query.get('only') in ONLY ? query.get('only') : 'all');
  const [{ order, up }, setOrder] = useState({ order: 'name', up: false });
  const picked = useMemo(
    () => pick(rows, { search, order, up, only: ONLY[only] }),
    [changes, search, order, up, only],
  );
  const counts = useMemo(() => {
    return Object.fromEntries(Object.entries(ONLY).map(([name, test]) => [name, rows.filter(test).length]));
  }, [changes]);
  const sort = (name) => setOrder((before) => ({ order: name, up: before.order === name && !before.up }));
  const options = [['all', `All ${counts.all}`], ['ready', `Ready ${counts.ready}`],
    ['failed', `Failed ${counts.failed}`], ['other', `Other ${counts.other}`]];
  return html`
    <h1 tabindex="-1">Models</h1>
    <div class="tools">
      <${Search} label="Search by name, platform, reason" value=${search} set=${setSearch} />
      <${Choice} label="Which models" options=${options} value=${only} set=${setOnly} />
      <span class="quiet small" role="status">${known ? plural(picked.length, 'row') : 'Waiting for the first figures…'}</span>
    </div>
    <${VirtualTable} rows=${picked} order=${order} up=${up} sort=${sort} />
    <${PhaseLegend} />`;
}

// Numbers begin with the largest, words with A.
const directionOf = (isNumber, up) => (Boolean(isNumber) === Boolean(up) ? 'ascending' : 'descending');

function VirtualTable({ rows, order, up, sort }) {
  const box = useRef(null);
  const [, redraw] = useReducer((number) => number + 1, 0);
  const view = useRef({ top: 0, height: 600 });
  useEffect(() => {
    const seen = () => {
      const { scrollTop, clientHeight } = box.current;
      const before = view.current;
      view.current = { top: scrollTop, height: clientHeight };
      const moved = Math.floor(scrollTop / ROW_PX) !== Math.floor(before.top / ROW_PX);
      if (moved || clientHeight !== before.height) redraw();
    };
    const watch = new ResizeObserver(seen);
    watch.observe(box.current);
    box.current.addEventListener('scroll', seen, { passive: true });
    return () => watch.disconnect();
  }, []);
  const { top, height } = view.current;
  const from = Math.max(0, Math.min(Math.floor(top / ROW_PX) - AROUND, rows.length - 1));
  const to = Math.min(rows.length, Math.ceil((top + height) / ROW_PX) + AROUND);
  const longest = useMemo(() => Math.max(0, ...rows.map(
    (row) => (row.queue ?? 0) + (row.input ?? 0) + (row.infer ?? 0) + (row.output ?? 0),
  )), [rows]);
  const space = (howMany) => html`<tr class="space" aria-hidden="true"><td colspan=${COLUMNS.length}
    style=${{ height: `${howMany * ROW_PX}px` }}></td></tr>`;
  return html`<div class="scroll virtual card" ref=${box} tabindex="0" role="region" aria-label="Models, scrollable">
    <table aria-rowcount=${rows.length + 1}>
      <caption class="visually-hidden">Models and what they do</caption>
      <thead><tr aria-rowindex="1">${COLUMNS.map(([name, title, isNumber]) => html`<th key=${name} scope="col"
          class=${`${isNumber ? 'num' : ''} col-${name}`}
          aria-sort=${order === name ? directionOf(isNumber, up) : undefined}>
        ${UNSORTED.has(name) ? title : html`<button class="plain sort" onClick=${() => sort(name)}>${title}
          <span aria-hidden="true">${order !== name ? '' : directionOf(isNumber, up) === 'ascending' ? '▲' : '▼'}</span></button>`}</th>`)}</tr></thead>
      <tbody>
        ${from > 0 && space(from)}
        ${rows.slice(from, to).map((row, i) => html`<tr key=${keyOf(row)} aria-rowindex=${from + i + 2}>
          ${COLUMNS.map(([name, , isNumber, show]) => html`<td key=${name}
            class=${`${isNumber ? 'num' : ''} col-${name}`}>${show(row, longest)}</td>`)}</tr>`)}
        ${to < rows.length && space(rows.length - to)}
      </tbody></table>
    ${rows.length === 0 && html`<p class="quiet empty">No model fits.</p>`}
  </div>`;
}
