// Keys, unlocking, and the settings of the log and of traces.

import { hasKey, isUnlocked, onAccess, setSession } from '../app/access.js';
import { ActDialog, whyNot } from '../app/acts.js';
import { logSettings, traceSettings, unlock } from '../app/calls.js';
import { html, useEffect, useReducer, useState } from '../app/html.js';
import { headersOf, KeyFields } from '../app/key_form.js';

export default function Settings({ about, notes }) {
  const [, redraw] = useReducer((number) => number + 1, 0);
  useEffect(() => onAccess(redraw), []);
  return html`
    <h1 tabindex="-1">Settings</h1>
    <div class="two">
      <${Keys} about=${about} />
      <${Lock} about=${about} notes=${notes} />
      <${Logging} about=${about} notes=${notes} />
      <${Tracing} about=${about} notes=${notes} />
    </div>`;
}

function Keys({ about }) {
  const headers = headersOf(about);
  return html`<section class="card" aria-labelledby="keys"><h2 id="keys">Key</h2>
    ${about.mode === undefined ? html`<p class="quiet">Waiting for the server…</p>`
      : headers.length ? html`<div class="stack"><p class="quiet">Kept in this tab until you close it, and sent only to this server.</p>
        <${KeyFields} headers=${headers} /></div>`
      : html`<p class="quiet">This server asks for none.</p>`}</section>`;
}

function Lock({ about, notes }) {
  const [token, setToken] = useState('');
  const [error, setError] = useState('');
  const reason = whyNot(about);
  const submit = async (event) => {
    event.preventDefault();
    try {
      await unlock(token);
      setToken('');
      setError('');
      notes.add('This page is unlocked.', 'good');
    } catch (failed) {
      setError(failed.message);
    }
  };
  return html`<section class="card" aria-labelledby="lock"><h2 id="lock">What this page may do</h2>
    ${reason ? html`<p>${reason}</p>` : isUnlocked()
      ? html`<div class="stack"><p>It is unlocked: it may load and unload models, and change the settings below.</p>
        <p><button onClick=${() => setSession('')}>Lock it</button></p></div>`
      : html`<div class="stack"><p>${hasKey() ? 'Your key decides what it may. A token works, too.'
        : 'It is locked. The server printed a token when it started; it works once.'}</p>
        <form class="line" onSubmit=${submit}><label for="unlock">Token</label>
          <input id="unlock" type="password" autocomplete="off" required value=${token} onInput=${(event) => setToken(event.target.value)} />
          <button class="main">Unlock</button></form>
        <p role="alert" class="bad-text">${error}</p></div>`}</section>`;
}

/** Settings of the server, read once, edited here, and sent as an act. */
function useSettings(read, key) {
  const [state, setState] = useState({ values: null, error: '' });
  const [edited, setEdited] = useState({});
  const load = () => read().then((values) => {
    setState({ values, error: '' });
    setEdited({});
  }, (error) => setState({ values: null, error: error.message }));
  useEffect(() => {
    load();
  }, [key]);
  const set = (name, value) => setEdited((before) => ({ ...before, [name]: value }));
  return { ...state, edited, set, load, value: (name) => edited[name] ?? state.values?.[name] };
}

function SettingsCard({ id, title, settings, change, about, notes, act, children }) {
  const [asks, setAsks] = useState(false);
  const changes = Object.entries(settings.edited);
  return html`<section class="card" aria-labelledby=${id}><h2 id=${id}>${title}</h2>
    ${settings.error && html`<p class="bad-text" role="alert">${settings.error}</p>`}
    <form class="stack" onSubmit=${(event) => {
      event.preventDefault();
      setAsks(true);
    }}>${children}
      <div class="buttons"><button class="main" disabled=${!changes.length}>Change…</button>
        ${changes.length > 0 && html`<button type="button" onClick=${settings.load}>Undo</button>`}</div></form>
    ${asks && html`<${ActDialog} title=${change} label="Change" what=${act} about=${about} notes=${notes}
      close=${() => setAsks(false)} done=${settings.load}>
      <ul>${changes.map(([name, value]) => html`<li key=${name}><code>${name}</code>: ${String(value)}</li>`)}</ul><//>`}
  </section>`;
}

const SWITCHES = [['log_info', 'Information'], ['log_warning', 'Warnings'], ['log_error', 'Errors']];

function Logging({ about, notes }) {
  const settings = useSettings(logSettings, '');
  const { values, value, set, edited } = settings;
  return html`<${SettingsCard} id="logging" title="Log" change="Change the log?" settings=${settings}
      about=${about} notes=${notes} act=${{ act: 'logging', settings: edited }}>
    ${values && html`<fieldset><legend>What is logged</legend>
        ${SWITCHES.map(([name, words]) => html`<label class="check" key=${name}><input type="checkbox" checked=${value(name)}
          onChange=${(event) => set(name, event.target.checked)} />${words}</label>`)}</fieldset>
      <div class="field"><label for="verbose">Verbosity, 0 for none</label>
        <input id="verbose" class="short" type="number" min="0" step="1" value=${value('log_verbose_level')}
          onInput=${(event) => set('log_verbose_level', Number(event.target.value))} /></div>
      <div class="field"><label for="format">Format</label><select id="format"
        onChange=${(event) => set('log_format', event.target.value)}>
        ${['default', 'ISO8601', 'json'].map((one) => html`<option key=${one} value=${one} selected=${one === value('log_format')}>${one}</option>`)}</select></div>
      <p class="quiet small">File: ${values.log_file || 'none, it goes to stderr'}</p>`}
  <//>`;
}

function Tracing({ about, notes }) {
  const [typed, setTyped] = useState('');
  const [model, setModel] = useState('');
  const settings = useSettings(() => traceSettings(model), model);
  const { values, value, set, edited } = settings;
  const levels = value('trace_level') ?? [];
  const level = levels.includes('TENSORS') ? 'TENSORS' : levels.includes('TIMESTAMPS') ? 'TIMESTAMPS' : 'OFF';
  const LEVELS = { OFF: ['OFF'], TIMESTAMPS: ['TIMESTAMPS'], TENSORS: ['TIMESTAMPS', 'TENSORS'] };
  return html`<${SettingsCard} id="tracing" title="Traces" change=${model ? `Change the traces of ${model}?` : 'Change the traces?'}
      settings=${settings} about=${about} notes=${notes} act=${{ act: 'trace', model: model || null, settings: edited }}>
    <div class="field"><label for="trace-model">Of one model; empty: of all</label>
      <input id="trace-model" value=${typed} spellcheck="false" onInput=${(event) => setTyped(event.target.value)}
        onChange=${(event) => setModel(event.target.value.trim())} /></div>
    ${values && html`<fieldset><legend>What is traced</legend>
      ${[['OFF', 'Nothing'], ['TIMESTAMPS', 'Times'], ['TENSORS', 'Times and tensors']].map(([name, words]) => html`
        <label class="check" key=${name}><input type="radio" name="level" checked=${level === name}
          onChange=${() => set('trace_level', LEVELS[name])} />${words}</label>`)}</fieldset>
      ${[['trace_rate', 'One of so many requests'], ['trace_count', 'How many more, -1 for no end']].map(([name, words]) => html`
        <div class="field" key=${name}><label for=${name}>${words}</label>
          <input id=${name} class="short" type="number" value=${value(name)} onInput=${(event) => set(name, event.target.value)} /></div>`)}
      <p class="quiet small">File: ${values.trace_file || 'none'}, mode ${values.trace_mode}</p>`}
  <//>`;
}
