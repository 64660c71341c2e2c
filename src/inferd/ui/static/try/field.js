// One input of the form: which ways there are to give it, and the tensor that comes of each.

import { html, useMemo, useRef, useState } from '../app/html.js';
import { parseTyped } from '../app/json.js';
import { bytes as size, shape as writeShape } from '../app/format.js';
import { Choice } from '../app/parts.js';
import { checkValue, encode, isInteger, isNumber } from './datatypes.js';
import { imageOf, Preview, Sheet } from './draw.js';
import { isNpy, readNpy } from './npy.js';
import { elements, guessScale, pixels, readPicture, SCALES } from './picture.js';
import { flatten, pictureOf, product, readShape, settle, shapeOfPicture, write } from './shapes.js';

export const MOST_BYTES = 64 << 20; // of a file
const OPEN_SIDE = 224; // of a picture, where the model takes any size

const TITLES = {
  text: 'Text', numbers: 'Numbers', json: 'JSON', file: 'File', picture: 'Picture', draw: 'Draw',
};

/** What there is to know of an input: how it may be given, and how a picture lies in it. */
export function describe(input, hasBatch) {
  const picture = isNumber(input.datatype) && input.datatype !== 'BOOL' ? pictureOf(input.shape, hasBatch) : null;
  const ways = input.datatype === 'BYTES' ? ['text', 'json', 'file']
    : [...(picture ? ['draw', 'picture'] : []), 'numbers', 'file'];
  return { ...input, picture, ways };
}

/** The field as it is at first. */
export function startOf(input) {
  const { picture } = input;
  const isSmall = picture?.channels === 1 && Math.max(picture.height, picture.width) <= 64;
  return {
    way: isSmall ? 'draw' : picture ? 'picture' : input.ways[0], text: '', shape: '', strokes: [],
    scale: picture ? guessScale(input.datatype, picture) : 'unit', fit: 'crop', invert: false, order: 'RGB',
    centre: true, layout: picture?.layout ?? 'CHW', file: null,
  };
}

/** Text in which each line is an element, if the input takes more than one; else all of it is one. */
function textElements(input, text, hasBatch) {
  const row = input.shape.slice(hasBatch ? 1 : 0);
  const isOne = row.every((dim) => dim === 1);
  return isOne && !hasBatch ? [text] : text.split('\n');
}

/**
 * The tensor of a field: {name, datatype, shape, bytes, image?}. Throws Error in words for whoever
 * fills in the form.
 */
export function tensorOf(input, field, hasBatch) {
  const { name, datatype } = input;
  const made = valuesOf(input, field, hasBatch);
  if (made.bytes) return { name, datatype, ...made };
  const shape = made.shape ?? settle(input.shape, made.values.length, made.given, readShape(field.shape));
  return { name, datatype, shape, bytes: encode(datatype, made.values), image: made.image };
}

function valuesOf(input, field, hasBatch) {
  switch (field.way) {
    case 'text':
      if (input.shape.slice(hasBatch ? 1 : 0).every((dim) => dim === 1) && !field.lines) {
        return { values: [field.text], shape: input.shape.map(() => 1) };
      }
      return { values: textElements(input, field.text, hasBatch) };
    case 'file': return fileValues(input, field);
    case 'draw': {
      if (!field.strokes.length) throw new Error('Nothing is drawn yet.');
      return pictureValues(input, field, imageOf(field.strokes, ...sizeFor(input), field.centre));
    }
    case 'picture': {
      if (!field.picture) throw new Error('No picture is chosen yet.');
      return pictureValues(input, field, pixels(field.picture, ...sizeFor(input), field.fit));
    }
    default: {
      const { flat, shape } = flatten(parseTyped(field.text));
      if (!field.text.trim()) throw new Error('Nothing is filled in yet.');
      return { values: flat, given: shape };
    }
  }
}

const sizeFor = ({ picture: { width, height } }) => [width || OPEN_SIDE, height || OPEN_SIDE];

function pictureValues(input, field, image) {
  const layout = { ...input.picture, layout: field.layout, width: image.width, height: image.height };
  const values = elements(image, layout, { ...field, whole: isInteger(input.datatype) });
  return { values, shape: shapeOfPicture(layout, input.shape.length), image };
}

function fileValues(input, field) {
  if (!field.file) throw new Error('No file is chosen yet.');
  const { data } = field.file;
  if (isNpy(data)) {
    const { values, shape } = readNpy(data);
    return { values, given: shape };
  }
  if (input.datatype === 'BYTES') return { values: [data], shape: input.shape.map(() => 1) };
  if (/\.(json|txt|csv)$/i.test(field.file.name)) {
    const { flat, shape } = flatten(parseTyped(new TextDecoder().decode(data)));
    return { values: flat, given: shape };
  }
  const one = encode(input.datatype, [0]).length;
  if (data.length % one) throw new Error(`${size(data.length)} are no whole number of ${input.datatype} elements.`);
  return { bytes: data, shape: settle(input.shape, data.length / one, null, readShape(field.shape)) };
}

/** Numbers to begin with: all zeros, or random ones. */
function filled(input, isRandom) {
  const shape = input.shape.map((dim) => (dim < 0 ? 1 : dim));
  const one = () => {
    if (!isRandom) return input.datatype === 'BOOL' ? false : 0;
    if (input.datatype === 'BOOL') return Math.random() < 0.5;
    return isInteger(input.datatype) ? Math.floor(Math.random() * 100) : Number(Math.random().toFixed(3));
  };
  const build = (dims) => (dims.length ? Array.from({ length: dims[0] }, () => build(dims.slice(1))) : checkValue(input.datatype, one()));
  return JSON.stringify(build(shape));
}

const MOST_FILLED = 20_000;

/** The part of the form for one input. `set(changes)` changes the field. */
export function Field({ input, field, set, hasBatch }) {
  const id = `input-${input.name}`;
  const made = useMemo(() => {
    try {
      return tensorOf(input, field, hasBatch);
    } catch (error) {
      return { error: error.message };
    }
  }, [field]);
  const isEmpty = !field.text && !field.file && !field.picture && !field.strokes.length;
  return html`<fieldset class="input card" onPaste=${(event) => take(event, event.clipboardData, input, set)}>
    <legend class="visually-hidden">${input.name}</legend>
    <div class="bar-head"><div class="title-line"><h2><bdi>${input.name}</bdi></h2>
      <span class="quiet small"><span class="mono">${input.datatype}</span> ${writeShape(input.shape)}${input.optional ? ', optional' : ''}</span></div>
      ${input.ways.length > 1 && html`<${Choice} label=${`How to give ${input.name}`} value=${field.way}
        options=${input.ways.map((way) => [way, TITLES[way]])} set=${(way) => set({ way })} />`}</div>
    <${WAYS[field.way]} ...${{ id, input, field, set, made, hasBatch }} />
    <p class=${`small ${made.error && !isEmpty ? 'bad-text' : 'quiet'}`} id=${`${id}-note`}>${
      made.error ? (isEmpty ? '' : made.error) : `Shape ${write(made.shape)}, ${size(made.bytes.length)}.`}</p>
  </fieldset>`;
}

function TextWay({ id, input, field, set, hasBatch }) {
  const isMany = !input.shape.slice(hasBatch ? 1 : 0).every((dim) => dim === 1);
  return html`<label class="visually-hidden" for=${id}>Text for ${input.name}</label>
    <textarea id=${id} rows="4" value=${field.text} placeholder=${isMany ? 'Each line is an element' : 'Text'}
      aria-describedby=${`${id}-note`} onInput=${(event) => set({ text: event.target.value })}></textarea>`;
}

function NumbersWay({ id, input, field, set }) {
  const many = product(input.shape.map((dim) => Math.abs(dim)));
  return html`<label class="visually-hidden" for=${id}>Elements of ${input.name}</label>
    <textarea id=${id} class="code" rows=${many > 8 ? 6 : 2} spellcheck="false" value=${field.text}
      placeholder=${input.datatype === 'BYTES' ? '["one", "two"]' : '1, 2, 3 or [[1, 2], [3, 4]]'} aria-describedby=${`${id}-note`}
      onInput=${(event) => set({ text: event.target.value })}></textarea>
    <div class="line">${input.datatype !== 'BYTES' && many <= MOST_FILLED && html`
      <button type="button" onClick=${() => set({ text: filled(input, false) })}>Zeros</button>
      <button type="button" onClick=${() => set({ text: filled(input, true) })}>Random</button>`}
      ${input.shape.some((dim) => dim < 0) && html`<${ShapeField} ...${{ id, field, set }} />`}</div>`;
}

const ShapeField = ({ id, field, set }) => html`<span class="line"><label class="small quiet" for=${`${id}-shape`}>Shape, if it is not clear</label>
  <input id=${`${id}-shape`} class="short" value=${field.shape} spellcheck="false" onInput=${(event) => set({ shape: event.target.value })} /></span>`;

/** A place for files: choose, drop or paste. */
function FilePlace({ id, input, set, accept, words, children }) {
  const [over, setOver] = useState(false);
  const chooser = useRef(null);
  const dropped = (event) => {
    event.preventDefault();
    setOver(false);
    take(event, event.dataTransfer, input, set);
  };
  return html`<div class=${`drop ${over ? 'over' : ''}`} onDragOver=${(event) => {
    event.preventDefault();
    setOver(true);
  }} onDragLeave=${() => setOver(false)} onDrop=${dropped}>
    ${children}
    <p><label class="button" for=${id}>Choose a file</label> <span class="quiet small">${words}</span></p>
    <input class="visually-hidden" ref=${chooser} id=${id} type="file" accept=${accept} aria-describedby=${`${id}-note`}
      onChange=${(event) => keepFile(event.target.files[0], input, set)} />
  </div>`;
}

function take(event, data, input, set) {
  const [file] = data?.files ?? [];
  if (!file) return;
  event.preventDefault();
  keepFile(file, input, set);
}

/** A picture for an input that takes some becomes one; any other file is kept as its bytes. */
async function keepFile(file, input, set) {
  if (!file) return;
  if (file.size > MOST_BYTES) {
    set({ way: 'file', file: null, problem: `${file.name} has ${size(file.size)}; at most ${size(MOST_BYTES)} are taken here.` });
    return;
  }
  const picture = input.picture ? await readPicture(file) : null;
  if (picture) {
    set({ way: 'picture', picture, file: { name: file.name, data: new Uint8Array(0) }, problem: '' });
    return;
  }
  set({ way: 'file', picture: null, file: { name: file.name, data: new Uint8Array(await file.arrayBuffer()) }, problem: '' });
}

function FileWay({ id, input, field, set }) {
  return html`<${FilePlace} ...${{ id, input, set }} accept=${undefined} words=${input.datatype === 'BYTES'
    ? 'or drop or paste it: its bytes are the element; a .npy file is an array' : 'or drop it: .npy, .json, or raw little-endian numbers'}>
    ${field.file && html`<p><b><bdi>${field.file.name}</bdi></b></p>`}
    ${field.problem && html`<p class="bad-text" role="alert">${field.problem}</p>`}<//>
    ${input.datatype !== 'BYTES' && input.shape.some((dim) => dim < 0) && html`<${ShapeField} ...${{ id, field, set }} />`}`;
}

function PictureOptions({ id, input, field, set }) {
  const { picture } = input;
  const options = (list, key) => html`<select id=${`${id}-${key}`} value=${field[key]} onChange=${(event) => set({ [key]: event.target.value })}>
    ${list.map(([value, words]) => html`<option key=${value} value=${value} selected=${field[key] === value}>${words}</option>`)}</select>`;
  const named = (key, words, list) => html`<span class="line"><label class="small quiet" for=${`${id}-${key}`}>${words}</label>${options(list, key)}</span>`;
  return html`<div class="line options">
    ${named('scale', 'Values', SCALES)}
    ${field.way === 'picture' && named('fit', 'Fit', [['crop', 'fill, cut the rest'], ['whole', 'show all of it'], ['stretch', 'stretch']])}
    ${picture.channels > 1 && named('layout', 'Layout', [['CHW', 'NCHW'], ['HWC', 'NHWC']].filter(([one]) => one === picture.layout || (picture.height === 0 && picture.width === 0)))}
    ${picture.channels >= 3 && named('order', 'Colours', [['RGB', 'RGB'], ['BGR', 'BGR']])}
    <label class="check small"><input type="checkbox" checked=${field.invert} onChange=${() => set({ invert: !field.invert })} />inverted</label>
    ${field.way === 'draw' && html`<label class="check small"><input type="checkbox" checked=${field.centre} onChange=${() => set({ centre: !field.centre })} />centred</label>`}
  </div>`;
}

function PictureWay({ id, input, field, set, made }) {
  return html`<${FilePlace} ...${{ id, input, set }} accept="image/*" words="or drop or paste a picture">
      ${made.image && html`<${Preview} image=${made.image} />`}<//>
    <${PictureOptions} ...${{ id, input, field, set }} />`;
}

function DrawWay({ id, input, field, set, made }) {
  return html`<div class="drawing">
      <${Sheet} label=${input.name} strokes=${field.strokes} change=${(strokes) => set({ strokes })} />
      <div class="stack">${made.image && html`<${Preview} image=${made.image} />`}
        <p class="small quiet">${made.image ? 'This is what the model gets.' : 'Draw here, for instance a digit.'}</p>
        <button type="button" onClick=${() => set({ strokes: [] })} disabled=${!field.strokes.length}>Clear</button></div>
    </div>
    <${PictureOptions} ...${{ id, input, field, set }} />`;
}

const WAYS = { text: TextWay, numbers: NumbersWay, json: NumbersWay, file: FileWay, picture: PictureWay, draw: DrawWay };
