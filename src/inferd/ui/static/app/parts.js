// Small parts that several views share.

import { count, duration, NOTHING, percent } from './format.js';
import { html, useEffect, useRef, useState } from './html.js';

export const Tile = ({ label, value, note, kind = '' }) => html`<div class=${`tile ${kind}`}>
  <dt>${label}</dt><dd>${value}${note ? html`<small>${note}</small>` : ''}</dd></div>`;

const STATES = { READY: 'good', LOADING: 'wait', UNLOADING: 'wait', UNAVAILABLE: 'bad' };

/** The state of a model version; unavailable without a fault is calm. */
export function StatePill({ state, reason }) {
  const calm = state === 'UNAVAILABLE' && (!reason || reason === 'unloaded');
  const kind = calm ? 'off' : STATES[state] ?? 'wait';
  return html`<span class=${`pill ${kind}`}><i class="dot" aria-hidden="true"></i>${words(state, reason)}</span>`;
}

const words = (state, reason) => {
  if (state === 'UNAVAILABLE') return !reason || reason === 'unloaded' ? 'unloaded' : 'failed';
  return state.toLowerCase();
};

/** The row of a model that the server knows from its repository alone. */
export const NEVER_LOADED = {
  state: 'UNAVAILABLE', reason: '', platform: '', backend: '', instances: 0, max_batch_size: 0, joined: '',
  joined_reason: '', success: 0, failure: 0, refused: 0, rate: 0, cache_hit: 0, cache_miss: 0, batch_sizes: [],
  memory: null, last: 0,
};

export const isFailed = ({ state, reason }) => state === 'UNAVAILABLE' && Boolean(reason) && reason !== 'unloaded';

/** The phases of a request, in their order: name, words, class. */
export const PHASES = [
  ['queue', 'queue'], ['handover', 'hand over'], ['input', 'gather'], ['infer', 'compute'],
  ['output', 'send'],
];

const partsOf = (times) => PHASES.map(([key, name]) => ({ key, name, ns: times[key] ?? 0 }))
  .filter(({ ns }) => ns > 0);

/** A bar of phases; its length is the share of `longest`. */
export function PhaseBar({ times, longest }) {
  const parts = partsOf(times);
  const all = parts.reduce((sum, { ns }) => sum + ns, 0);
  const whole = Math.max(longest ?? all, all) || 1;
  const said = parts.map(({ name, ns }) => `${name} ${duration(ns)}`).join(', ') || 'no times';
  return html`<span class="phases" role="img" aria-label=${said} title=${said}>
    ${parts.map(({ key, ns }) => html`<i key=${key} class=${`phase ${key}`}
      style=${{ width: `${(100 * ns) / whole}%` }}></i>`)}</span>`;
}

export const PhaseLegend = () => html`<ul class="legend phases-legend">
  ${PHASES.map(([key, name]) => html`<li key=${key}><i class=${`swatch phase ${key}`} aria-hidden="true"></i>${name}</li>`)}</ul>`;

/** A text field that filters, with its label. */
export const Search = ({ label, value, set }) => html`<label class="search">
  <span class="visually-hidden">${label}</span>
  <input type="search" placeholder=${label} value=${value} spellcheck="false"
    onInput=${(event) => set(event.target.value)} /></label>`;

/** Some choices of which one holds. */
export const Choice = ({ label, options, value, set }) => html`<div class="choice" role="group" aria-label=${label}>
  ${options.map(([key, title]) => html`<button type="button" key=${key} aria-pressed=${key === value}
    onClick=${() => set(key)}>${title}</button>`)}</div>`;

/** The width of an element in pixels, as it changes. */
export function useWidth(otherwise = 640) {
  const ref = useRef(null);
  const [width, setWidth] = useState(otherwise);
  useEffect(() => {
    const watch = new ResizeObserver(([entry]) => setWidth(Math.floor(entry.contentRect.width)));
    watch.observe(ref.current);
    return () => watch.disconnect();
  }, []);
  return [ref, width];
}

/** Bars that lie: [{label, value, text}], each as long as its share of the largest. */
export function Bars({ rows, caption, columns }) {
  const largest = Math.max(...rows.map(({ value }) => value), 0) || 1;
  return html`<table class="bars"><caption class="visually-hidden">${caption}</caption>
    <thead class="visually-hidden"><tr><th scope="col">${columns[0]}</th><th scope="col">${columns[1]}</th></tr></thead>
    <tbody>${rows.map(({ label, value, text, strong }, i) => html`<tr key=${i} class=${strong ? 'strong' : ''}>
      <th scope="row"><bdi>${label}</bdi></th>
      <td><span class="bar-line"><i class="bar" style=${{ width: `${Math.max(0, (100 * value) / largest)}%` }}></i></span>
        <span class="bar-text">${text}</span></td></tr>`)}</tbody></table>`;
}

export const share = (part, whole) => (whole ? percent(part / whole) : NOTHING);
export const successOf = ({ success, failure, refused }) => (
  success + failure ? html`${count(success)}<small>${failure ? `${count(failure)} failed` : 'none failed'}${refused ? `, ${count(refused)} refused` : ''}</small>` : '0'
);

/** Copy text to the clipboard, also where the page came over plain HTTP. */
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return;
  } catch {
    // No clipboard without HTTPS, or the browser refuses it: select the text and copy that.
  }
  const area = document.createElement('textarea');
  const before = document.activeElement;
  area.value = text;
  area.className = 'visually-hidden';
  document.body.append(area);
  area.select();
  const isCopied = document.execCommand('copy');
  area.remove();
  before?.focus?.();
  if (!isCopied) throw new Error('The browser did not let it be copied.');
}

/** Have the browser save `data` (text or bytes) as a file. */
export function saveFile(name, data, type = 'application/octet-stream') {
  const url = URL.createObjectURL(new Blob([data], { type }));
  const anchor = Object.assign(document.createElement('a'), { href: url, download: name });
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}
