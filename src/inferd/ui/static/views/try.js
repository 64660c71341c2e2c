// A model tried by hand: a form made of its metadata, its answer, and the same as a program.

import { hasKey } from '../app/access.js';
import { config as readConfig, metadata as readMetadata } from '../app/calls.js';
import { useEvents } from '../app/events.js';
import { duration } from '../app/format.js';
import { html, useEffect, useMemo, useRef, useState } from '../app/html.js';
import { parseJson } from '../app/json.js';
import { changeModels, emptyModels, keyOf, pick } from '../app/models_state.js';
import { Choice, copyText, saveFile } from '../app/parts.js';
import { link } from '../app/place.js';
import { Answer, Stream } from '../try/answers.js';
import { LANGUAGES, program } from '../try/code.js';
import { describe, Field, startOf, tensorOf } from '../try/field.js';
import { infer, inferStream } from '../try/infer.js';
import { fieldFrom, MOST_LETTERS, pack, sharedOf, unpack } from '../try/share.js';

export default function Try({ model, version, query, notes }) {
  if (!model) return html`<${Choose} />`;
  return html`<${OneModel} model=${model} version=${version} query=${query} notes=${notes} />`;
}

function Choose() {
  const [models] = useEvents({ topics: 'models' }, changeModels, emptyModels);
  const rows = pick(models.rows.values(), { search: '', order: 'name', only: (row) => row.state === 'READY' });
  return html`<h1 tabindex="-1">Try it</h1>
    <p class="quiet">Choose a model to send a request to.</p>
    <ul class="choices">${rows.slice(0, 200).map((row) => html`<li key=${keyOf(row)}>
      <a class="card" href=${link('try', row.name, row.version)}><b><bdi>${row.name}</bdi></b>
        <span class="quiet small">version ${row.version}, ${row.platform || row.backend}</span></a></li>`)}</ul>
    ${rows.length > 200 && html`<p><a href="#/models">All models</a></p>`}
    ${models.known && !rows.length && html`<p>No model is ready.</p>`}`;
}

/** Metadata and configuration of the model, and the form as the address has it. */
function useForm(model, version, query) {
  const [state, setState] = useState({ error: '', inputs: null });
  useEffect(() => {
    let over = false;
    const read = async () => {
      const metadata = await readMetadata(model, version);
      const config = await readConfig(model, version).catch(() => ({}));
      const hasBatch = Number(config.max_batch_size ?? 0) > 0;
      const optional = new Set((config.input ?? []).filter((one) => one.optional).map(({ name }) => name));
      const shape = (dims) => dims.map(Number);
      const inputs = metadata.inputs.map((input) => describe({ ...input, shape: shape(input.shape), optional: optional.has(input.name) }, hasBatch));
      const shared = query.get('form') ? await unpack(query.get('form')) : null;
      const fields = Object.fromEntries(inputs.map((input) => [
        input.name, fieldFrom(startOf(input), shared?.fields?.[input.name], input.ways)]));
      const isDecoupled = Boolean(config.model_transaction_policy?.decoupled);
      const labelled = (config.output ?? []).filter((one) => one.label_filename).map(({ name }) => name);
      const more = { stream: isDecoupled, id: '', parameters: '', classes: labelled.length ? 5 : 0 };
      for (const [name, value] of Object.entries(shared?.more ?? {})) if (typeof value === typeof more[name]) more[name] = value;
      if (!over) setState({ inputs, fields, more, hasBatch, labelled, isDecoupled, outputs: metadata.outputs, error: '' });
    };
    read().catch((error) => over || setState({ error: error.message, inputs: null }));
    return () => {
      over = true;
    };
  }, [model, version]);
  return [state, setState];
}

/** The request of the form; throws Error where it is not filled in. */
function requestOf(model, version, { inputs, fields, more, hasBatch, labelled, outputs }) {
  const tensors = [];
  for (const input of inputs) {
    try {
      tensors.push(tensorOf(input, fields[input.name], hasBatch));
    } catch (error) {
      const isEmpty = /^(Nothing|No )/.test(error.message);
      if (!(input.optional && isEmpty)) throw new Error(`${input.name}: ${error.message}`);
    }
  }
  const parameters = more.parameters.trim() ? parseJson(more.parameters) : {};
  if (typeof parameters !== 'object' || Array.isArray(parameters) || parameters === null) throw new Error('The parameters are no JSON object.');
  const wanted = more.classes && labelled.length
    ? outputs.map(({ name }) => ({ name, classification: labelled.includes(name) ? more.classes : 0 })) : [];
  return { model, version, id: more.id, parameters, tensors, outputs: wanted };
}

function OneModel({ model, version, query, notes }) {
  const [state, setState] = useForm(model, version, query);
  const [result, setResult] = useState({ kind: 'none' });
  const running = useRef(null);
  useEffect(() => () => running.current?.abort(), []);
  const setField = (name, changes) => setState((before) => ({
    ...before, fields: { ...before.fields, [name]: { ...before.fields[name], ...changes } } }));
  const setMore = (changes) => setState((before) => ({ ...before, more: { ...before.more, ...changes } }));

  const send = async (event) => {
    event?.preventDefault();
    running.current?.abort();
    const abort = new AbortController();
    running.current = abort;
    const started = performance.now();
    const took = () => performance.now() - started;
    try {
      const request = requestOf(model, version, state);
      if (state.more.stream) {
        const answers = [];
        setResult({ kind: 'stream', answers, running: true });
        await inferStream(request, (answer) => {
          answers.push({ ...answer, at: Date.now(), took: took(), number: answers.length });
          setResult({ kind: 'stream', answers: [...answers], running: true });
        }, abort.signal);
        setResult({ kind: 'stream', answers: [...answers], took: took() });
      } else {
        setResult((before) => ({ ...before, running: true }));
        const answer = await infer(request, abort.signal);
        setResult({ kind: 'answer', answer, took: took() });
      }
    } catch (error) {
      if (error.name === 'AbortError') {
        if (running.current === abort) setResult((before) => ({ ...before, running: false, stopped: true }));
        return;
      }
      setResult((before) => ({ ...(before.kind === 'stream' ? before : {}), kind: before.kind === 'stream' ? 'stream' : 'error', running: false, error: error.message, status: error.status, took: took() }));
    }
  };
  const share = async () => {
    const packed = await pack(sharedOf(state));
    const hasFiles = Object.values(state.fields).some((field) => ['file', 'picture'].includes(field.way) && field.file);
    const address = `${link('try', model, version)}?form=${packed}`;
    if (packed.length > MOST_LETTERS) {
      notes.add('The form is too long for a link.', 'bad');
      return;
    }
    history.replaceState(null, '', address);
    try {
      await copyText(location.href);
      notes.add(hasFiles ? 'The link is copied. Files and pictures are not part of it.' : 'The link is copied: it holds what is filled in.', 'good');
    } catch {
      notes.add('The link is in the address bar: the browser did not let it be copied.', '');
    }
  };

  const head = html`<nav aria-label="Way here" class="small"><a href="#/models">Models</a> / <a href=${link('models', model, version)}><bdi>${model}</bdi></a></nav>
    <h1 tabindex="-1">Try <bdi>${model}</bdi></h1>`;
  if (state.error) return html`${head}<p class="bad-text" role="alert">${state.error}</p>`;
  if (!state.inputs) return html`${head}<p class="quiet">Asking the server what it takes…</p>`;
  return html`${head}
    <div class="try">
      <form class="stack" onSubmit=${send}>
        ${state.inputs.map((input) => html`<${Field} key=${input.name} input=${input} field=${state.fields[input.name]}
          hasBatch=${state.hasBatch} set=${(changes) => setField(input.name, changes)} />`)}
        ${state.inputs.length === 0 && html`<p class="quiet">This model takes no inputs.</p>`}
        <${More} more=${state.more} set=${setMore} state=${state} />
        <div class="buttons"><button class="main">${state.more.stream ? 'Send, and show answers as they come' : 'Send'}</button>
          ${result.running && html`<button type="button" onClick=${() => running.current?.abort()}>Stop</button>`}
          <button type="button" onClick=${share}>Copy a link to this form</button></div>
      </form>
      <${Result} result=${result} />
    </div>
    <${Code} model=${model} version=${version} state=${state} />`;
}

function More({ more, set, state }) {
  return html`<details class="more"><summary>Options of the request</summary><div class="stack">
    <label class="check"><input type="checkbox" checked=${more.stream} onChange=${() => set({ stream: !more.stream })} />
      stream: show answers as they come${state.isDecoupled ? ' (this model gives any number of them)' : ''}</label>
    ${state.labelled.length > 0 && html`<div class="field"><label for="classes">Best classes with their labels; 0: the whole tensor</label>
      <input id="classes" class="short" type="number" min="0" value=${more.classes} onInput=${(event) => set({ classes: Number(event.target.value) })} /></div>`}
    <div class="field"><label for="request-id">Id</label><input id="request-id" value=${more.id} spellcheck="false" onInput=${(event) => set({ id: event.target.value })} /></div>
    <div class="field"><label for="parameters">Parameters, a JSON object; also sequence_id, sequence_start, sequence_end, priority, timeout</label>
      <textarea id="parameters" class="code" rows="2" spellcheck="false" placeholder='{"sequence_id": 7, "sequence_start": true}' value=${more.parameters}
        onInput=${(event) => set({ parameters: event.target.value })}></textarea></div></div></details>`;
}

function Result({ result }) {
  const { kind, running, took } = result;
  const words = running ? (kind === 'stream' ? `${result.answers.length} so far…` : 'Waiting for the answer…')
    : kind === 'none' ? '' : `${result.error ? 'Failed' : result.stopped ? 'Stopped' : 'Answered'}${took === undefined ? '' : ` after ${duration(took * 1e6)}`}`;
  return html`<section class="card result" aria-labelledby="answer">
    <div class="bar-head"><h2 id="answer">Answer</h2><span class="quiet small" role="status">${kind === 'stream' && running ? 'Answers are coming' : words}</span></div>
    ${kind === 'none' && !running && html`<p class="quiet empty">Nothing is sent yet.</p>`}
    ${result.error && html`<p class="error-box" role="alert">${result.status ? html`<b>${result.status}</b> ` : ''}${result.error}</p>`}
    ${kind === 'answer' && html`<${Answer} answer=${result.answer} />
      <p class="small quiet">Version ${result.answer.version}${result.answer.id ? html`, id <bdi class="mono">${result.answer.id}</bdi>` : ''}. The time is what this page saw, with the way there and back.</p>`}
    ${kind === 'stream' && result.answers && html`<${Stream} answers=${result.answers} running=${running} />`}
  </section>`;
}

function Code({ model, version, state }) {
  const [language, setLanguage] = useState('curl');
  const [copied, setCopied] = useState('');
  const made = useMemo(() => {
    try {
      return program(language, requestOf(model, version, state), { isStream: state.more.stream, hasKey: hasKey() });
    } catch (error) {
      return { error: error.message };
    }
  }, [language, state]);
  const copy = () => copyText(made.text).then(() => setCopied('Copied.'), () => setCopied('The browser did not let it be copied.'));
  useEffect(() => setCopied(''), [made]);
  return html`<section class="card" aria-labelledby="code">
    <div class="bar-head"><h2 id="code">The same as a program</h2>
      <${Choice} label="Language" options=${LANGUAGES} value=${language} set=${setLanguage} /></div>
    ${made.error ? html`<p class="quiet">Fill in the form, and the program stands here.</p>` : html`
      <pre class="program" tabindex="0">${made.text}</pre>
      <div class="line"><button onClick=${copy}>Copy</button>
        ${[...made.files].map(([name, data]) => html`<button key=${name} onClick=${() => saveFile(name, data)}>Download ${name}</button>`)}
        <span class="small quiet" role="status">${copied}</span></div>`}
  </section>`;
}
