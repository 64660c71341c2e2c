// The last lines of the log, with a filter.

import { useEvents } from '../app/events.js';
import { clock, count, iso, plural } from '../app/format.js';
import { html, useEffect, useMemo, useRef, useState } from '../app/html.js';
import { Choice, saveFile, Search } from '../app/parts.js';

const KEPT = 1000;
const empty = () => ({ lines: [], dropped: 0, known: false, next: 0 });
const RANKS = { debug: 0, verbose: 0, info: 1, warning: 2, error: 3, critical: 3 };
const rank = ({ level }) => RANKS[level] ?? 1;

function changeLog(state, name, data) {
  // What comes first after a reconnection is the whole log again.
  if (name === 'open') return { ...state, isNew: true };
  if (name !== 'log') return state;
  let { next } = state;
  const fresh = data.lines.map((line) => ({ ...line, key: (next += 1) }));
  const lines = state.isNew ? fresh : [...state.lines, ...fresh];
  return { lines: lines.slice(-KEPT), dropped: state.dropped + data.dropped, known: true, next, isNew: false };
}

export default function Logs({ query }) {
  const [{ lines, dropped, known }, state] = useEvents({ topics: 'log' }, changeLog, empty);
  const [search, setSearch] = useState(query.get('search') ?? '');
  const [least, setLeast] = useState('all');
  const [follows, setFollows] = useState(true);
  const [held, setHeld] = useState(null);
  const box = useRef(null);
  const given = follows ? lines : held ?? lines;
  const picked = useMemo(() => {
    const words = search.toLowerCase();
    const from = { all: 0, warning: 2, error: 3 }[least];
    return given.filter((line) => rank(line) >= from
      && `${line.text} ${line.source}`.toLowerCase().includes(words));
  }, [given, search, least]);
  useEffect(() => {
    if (follows && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [picked, follows]);
  const toggle = () => {
    setHeld(lines);
    setFollows(!follows);
  };
  const save = () => saveFile('inferd.log', picked.map((line) => (
    `${iso(line.time)} ${line.level} ${line.pid} ${line.source} ${line.text}\n`)).join(''), 'text/plain');
  return html`
    <h1 tabindex="-1">Logs</h1>
    ${state.kind === 'denied' && html`<p class="bad-text" role="alert">${state.text}</p>`}
    <div class="tools">
      <${Search} label="Search the log" value=${search} set=${setSearch} />
      <${Choice} label="Least level" options=${[['all', 'All'], ['warning', 'Warnings'], ['error', 'Errors']]} value=${least} set=${setLeast} />
      <button aria-pressed=${follows} onClick=${toggle}>${follows ? 'Pause' : 'Follow'}</button>
      <button onClick=${save} disabled=${!picked.length}>Download</button>
      <span class="quiet small">${known ? plural(picked.length, 'line') : 'Waiting…'}${dropped ? `, ${count(dropped)} left out` : ''}</span>
    </div>
    <div class="log card" ref=${box} tabindex="0" role="region" aria-label="Lines of the log">
      ${picked.length ? html`<ol>${picked.map((line) => html`<li key=${line.key} class=${`level-${rank(line)}`}>
        <time class="quiet" datetime=${iso(line.time)}>${clock(line.time)}</time>
        <span class="level">${line.level}</span>
        <span class="text">${line.text}<small class="quiet"> ${line.source}${line.pid ? `, process ${line.pid}` : ''}</small></span></li>`)}</ol>`
      : html`<p class="quiet empty">${known ? 'No line fits.' : 'Waiting for the server…'}</p>`}
    </div>`;
}
