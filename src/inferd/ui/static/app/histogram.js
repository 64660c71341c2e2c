// Histograms and the graph of an ensemble, drawn as SVG.

import { count, duration } from './format.js';
import { html } from './html.js';
import { useWidth } from './parts.js';

const TOP = 34;
const PLOT = 120;
const FOOT = 22;

/** Buckets from the first to the last that holds something; each goes from a bound to the next. */
function filled({ bounds, counts }) {
  const first = counts.findIndex((number) => number > 0);
  const last = counts.findLastIndex((number) => number > 0);
  return first < 0 ? [] : counts.slice(first, last + 1).map((number, i) => ({
    number, lower: bounds[first + i], upper: bounds[first + i + 1] ?? Infinity,
  }));
}

const middleOf = ({ lower, upper }) => (upper === Infinity ? lower : (lower + upper) / 2);

const MARKS = [['p50', 0.5, ''], ['p95', 0.95, '7 4'], ['p99', 0.99, '2 3']];

/** The bucket in which the share `part` of all requests ends, and its middle. */
function percentile(buckets, all, part) {
  let seen = 0;
  for (const [i, { number }] of buckets.entries()) {
    seen += number;
    if (seen >= part * all) return { i, middle: middleOf(buckets[i]) };
  }
  return { i: buckets.length - 1, middle: middleOf(buckets.at(-1)) };
}

/** Requests by how long they took, on a logarithmic axis, with percentiles and their error. */
export function LatencyHistogram({ latency, title }) {
  const [box, width] = useWidth();
  const buckets = filled(latency);
  const all = buckets.reduce((sum, { number }) => sum + number, 0);
  const largest = Math.max(...buckets.map(({ number }) => number), 1);
  const step = width / Math.max(buckets.length, 1);
  const marks = all ? MARKS.map(([name, part, dash]) => ({ name, dash, ...percentile(buckets, all, part) })) : [];
  const error = latency.error ? ` ± ${Number((latency.error * 100).toFixed(1))} %` : '';
  const said = `${title}: ${marks.map(({ name, middle }) => `${name} ${duration(middle)}`).join(', ') || 'nothing yet'}`;
  const labels = buckets.length > 1 ? [0, 0.25, 0.5, 0.75].map((part) => Math.floor(part * buckets.length)) : [];
  return html`<figure class="histogram" ref=${box}>
    <figcaption><span class="chart-title">${title}</span>
      <ul class="legend">${marks.map(({ name, dash, middle }) => html`<li key=${name}>
        <svg class="sample" width="22" height="8" aria-hidden="true"><line x1="0" y1="4" x2="22" y2="4" class="mark" stroke-dasharray=${dash} /></svg>
        ${name} <b>${duration(middle)}${error}</b></li>`)}</ul></figcaption>
    ${all === 0 ? html`<p class="quiet empty">No requests yet.</p>` : html`
    <svg role="img" aria-label=${said} width=${width} height=${PLOT + FOOT + 8}>
      ${buckets.map(({ number, lower, upper }, i) => html`<rect key=${i} class="fill-blue" x=${i * step + 0.5}
        width=${Math.max(1, step - 1)} y=${8 + PLOT - (PLOT * number) / largest} height=${(PLOT * number) / largest}>
        <title>${duration(lower)} to ${duration(upper)}: ${count(number)}</title></rect>`)}
      ${marks.map(({ name, i, dash }) => html`<line key=${name} class="mark" stroke-dasharray=${dash}
        x1=${(i + 0.5) * step} x2=${(i + 0.5) * step} y1="0" y2=${8 + PLOT} />`)}
      <line class="axis" x1="0" x2=${width} y1=${8 + PLOT} y2=${8 + PLOT} />
      ${labels.map((i) => html`<text key=${i} class="quiet" x=${i * step} y=${PLOT + FOOT}>${duration(buckets[i].lower)}</text>`)}
    </svg>`}
  </figure>`;
}

/** The steps of an ensemble in layers: each one stands right of all that it needs. */
export function layersOf(config) {
  const steps = (config.ensemble_scheduling?.step ?? []).map((step, number) => ({
    number, name: step.model_name, inputs: Object.entries(step.input_map ?? {}), outputs: Object.entries(step.output_map ?? {}),
  }));
  const maker = new Map();
  for (const step of steps) for (const [, tensor] of step.outputs) maker.set(tensor, step);
  const depth = new Map();
  const depthOf = (step, above) => {
    if (depth.has(step)) return depth.get(step);
    if (above.has(step)) return 0; // a circle: the server refuses those
    const needs = step.inputs.map(([, tensor]) => maker.get(tensor)).filter(Boolean);
    const mine = 1 + Math.max(0, ...needs.map((one) => depthOf(one, new Set([...above, step]))));
    depth.set(step, mine);
    return mine;
  };
  const layers = [];
  for (const step of steps) (layers[depthOf(step, new Set()) - 1] ??= []).push(step);
  return { steps, maker, layers };
}

const BOX = { width: 176, height: 58, gapX: 96, gapY: 22 };
const clip = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

/** An ensemble as a graph: its inputs, its steps with their mean times, its outputs. */
export function EnsembleGraph({ config, times }) {
  const { steps, maker, layers } = layersOf(config);
  const columns = [
    config.input.map(({ name }) => ({ tensor: name })), ...layers.map((layer) => layer ?? []),
    config.output.map(({ name }) => ({ tensor: name, isOutput: true })),
  ];
  const rows = Math.max(...columns.map((column) => column.length));
  const height = rows * (BOX.height + BOX.gapY) + TOP;
  const width = columns.length * (BOX.width + BOX.gapX) - BOX.gapX + 4;
  const at = new Map();
  columns.forEach((column, x) => column.forEach((node, y) => {
    const top = (height - column.length * (BOX.height + BOX.gapY)) / 2;
    at.set(node, { x: 2 + x * (BOX.width + BOX.gapX), y: top + y * (BOX.height + BOX.gapY) });
  }));
  const source = (tensor) => maker.get(tensor) ?? columns[0].find((node) => node.tensor === tensor);
  const edges = [
    ...steps.flatMap((step) => step.inputs.map(([, tensor]) => [source(tensor), step, tensor])),
    ...columns.at(-1).map((node) => [source(node.tensor), node, node.tensor]),
  ].filter(([from, to]) => at.has(from) && at.has(to));
  const longest = Math.max(1, ...times.map(({ mean }) => mean ?? 0));
  const timeOf = (step) => times[step.number] ?? times.find(({ model }) => model === step.name);
  return html`<svg width=${width} height=${height} role="img" class="graph"
      aria-label=${`The ensemble: ${steps.map(({ name }) => name).join(', then ')}`}>
    ${edges.map(([from, to, tensor], i) => {
      const [a, b] = [at.get(from), at.get(to)];
      const [x1, y1, x2, y2] = [a.x + BOX.width, a.y + BOX.height / 2, b.x, b.y + BOX.height / 2];
      const middle = (x1 + x2) / 2;
      return html`<g key=${i}><path class="edge-line" d=${`M${x1} ${y1} C${middle} ${y1} ${middle} ${y2} ${x2 - 6} ${y2}`}><title>${tensor}</title></path>
        <path class="arrow" d=${`M${x2 - 7} ${y2 - 4} L${x2} ${y2} L${x2 - 7} ${y2 + 4} Z`} />
        ${x2 - x1 <= BOX.gapX && html`<text class="quiet tiny" text-anchor="middle" x=${middle} y=${Math.min(y1, y2) + Math.abs(y2 - y1) / 2 - 6}>${clip(tensor, 14)}</text>`}</g>`;
    })}
    ${[...at].map(([node, { x, y }], i) => (node.tensor !== undefined
      ? html`<g key=${i}><title>${node.tensor}</title><rect class="node tensor" x=${x} y=${y} width=${BOX.width} height=${BOX.height} rx="29" />
          <text text-anchor="middle" x=${x + BOX.width / 2} y=${y + 27}>${clip(node.tensor, 20)}</text>
          <text class="quiet tiny" text-anchor="middle" x=${x + BOX.width / 2} y=${y + 44}>${node.isOutput ? 'output' : 'input'}</text></g>`
      : html`<g key=${i}><title>${node.name}</title><rect class="node" x=${x} y=${y} width=${BOX.width} height=${BOX.height} rx="9" />
          <text x=${x + 14} y=${y + 23}>${clip(node.name, 21)}</text>
          <text class="quiet tiny" x=${x + 14} y=${y + 40}>${timeOf(node)?.mean ? `${duration(timeOf(node).mean)} on average` : 'no times yet'}</text>
          <rect class="fill-blue" x=${x + 14} y=${y + 47} height="4" rx="2" width=${(BOX.width - 28) * Math.min(1, (timeOf(node)?.mean ?? 0) / longest)} /></g>`))}
  </svg>`;
}
