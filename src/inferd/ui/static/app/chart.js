// A chart of lines over time, with its legend: uPlot draws, and what is read stands beside it.

import { clock, minute } from './format.js';
import { html, useEffect, useLayoutEffect, useReducer, useRef, useState } from './html.js';
import { ofPage } from './place.js';

let loading = null;

/** uPlot, read from the server when the first chart needs it. */
function loadPlot() {
  loading ??= new Promise((resolve, reject) => {
    const script = document.createElement('script');
    script.src = ofPage('static/vendor/uplot.js');
    script.onload = () => resolve(globalThis.uPlot);
    script.onerror = () => {
      loading = null;
      reject(new Error('The charts could not be read from the server.'));
    };
    document.head.append(script);
  });
  return loading;
}

// Lines differ by dashes as well as by colour.
const DASHES = { line: [], dashes: [7, 4], dots: [2, 3], mixed: [9, 3, 2, 3] };
const dark = matchMedia('(prefers-color-scheme: dark)');
const HEIGHT = 150;
const BINARY = Array.from({ length: 50 }, (_, i) => 2 ** i); // steps of an axis of bytes

const colourOf = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

function optionsOf({ series, step, format, top, binary }, width, onCursor, sync) {
  const quiet = colourOf('quiet');
  const grid = { stroke: colourOf('line'), width: 1 };
  const font = '11px system-ui, sans-serif';
  const axis = { stroke: quiet, font, grid, ticks: { show: false } };
  return {
    width,
    height: HEIGHT,
    padding: [8, 8, 0, 0],
    legend: { show: false },
    cursor: { sync: { key: sync.key }, y: false, drag: { x: false, y: false }, points: { size: 7 } },
    scales: {
      x: { time: true },
      y: { range: (_, __, max) => [0, Math.max(top ?? 0, (max ?? 0) * 1.08) || 1] },
    },
    axes: [
      { ...axis, size: 26, space: 64, values: (_, ticks) => ticks.map((tick) => (
        step >= 60 ? minute(tick * 1000) : clock(tick * 1000))) },
      { ...axis, size: 58, space: 34, ...(binary ? { incrs: BINARY } : {}), values: (_, ticks) => ticks.map((tick) => format(tick)) },
    ],
    series: [{}, ...series.map(({ colour, dash }) => ({
      stroke: colourOf(colour), width: 1.6, dash: DASHES[dash ?? 'line'], spanGaps: false,
      points: { show: false },
    }))],
    hooks: { setCursor: [({ cursor }) => onCursor(cursor.idx ?? null)] },
  };
}

const Sample = ({ colour, dash }) => html`<svg class="sample" width="22" height="8" aria-hidden="true">
  <line x1="0" y1="4" x2="22" y2="4" class=${`stroke-${colour}`}
    stroke-dasharray=${DASHES[dash ?? 'line'].join(' ')} stroke-width="2" /></svg>`;

const last = (values) => values.findLast((value) => value !== null);

function spoken(title, series, format, words) {
  const parts = series.map(({ label, values }) => {
    const known = values.filter((value) => value !== null);
    if (!known.length) return `${label}: nothing yet`;
    return `${label}: now ${format(last(values))}, highest ${format(Math.max(...known))}`;
  });
  return `${title}, ${words}. ${parts.join('; ')}.`;
}

/**
 * `series`: [{label, colour, dash, values}] on `times` (seconds). `format` writes a value; `top` is
 * the least upper end of the axis; charts with the same `sync` share the place that is pointed at.
 */
export function Chart({ title, times, series, format, step, words, sync, top, binary }) {
  const box = useRef(null);
  const plot = useRef(null);
  const [at, setAt] = useState(null);
  const [error, setError] = useState('');
  const [theme, changeTheme] = useReducer((number) => number + 1, 0);
  const data = [times, ...series.map(({ values }) => values)];
  const now = useRef(data);
  now.current = data;

  useEffect(() => {
    dark.addEventListener('change', changeTheme);
    return () => dark.removeEventListener('change', changeTheme);
  }, []);
  useLayoutEffect(() => {
    let over = false;
    const place = box.current;
    const watch = new ResizeObserver(() => {
      plot.current?.setSize({ width: place.clientWidth, height: HEIGHT });
    });
    loadPlot().then((Plot) => {
      if (over) return;
      const options = optionsOf({ series, step, format, top, binary }, place.clientWidth, setAt, { key: sync });
      plot.current = new Plot(options, now.current, place);
      watch.observe(place);
    }, (failed) => setError(failed.message));
    return () => {
      over = true;
      watch.disconnect();
      plot.current?.destroy();
      plot.current = null;
    };
  }, [theme, step, series.length]);
  useLayoutEffect(() => {
    plot.current?.setData(data);
  });

  const shown = (values) => (at === null ? last(values) : values[at]);
  return html`<figure class="chart card">
    <figcaption><span class="chart-title">${title}</span>
      <span class="quiet small">${at !== null && times[at] ? clock(times[at] * 1000) : ''}</span></figcaption>
    <ul class="legend">${series.map((one) => html`<li key=${one.label}>
      <${Sample} ...${one} />${one.label} <b>${format(shown(one.values) ?? null)}</b></li>`)}</ul>
    <div class="plot" ref=${box} role="img" aria-label=${spoken(title, series, format, words)}></div>
    ${error && html`<p class="bad-text">${error}</p>`}
  </figure>`;
}
