// Slow and failed requests of the last minutes, and where their time went.

import { useEvents } from '../app/events.js';
import { plural } from '../app/format.js';
import { html, useMemo, useState } from '../app/html.js';
import { Choice, PhaseLegend, saveFile, Search } from '../app/parts.js';
import { RequestTable } from '../app/request_table.js';
import { traceOf } from '../app/trace_file.js';

const KEPT = 500;
const SHOWN = 100;
const empty = () => ({ rows: [], known: false });

export function changeRequests(state, name, data) {
  if (name !== 'requests') return state;
  const rows = data.all ? data.rows : [...data.rows, ...state.rows];
  return { rows: rows.toSorted((a, b) => b.time - a.time).slice(0, KEPT), known: true };
}

export default function Requests({ query }) {
  const [{ rows, known }, state] = useEvents({ topics: 'requests' }, changeRequests, empty);
  const [search, setSearch] = useState(query.get('search') ?? '');
  const [only, setOnly] = useState('all');
  const [all, setAll] = useState(false);
  const picked = useMemo(() => rows.filter((row) => (
    (only === 'all' || row.status === (only === 'failed' ? 'failed' : 'ok'))
    && `${row.model} ${row.id} ${row.error}`.toLowerCase().includes(search.toLowerCase())
  )), [rows, search, only]);
  const save = () => saveFile('requests.trace.json', JSON.stringify(traceOf(picked)), 'application/json');
  return html`
    <h1 tabindex="-1">Requests</h1>
    <p class="quiet">Of the last 15 minutes: those that failed, and those slower than 99 of 100 of their model.</p>
    ${state.kind === 'denied' && html`<p class="bad-text" role="alert">${state.text}</p>`}
    <div class="tools">
      <${Search} label="Search by model, id, error" value=${search} set=${setSearch} />
      <${Choice} label="Which requests" options=${[['all', 'All'], ['slow', 'Slow'], ['failed', 'Failed']]} value=${only} set=${setOnly} />
      <button onClick=${save} disabled=${!picked.length} title="For ui.perfetto.dev and chrome://tracing">Download as a trace</button>
      <span class="quiet small" role="status">${known ? plural(picked.length, 'request') : 'Waiting…'}</span>
    </div>
    <section class="card"><${PhaseLegend} />
      ${picked.length ? html`<${RequestTable} hasModel rows=${all ? picked : picked.slice(0, SHOWN)} caption="Slow and failed requests" />`
        : html`<p class="quiet empty">${known ? 'None. That is good.' : 'Waiting for the server…'}</p>`}
      ${picked.length > SHOWN && !all && html`<p><button onClick=${() => setAll(true)}>Show all ${picked.length}</button></p>`}
    </section>`;
}
