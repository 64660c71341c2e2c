// The whole server at a glance: how it is, what needs a look, and how the last minutes went.

import { Chart } from '../app/chart.js';
import { firstEvents, useEvents } from '../app/events.js';
import { ago, bytes, count, duration, figures, moment, percent, plural, rate, span } from '../app/format.js';
import { html, useEffect, useMemo, useRef, useState } from '../app/html.js';
import { changeModels, emptyModels, keyOf, pick } from '../app/models_state.js';
import { RANGES, windowOf } from '../app/overview_state.js';
import { Choice, isFailed, PhaseBar, PhaseLegend, Tile } from '../app/parts.js';
import { link } from '../app/place.js';

const STATE_WORDS = {
  ready: 'The server is ready', starting: 'The server is starting',
  draining: 'The server is draining: it answers what it has, and takes no more',
  overloaded: 'The server is overloaded and refuses requests', 'not ready': 'The server is not ready',
};

export function Overview({ overview }) {
  const [range, setRange] = useState(RANGES[1].name);
  const [models] = useEvents({ topics: 'models' }, changeModels, emptyModels);
  const { tick } = overview;
  if (!tick) return html`<h1 tabindex="-1">Overview</h1><p class="quiet">Waiting for the first figures…</p>`;
  return html`
    <${Headline} tick=${tick} />
    <${Tiles} overview=${overview} />
    <${Attention} models=${models} />
    <${Charts} overview=${overview} range=${range} setRange=${setRange} />
    <div class="two">
      <${Busiest} models=${models} />
      <${Processes} tick=${tick} />
    </div>`;
}

function Headline({ tick }) {
  const { server, models } = tick;
  const parts = [
    models.ready && `${plural(models.ready, 'model')} ready`, models.loading && `${count(models.loading)} loading`,
    models.failed && `${count(models.failed)} failed`, models.unloaded && `${count(models.unloaded)} unloaded`,
  ].filter(Boolean);
  return html`<div class="headline">
    <h1 tabindex="-1">${STATE_WORDS[server.state] ?? server.state}</h1>
    <p>${parts.join(', ') || 'no models'}${server.why ? html`. <strong>${server.why}</strong>` : ''}</p>
    ${tick.lost_history && html`<p class="quiet small">Some of the history is gone: a process that kept it has ended.</p>`}
  </div>`;
}

const LATELY_S = 10;

/** Sums of the last ten seconds: a single second jumps too much to be read. */
function lately(columns) {
  const tail = (name) => (columns[name] ?? []).slice(-LATELY_S);
  const sum = (name) => tail(name).reduce((total, value) => total + (value ?? 0), 0);
  const seconds = Math.max(1, tail('time').length);
  const all = sum('success') + sum('failure');
  return { rate: all / seconds, failed: all ? sum('failure') / all : 0, refused: sum('refused') / seconds, all };
}

function Tiles({ overview: { second, tick } }) {
  const { row, gpus, processes, server } = tick;
  const now = lately(second);
  const recent = (name) => (second[name] ?? []).slice(-LATELY_S).findLast((value) => value !== null && value !== undefined);
  return html`<dl class="tiles">
    <${Tile} label="Requests" value=${rate(now.rate)} note="last 10 s" />
    <${Tile} label="Failed" value=${percent(now.failed)} kind=${now.failed > 0.01 ? 'bad' : ''}
      note=${now.refused ? `${rate(now.refused)} refused` : 'none refused'} />
    <${Tile} label="Latency p50" value=${duration(recent('p50'))} note=${`p95 ${duration(recent('p95'))}`} />
    <${Tile} label="Latency p99" value=${duration(recent('p99'))} note="of a second" />
    <${Tile} label="Under way" value=${count(row.pending)} note=${`${count(row.queued)} in queues`}
      kind=${server.state === 'overloaded' ? 'bad' : ''} />
    <${Tile} label="CPU" value=${figures(row.cpu)} note=${`cores, ${processes.length === 1 ? '1 process' : `${processes.length} processes`}`} />
    <${Tile} label="Memory" value=${bytes(row.memory)} note=${`${plural(row.connections, 'connection')}`} />
    ${gpus.length > 0 && html`<${Tile} label=${gpus.length > 1 ? `${gpus.length} GPUs` : 'GPU'} value=${percent(row.gpu)} note=${bytes(row.gpu_memory)} />`}
    <${Tile} label="Up for" value=${span(tick.time - server.started)} note=${`since ${moment(server.started)}`} />
  </dl>`;
}

const SHOWN_FAILED = 5;

function Attention({ models }) {
  const failed = useMemo(() => pick(models.rows.values(), {
    search: '', order: 'name', only: isFailed,
  }), [models.changes]);
  if (!failed.length) return null;
  return html`<section class="card alarm" aria-labelledby="failed">
    <h2 id="failed">${plural(failed.length, 'model')} failed</h2>
    <dl class="reasons">${failed.slice(0, SHOWN_FAILED).map((row) => html`<div key=${keyOf(row)}>
      <dt><a href=${link('models', row.name, row.version)}><bdi>${row.name}</bdi></a> <span class="quiet">version ${row.version}</span></dt>
      <dd class="reason">${row.reason}</dd></div>`)}</dl>
    ${failed.length > SHOWN_FAILED && html`<p><a href="#/models?only=failed">All ${count(failed.length)}</a></p>`}
  </section>`;
}

/** A stream tells the minutes when it begins; while they are shown, ask for the newer ones. */
function useFreshMinutes(overview, areShown) {
  const latest = useRef(overview);
  latest.current = overview;
  useEffect(() => {
    if (!areShown) return undefined;
    const renew = async () => {
      const { history } = await firstEvents({ topics: 'overview' });
      Object.assign(latest.current.minute, history.minute);
    };
    const tryIt = () => renew().catch(() => {}); // the stream says what is wrong
    tryIt();
    const timer = setInterval(tryIt, 60_000);
    return () => clearInterval(timer);
  }, [areShown]);
}

function Charts({ overview, range: name, setRange }) {
  const range = RANGES.find((one) => one.name === name);
  useFreshMinutes(overview, range.from === 'minute');
  const { times, column, rate: rates } = windowOf(overview, range);
  const common = { times, step: range.step, words: range.words, sync: 'overview' };
  const hasGpu = overview.tick.gpus.length > 0;
  return html`<section aria-labelledby="history">
    <div class="bar-head"><h2 id="history">How it went</h2>
      <${Choice} label="Range of the charts" options=${RANGES.map((one) => [one.name, one.name])}
        value=${name} set=${setRange} /></div>
    <div class="charts">
      <${Chart} ...${common} title="Requests" format=${rate} series=${[
        { label: 'answered', colour: 'blue', values: rates('success') },
        { label: 'failed', colour: 'red', dash: 'dashes', values: rates('failure') },
        { label: 'refused', colour: 'orange', dash: 'dots', values: rates('refused') },
      ]} />
      <${Chart} ...${common} title="Latency" format=${duration} series=${[
        { label: 'p50', colour: 'blue', values: column('p50') },
        { label: 'p95', colour: 'green', dash: 'dashes', values: column('p95') },
        { label: 'p99', colour: 'orange', dash: 'dots', values: column('p99') },
      ]} />
      <${Chart} ...${common} title="Under way" format=${figures} top=${1} series=${[
        { label: 'requests', colour: 'blue', values: column('pending') },
        { label: 'of them in queues', colour: 'orange', dash: 'dashes', values: column('queued') },
        { label: 'connections', colour: 'green', dash: 'dots', values: column('connections') },
      ]} />
      <${Chart} ...${common} title="CPU, in cores" format=${figures} series=${[
        { label: 'all processes', colour: 'blue', values: column('cpu') },
      ]} />
      <${Chart} ...${common} title="Memory" format=${bytes} binary series=${[
        { label: 'all processes', colour: 'blue', values: column('memory') },
      ]} />
      ${hasGpu && html`<${Chart} ...${common} title="GPU" format=${percent} top=${1} series=${[
        { label: 'busy', colour: 'blue', values: column('gpu') }]} />
        <${Chart} ...${common} title="Memory of the GPU" format=${bytes} binary series=${[
          { label: 'used', colour: 'green', dash: 'dashes', values: column('gpu_memory') }]} />`}
    </div>
    <${Numbers} times=${times} columns=${[['Requests', rates('success'), rate],
      ['Failed', rates('failure'), rate], ['p50', column('p50'), duration], ['p99', column('p99'), duration],
      ['Under way', column('pending'), figures], ['CPU', column('cpu'), figures]]} />
  </section>`;
}

/** The charts' newest figures, for whoever does not see them. */
function Numbers({ times, columns }) {
  const [open, setOpen] = useState(false);
  const rows = times.slice(-12).map((_, i) => times.length - 1 - i);
  return html`<details onToggle=${(event) => setOpen(event.target.open)}>
    <summary>The newest figures as a table</summary>
    ${open && html`<div class="scroll" tabindex="0" role="region" aria-label="The newest figures"><table>
      <caption class="visually-hidden">The newest figures of the charts</caption>
      <thead><tr><th scope="col">Time</th>${columns.map(([name]) => html`<th scope="col" class="num" key=${name}>${name}</th>`)}</tr></thead>
      <tbody>${rows.map((i) => html`<tr key=${times[i]}><th scope="row">${moment(times[i] * 1000)}</th>
        ${columns.map(([name, values, format]) => html`<td class="num" key=${name}>${format(values[i])}</td>`)}</tr>`)}</tbody>
    </table></div>`}
  </details>`;
}

function Busiest({ models }) {
  const rows = useMemo(() => pick(models.rows.values(), {
    search: '', order: 'rate', only: (row) => row.state === 'READY',
  }).slice(0, 6), [models.changes]);
  const longest = Math.max(...rows.map((row) => (row.queue ?? 0) + (row.input ?? 0) + (row.infer ?? 0) + (row.output ?? 0)), 0);
  return html`<section class="card" aria-labelledby="busiest">
    <h2 id="busiest">Where the time goes</h2>
    ${rows.length ? html`<div class="scroll" tabindex="0" role="region" aria-label="The busiest models"><table>
      <caption class="visually-hidden">The busiest models and their phases</caption>
      <thead><tr><th scope="col">Model</th><th scope="col" class="num">Rate</th><th scope="col" class="num">p95</th><th scope="col">Mean time of a request</th></tr></thead>
      <tbody>${rows.map((row) => html`<tr key=${keyOf(row)}>
        <th scope="row" class="name"><a href=${link('models', row.name, row.version)}><bdi>${row.name}</bdi></a></th>
        <td class="num">${rate(row.rate)}</td><td class="num">${duration(row.p95)}</td>
        <td class="wide"><${PhaseBar} times=${row} longest=${longest} /></td></tr>`)}</tbody></table></div>
      <${PhaseLegend} />` : html`<p class="quiet">No model is ready.</p>`}
  </section>`;
}

function Processes({ tick }) {
  return html`<section class="card" aria-labelledby="processes">
    <h2 id="processes">Processes</h2>
    <div class="scroll" tabindex="0" role="region" aria-label="Processes"><table>
      <caption class="visually-hidden">The processes of this server</caption>
      <thead><tr><th scope="col">Process</th><th scope="col" class="num">CPU</th><th scope="col" class="num">Memory</th>
        <th scope="col" class="num">Connections</th><th scope="col" class="num">Under way</th><th scope="col" class="num">Since</th></tr></thead>
      <tbody>${tick.processes.map((one) => html`<tr key=${one.pid}>
        <th scope="row">${one.pid}</th><td class="num">${figures(one.cpu)}</td><td class="num">${bytes(one.memory)}</td>
        <td class="num">${count(one.connections)}</td><td class="num">${count(one.pending)}</td><td class="num">${ago(one.started, tick.time)}</td></tr>`)}</tbody>
    </table></div>
    ${tick.gpus.length > 0 && html`<div class="scroll" tabindex="0" role="region" aria-label="GPUs"><table>
      <caption class="visually-hidden">GPUs</caption>
      <thead><tr><th scope="col">GPU</th><th scope="col" class="num">Busy</th><th scope="col" class="num">Memory</th></tr></thead>
      <tbody>${tick.gpus.map((gpu, i) => html`<tr key=${i}><th scope="row">${gpu.name}</th><td class="num">${percent(gpu.utilization)}</td>
        <td class="num">${bytes(gpu.memory)} of ${bytes(gpu.memory_total)}</td></tr>`)}</tbody></table></div>`}
  </section>`;
}

