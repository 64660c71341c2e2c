// Answers: each output as text, bars of classes, a picture or a table, whichever suits it.

import { count, duration, figures, moment, shape as writeShape } from '../app/format.js';
import { html, useEffect, useRef, useState } from '../app/html.js';
import { Bars, Choice, saveFile } from '../app/parts.js';
import { asText, base64, encode, writeNumber } from './datatypes.js';
import { writeNpy } from './npy.js';
import { paint } from './picture.js';
import { pictureOf } from './shapes.js';

const MOST_CLASSES = 2000;
const SHOWN_CLASSES = 10;
const SHOWN_CELLS = 400;
const TITLES = { value: 'Value', text: 'Text', classes: 'Classes', bars: 'Bars', picture: 'Picture', table: 'Table' };

/** A BYTES element as people read it: text, or what it is. */
export const readable = (value) => {
  if (!(value instanceof Uint8Array)) return String(value);
  return asText(value) ?? `${count(value.length)} bytes that are no text: ${base64(value.subarray(0, 48))}${value.length > 48 ? '…' : ''}`;
};

const CLASS = /^(-?[\d.e+-]+|nan|-?inf):(\d+)(?::(.*))?$/is;

/** Classes of the extension `classification`: 'VALUE:INDEX:LABEL'. Null where these are none.
    Texts may look so and be none, such as times of day. */
function classesOf({ isClasses, datatype, values }) {
  if (!isClasses || datatype !== 'BYTES' || !values.length) return null;
  const found = values.map((value) => CLASS.exec(readable(value)));
  return found.every(Boolean) ? found.map(([, value, index, label]) => ({ value: Number(value), label: label || index })) : null;
}

/** The ways that an output can be shown, the best first. */
export function waysOf(output) {
  const { datatype, shape, values } = output;
  if (datatype === 'BYTES') return classesOf(output) ? ['classes', 'table'] : ['text', 'table'];
  const ways = values.length === 1 ? ['value', 'table'] : ['table'];
  const row = shape.at(-1) ?? 1;
  const isVector = values.length === row && row > 1 && row <= MOST_CLASSES;
  if (isVector && /^[FB]\w*\d/.test(datatype)) ways.unshift('bars'); // floats: FP32, BF16
  const picture = datatype !== 'BOOL' && pictureOf(shape, shape.length > 3);
  if (picture && picture.height >= 8 && picture.width >= 8 && shape.length > 1 && !isVector) ways.unshift('picture');
  return ways;
}

export function Output({ output }) {
  const ways = waysOf(output);
  const [chosen, choose] = useState('');
  const way = ways.includes(chosen) ? chosen : ways[0];
  const Shown = WAYS[way];
  const save = () => saveFile(`${output.name.replace(/[^\w.-]/g, '_')}.npy`, writeNpy({ ...output, bytes: encode(output.datatype, output.values) }));
  return html`<section class="output" aria-label=${`Output ${output.name}`}>
    <div class="bar-head"><div class="title-line"><h3><bdi>${output.name}</bdi></h3>
      <span class="quiet small"><span class="mono">${output.datatype}</span> ${writeShape(output.shape)}</span></div>
      <div class="line">${ways.length > 1 && html`<${Choice} label=${`How to show ${output.name}`} value=${way}
        options=${ways.map((one) => [one, TITLES[one]])} set=${choose} />`}
        <button class="small-button" onClick=${save}>Save .npy</button></div></div>
    <${Shown} ...${output} output=${output} /></section>`;
}

const TextShown = ({ values }) => html`${values.map((value, i) => html`<pre key=${i} class="answer-text" tabindex="0">${readable(value)}</pre>`)}`;

const ValueShown = ({ values, datatype }) => html`<p class="value">${writeNumber(datatype, values[0])}</p>`;

const ClassesShown = ({ output }) => html`<${Bars} caption=${`Classes of ${output.name}`} columns=${['Class', 'Score']}
  rows=${classesOf(output).map(({ value, label }, i) => ({ label, value, text: figures(value), strong: i === 0 }))} />`;

/** The greatest elements of a vector, by their places. */
function BarsShown({ values, name }) {
  const [all, setAll] = useState(false);
  const ranked = values.map((value, i) => ({ label: String(i), value: Number(value) })).sort((a, b) => b.value - a.value);
  const isShare = ranked.every(({ value }) => value >= 0 && value <= 1.0001);
  const rows = (all ? ranked : ranked.slice(0, SHOWN_CLASSES)).map((row, i) => ({
    ...row, strong: i === 0, text: isShare ? `${(row.value * 100).toFixed(row.value < 0.1 ? 2 : 1)} %` : figures(row.value),
  }));
  return html`<${Bars} caption=${`The greatest elements of ${name}`} columns=${['Place', 'Value']} rows=${rows} />
    ${ranked.length > SHOWN_CLASSES && html`<button class="small-button" onClick=${() => setAll(!all)}>${all ? 'Only the greatest' : `All ${count(ranked.length)}`}</button>`}`;
}

function PictureShown({ values, shape, name }) {
  const ref = useRef(null);
  useEffect(() => paint(ref.current, values, pictureOf(shape, shape.length > 3)), [values]);
  return html`<canvas class="preview large" ref=${ref} role="img" aria-label=${`Output ${name} as a picture`}></canvas>`;
}

/** Rows along all but the last dimension; every number as it is, also beyond 2^53. */
function TableShown({ values, shape, datatype, name }) {
  const [all, setAll] = useState(false);
  const width = Math.max(1, Math.min(shape.at(-1) ?? 1, 64));
  const shown = all ? values : values.slice(0, SHOWN_CELLS);
  const rows = Array.from({ length: Math.ceil(shown.length / width) }, (_, i) => shown.slice(i * width, (i + 1) * width));
  const write = (value) => (datatype === 'BYTES' ? readable(value) : writeNumber(datatype, value));
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${`Elements of ${name}`}><table class="cells">
      <caption class="visually-hidden">Elements of ${name}, by their places</caption>
      <tbody>${rows.map((row, i) => html`<tr key=${i}><th scope="row" class="quiet">${i * width}</th>
        ${row.map((value, j) => html`<td key=${j} class=${datatype === 'BYTES' ? '' : 'num'}>${write(value)}</td>`)}</tr>`)}</tbody></table></div>
    ${values.length > SHOWN_CELLS && html`<button class="small-button" onClick=${() => setAll(!all)}>${all ? 'Fewer' : `All ${count(values.length)} elements`}</button>`}`;
}

const WAYS = { value: ValueShown, text: TextShown, classes: ClassesShown, bars: BarsShown, picture: PictureShown, table: TableShown };

export function Answer({ answer }) {
  return html`<div class="answer stack">${answer.outputs.map((output) => html`<${Output} key=${output.name} output=${output} />`)}
    ${answer.outputs.length === 0 && html`<p class="quiet">An answer without outputs.</p>`}</div>`;
}

/** Answers of a stream: texts as one running text, and every answer with its moment. */
export function Stream({ answers, running }) {
  const texts = answers.flatMap(({ outputs }) => outputs.filter(({ datatype, values }) => datatype === 'BYTES' && values.length === 1));
  const isText = texts.length > 0 && texts.length === answers.length;
  const last = answers.slice(-50);
  return html`<div class="stack">
    ${isText && html`<pre class="answer-text running" tabindex="0" aria-label="The answers as one text">${texts.map(({ values }) => readable(values[0])).join('')}${running ? '▍' : ''}</pre>`}
    <details open=${!isText}><summary>${count(answers.length)} ${answers.length === 1 ? 'answer' : 'answers'}</summary>
      <ol class="stream" start=${answers.length - last.length + 1}>${last.map((answer) => html`<li key=${answer.number}>
        <span class="quiet small">${moment(answer.at)}, after ${duration(answer.took * 1e6)}</span>
        ${answer.outputs.length ? answer.outputs.map((output) => html`<div key=${output.name}><bdi>${output.name}</bdi>: <span class="mono">${brief(output)}</span></div>`)
          : html`<div class="quiet">no outputs: the end</div>`}</li>`)}</ol></details>
  </div>`;
}

const brief = ({ values }) => `${values.slice(0, 12).map(readable).join(', ')}${values.length > 12 ? `, … ${count(values.length)} in all` : ''}`;
