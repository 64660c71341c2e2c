// Files of numpy: .npy of numbers, truths and texts.

import { decode, encode } from './datatypes.js';
import { product } from './shapes.js';

const NAMES = {
  b1: 'BOOL', i1: 'INT8', i2: 'INT16', i4: 'INT32', i8: 'INT64', u1: 'UINT8', u2: 'UINT16',
  u4: 'UINT32', u8: 'UINT64', f2: 'FP16', f4: 'FP32', f8: 'FP64',
};
const MAGIC = [0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59];

export const isNpy = (bytes) => MAGIC.every((one, i) => bytes[i] === one);

/** The array in a file: {shape, values}. Throws Error in words for whoever chose it. */
export function readNpy(bytes) {
  if (!isNpy(bytes)) throw new Error('This is no .npy file.');
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const isOld = bytes[6] === 1;
  const start = isOld ? 10 : 12;
  const length = isOld ? view.getUint16(8, true) : view.getUint32(8, true);
  const head = new TextDecoder('latin1').decode(bytes.subarray(start, start + length));
  const [, order, kind] = /'descr':\s*'([<>|=])([a-zA-Z]\d+)'/.exec(head) ?? [];
  const [, dims] = /'shape':\s*\(([^)]*)\)/.exec(head) ?? [];
  if (!kind || dims === undefined) throw new Error('This .npy file holds what no model takes, such as Python objects.');
  const shape = dims.split(',').map((dim) => dim.trim()).filter(Boolean).map(Number);
  const values = readValues(bytes.slice(start + length), order, kind, product(shape));
  const isFortran = /'fortran_order':\s*True/.test(head);
  return { shape, values: isFortran ? turn(values, shape) : values };
}

function readValues(data, order, kind, count) {
  const letter = kind[0];
  const size = Number(kind.slice(1));
  if (letter === 'S' || letter === 'U') return readTexts(data, letter, size, count, order);
  const datatype = NAMES[kind];
  if (!datatype) throw new Error(`This .npy file has the dtype ${kind}, which V2 does not know.`);
  if (data.length < count * size) throw new Error('This .npy file is cut off.');
  const plain = data.slice(0, count * size);
  if (order === '>') for (let at = 0; at < plain.length; at += size) plain.subarray(at, at + size).reverse();
  return decode(datatype, plain);
}

function readTexts(data, letter, size, count, order) {
  const width = letter === 'U' ? 4 * size : size;
  if (data.length < count * width) throw new Error('This .npy file is cut off.');
  const view = new DataView(data.buffer);
  return Array.from({ length: count }, (_, i) => {
    const part = data.subarray(i * width, (i + 1) * width);
    if (letter === 'S') {
      const end = part.findLastIndex((byte) => byte !== 0) + 1;
      return part.slice(0, end);
    }
    const points = Array.from({ length: size }, (__, j) => view.getUint32(i * width + 4 * j, order !== '>'));
    // Only zeros at the end are no part of a text.
    return points.slice(0, points.findLastIndex(Boolean) + 1).map((one) => String.fromCodePoint(one)).join('');
  });
}

/** Column-major elements in the order of rows. */
function turn(values, shape) {
  const strides = shape.map((_, i) => product(shape.slice(0, i)));
  const turned = new Array(values.length);
  const at = shape.map(() => 0);
  for (let i = 0; i < values.length; i += 1) {
    turned[i] = values[at.reduce((sum, place, axis) => sum + place * strides[axis], 0)];
    for (let axis = shape.length - 1; axis >= 0; axis -= 1) {
      at[axis] += 1;
      if (at[axis] < shape[axis]) break;
      at[axis] = 0;
    }
  }
  return turned;
}

const DESCRIPTIONS = Object.fromEntries(Object.entries(NAMES).map(([kind, name]) => [name, `${['b1', 'i1', 'u1'].includes(kind) ? '|' : '<'}${kind}`]));
DESCRIPTIONS.BF16 = '<f4';

const isCut = (texts) => texts.some((one) => one.at(-1) === 0);

/** Whether numpy reads the file of a tensor only with allow_pickle=True: strings of a fixed size
    lose the zero bytes at their ends, so texts with some are written as objects of Python. */
export const needsPickle = ({ datatype, bytes }) => datatype === 'BYTES' && isCut(decode('BYTES', bytes));

/** A tensor as a .npy file; BF16 as float32, BYTES as fixed-size strings where these hold them. */
export function writeNpy({ datatype, shape, bytes }) {
  if (datatype === 'BF16') return fileOf(DESCRIPTIONS.BF16, shape, encode('FP32', decode('BF16', bytes)));
  if (datatype !== 'BYTES') return fileOf(DESCRIPTIONS[datatype], shape, bytes);
  const texts = decode('BYTES', bytes);
  if (isCut(texts)) return fileOf('|O', shape, pickleOf(texts, shape));
  const width = texts.reduce((most, one) => Math.max(most, one.length), 1);
  const data = new Uint8Array(width * texts.length);
  texts.forEach((one, i) => data.set(one, i * width));
  return fileOf(`|S${width}`, shape, data);
}

/** A pickle, protocol 3, of numpy.reshape(numpy.array(texts, 'O'), shape). */
function pickleOf(texts, shape) {
  const letters = (text) => new TextEncoder().encode(text);
  const four = (number) => new Uint8Array(Uint32Array.of(number).buffer); // browsers are little-endian
  return joined([
    Uint8Array.of(0x80, 3), letters('cnumpy\nreshape\n(cnumpy\narray\n(]('),
    ...texts.flatMap((one) => [letters('B'), four(one.length), one]),
    letters('eX'), four(1), letters('OtR('), ...shape.flatMap((dim) => [letters('J'), four(dim)]), letters('ttR.'),
  ]);
}

function joined(parts) {
  const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

function fileOf(description, shape, data) {
  const dims = shape.length === 1 ? `${shape[0]},` : shape.join(', ');
  const text = `{'descr': '${description}', 'fortran_order': False, 'shape': (${dims}), }`;
  const head = `${text}${' '.repeat(63 - ((10 + text.length) % 64))}\n`;
  return joined([Uint8Array.of(...MAGIC, 1, 0, head.length & 255, head.length >> 8), new TextEncoder().encode(head), data]);
}
