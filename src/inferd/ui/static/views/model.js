// One model version: what it takes and gives, how it is doing, and how it is configured.

import { ModelActs } from '../app/acts.js';
import { config as readConfig, metadata as readMetadata } from '../app/calls.js';
import { ConfigView } from '../app/config_view.js';
import { useEvents } from '../app/events.js';
import { ago, bytes, count, duration, figures, iso, moment, percent, rate, shape } from '../app/format.js';
import { EnsembleGraph, LatencyHistogram } from '../app/histogram.js';
import { html, useEffect, useState } from '../app/html.js';
import { cacheShare, meanBatch } from '../app/models_state.js';
import { Bars, PhaseBar, PhaseLegend, PHASES, share, StatePill, Tile } from '../app/parts.js';
import { link } from '../app/place.js';
import { RequestTable } from '../app/request_table.js';

const NO_TIMES = { bounds: [], counts: [] };
const UNKNOWN = { state: 'UNAVAILABLE', reason: '' };

/** The state after an event of the topic model; a model that has gone is as one never loaded. */
const changeModel = (state, name, data) => {
  if (name !== 'model') return state;
  return data.gone ? { ...data, ...UNKNOWN } : data;
};

/** What the server says of a model by V2; asked again when its state changes. */
function useDescription(model, version, state) {
  const [known, setKnown] = useState({});
  useEffect(() => {
    let over = false;
    const keep = (name) => (value) => over || setKnown((before) => ({ ...before, [name]: value }));
    readMetadata(model, version).then(keep('metadata'), () => {});
    readConfig(model, version).then(keep('config'), (error) => keep('error')(error.message));
    return () => {
      over = true;
    };
  }, [model, version, state]);
  return known;
}

export default function Model({ model, version, about, notes }) {
  const query = { topics: 'model', model, ...(version ? { version } : {}) };
  const [told, state] = useEvents(query, changeModel, () => null);
  const row = told?.gone ? null : told;
  const isUnknown = told?.gone || (state.kind === 'lost' && state.status === 404);
  const { metadata, config, error } = useDescription(model, version, row?.state);
  const shown = version ?? row?.version;
  return html`
    <nav aria-label="Way here" class="small"><a href="#/models">Models</a></nav>
    <div class="bar-head">
      <div class="title-line"><h1 tabindex="-1"><bdi>${model}</bdi></h1>
        ${shown && html`<span class="quiet">version ${shown}</span>`}${(row || isUnknown) && html`<${StatePill} ...${row ?? UNKNOWN} />`}</div>
      <div class="buttons"><a class="button" href=${link('try', model, shown)}>Try it</a>
        ${(row || isUnknown) && html`<${ModelActs} model=${model} state=${row?.state ?? UNKNOWN.state} about=${about} notes=${notes} />`}</div>
    </div>
    ${row?.reason && html`<p class="reason bad-text">${row.reason}</p>`}
    ${metadata?.versions?.length > 1 && html`<p class="small">Versions: ${metadata.versions.map((one) => html`
      <a key=${one} href=${link('models', model, one)} aria-current=${one === shown ? 'page' : undefined}>${one}</a> `)}</p>`}
    ${row ? html`<${Figures} row=${row} />` : html`<p class="quiet">${told?.gone ? 'The server does not serve it.'
      : state.text ?? 'Waiting for the first figures…'}</p>`}
    ${config?.ensemble_scheduling?.step?.length > 0 && html`<${Ensemble} config=${config} steps=${row?.steps ?? []} />`}
    ${metadata && html`<${Tensors} metadata=${metadata} config=${config} />`}
    ${row && html`<${Troubles} row=${row} />`}
    ${config ? html`<${ConfigView} config=${config} written=${row?.written} />` : error && html`<p class="quiet">${error}</p>`}`;
}

function Figures({ row }) {
  const all = row.success + row.failure;
  return html`
    <dl class="tiles">
      <${Tile} label="Requests" value=${rate(row.rate)} note=${`${count(row.success)} answered`} />
      <${Tile} label="Failed" value=${share(row.failure, all)} note=${`${count(row.failure)}, ${count(row.refused)} refused`} kind=${row.failure > all / 100 ? 'bad' : ''} />
      <${Tile} label="Latency p50" value=${duration(row.p50)} note=${`p95 ${duration(row.p95)}`} />
      <${Tile} label="Latency p99" value=${duration(row.p99)} note="last minute" />
      <${Tile} label="In the queue" value=${count(row.queued)} note="requests that wait" />
      <${Tile} label="Batches" value=${meanBatch(row) < 0 ? '–' : figures(meanBatch(row))} note=${row.max_batch_size ? `at most ${row.max_batch_size}` : 'no batching'} />
      ${cacheShare(row) >= 0 && html`<${Tile} label="Cache hits" value=${percent(cacheShare(row))} note=${`${count(row.cache_hit)} of ${count(row.cache_hit + row.cache_miss)}`} />`}
      ${row.sequences !== null && row.sequences !== undefined && html`<${Tile} label="Sequences" value=${count(row.sequences)} note="under way" />`}
      <${Tile} label="Memory" value=${bytes(row.memory)} note=${`${count(row.instances)} instance${row.instances === 1 ? '' : 's'}`} />
      <${Tile} label="Last request" value=${ago(row.last)} />
    </dl>
    <section class="card" aria-labelledby="phases"><h2 id="phases">Mean time of a request, last minute</h2>
      <div class="tall"><${PhaseBar} times=${row} /></div>
      <ul class="legend phases-legend">${PHASES.filter(([key]) => row[key] !== undefined).map(([key, name]) => html`<li key=${key}>
        <i class=${`swatch phase ${key}`} aria-hidden="true"></i>${name} <b>${duration(row[key])}</b></li>`)}</ul>
      ${row.joined && html`<p class="small quiet">Requests are ${{ joined: 'joined', alone: 'run alone', compared: 'compared before they are joined' }[row.joined] ?? row.joined}${row.joined_reason ? `: ${row.joined_reason}` : '.'}</p>`}
    </section>
    <div class="two">
      <section class="card"><${LatencyHistogram} title="Latency, since the start" latency=${row.latency ?? NO_TIMES} /></section>
      <section class="card"><${LatencyHistogram} title="Time in the queue, since the start" latency=${row.queue_latency ?? NO_TIMES} /></section>
    </div>
    ${row.batch_sizes?.length > 0 && html`<section class="card" aria-labelledby="batches"><h2 id="batches">Batch sizes</h2>
      <${Bars} caption="Batch sizes" columns=${['Size', 'Runs']} rows=${row.batch_sizes.map(([size, runs]) => ({ label: String(size), value: runs, text: count(runs) }))} /></section>`}`;
}

function Ensemble({ config, steps }) {
  return html`<section class="card" aria-labelledby="ensemble"><h2 id="ensemble">Ensemble</h2>
    <div class="scroll" tabindex="0" role="region" aria-label="Graph of the ensemble"><${EnsembleGraph} config=${config} times=${steps} /></div>
    <ul class="legend">${config.ensemble_scheduling.step.map(({ model_name: name }, i) => html`<li key=${i}>
      <a href=${link('models', name)}><bdi>${name}</bdi></a></li>`)}</ul></section>`;
}

function Tensors({ metadata, config }) {
  const labelsOf = (name) => config?.output?.find((one) => one.name === name)?.label_filename;
  const rows = (tensors, title) => tensors.map((tensor) => html`<tr key=${title + tensor.name}>
    <td>${title}</td><th scope="row"><bdi>${tensor.name}</bdi></th><td class="mono">${tensor.datatype}</td>
    <td class="nowrap">${shape(tensor.shape)}</td><td>${title === 'output' && labelsOf(tensor.name) ? 'with labels' : ''}</td></tr>`);
  return html`<section class="card" aria-labelledby="tensors"><h2 id="tensors">Inputs and outputs</h2>
    <div class="scroll" tabindex="0" role="region" aria-label="Inputs and outputs"><table>
      <caption class="visually-hidden">Inputs and outputs</caption>
      <thead><tr><th scope="col">Side</th><th scope="col">Name</th><th scope="col">Datatype</th><th scope="col">Shape</th><th scope="col"><span class="visually-hidden">More</span></th></tr></thead>
      <tbody>${rows(metadata.inputs, 'input')}${rows(metadata.outputs, 'output')}</tbody></table></div></section>`;
}

function Troubles({ row }) {
  const kinds = Object.entries(row.failures ?? {}).filter(([, number]) => number > 0);
  return html`
    ${(row.errors?.length > 0 || kinds.length > 0) && html`<section class="card" aria-labelledby="errors"><h2 id="errors">Recent errors</h2>
      ${kinds.length > 0 && html`<ul class="legend">${kinds.map(([name, number]) => html`<li key=${name}>${name.toLowerCase()} <b>${count(number)}</b></li>`)}</ul>`}
      ${row.errors?.length > 0 && html`<div class="scroll" tabindex="0" role="region" aria-label="Recent errors"><table>
        <caption class="visually-hidden">Recent errors</caption>
        <thead><tr><th scope="col">Time</th><th scope="col">Why</th><th scope="col" class="num">After</th><th scope="col">Request</th></tr></thead>
        <tbody>${row.errors.map((one, i) => html`<tr key=${i}><th scope="row" class="nowrap"><time datetime=${iso(one.time)}>${moment(one.time)}</time></th>
          <td class="reason">${one.text}</td><td class="num">${duration(one.took)}</td><td><bdi class="mono">${one.id}</bdi></td></tr>`)}</tbody></table></div>`}
    </section>`}
    ${row.slow?.length > 0 && html`<section class="card" aria-labelledby="slow"><h2 id="slow">Slow requests</h2>
      <${PhaseLegend} /><${RequestTable} rows=${row.slow} caption="Slow requests" /></section>`}`;
}
