// The datatypes of V2: numbers as people write them become bytes, and the other way round.

const INTEGERS = {
  INT8: [1, -(2n ** 7n), 2n ** 7n - 1n], INT16: [2, -(2n ** 15n), 2n ** 15n - 1n],
  INT32: [4, -(2n ** 31n), 2n ** 31n - 1n], INT64: [8, -(2n ** 63n), 2n ** 63n - 1n],
  UINT8: [1, 0n, 2n ** 8n - 1n], UINT16: [2, 0n, 2n ** 16n - 1n],
  UINT32: [4, 0n, 2n ** 32n - 1n], UINT64: [8, 0n, 2n ** 64n - 1n],
};
const SIZES = { BOOL: 1, FP16: 2, BF16: 2, FP32: 4, FP64: 8 };

export const isInteger = (datatype) => datatype in INTEGERS;
export const isNumber = (datatype) => datatype in INTEGERS || datatype in SIZES;
export const sizeOf = (datatype) => INTEGERS[datatype]?.[0] ?? SIZES[datatype];

const GETTERS = {
  BOOL: (view, at) => view.getUint8(at) !== 0,
  INT8: (view, at) => view.getInt8(at), UINT8: (view, at) => view.getUint8(at),
  INT16: (view, at) => view.getInt16(at, true), UINT16: (view, at) => view.getUint16(at, true),
  INT32: (view, at) => view.getInt32(at, true), UINT32: (view, at) => view.getUint32(at, true),
  INT64: (view, at) => view.getBigInt64(at, true), UINT64: (view, at) => view.getBigUint64(at, true),
  FP16: (view, at) => fromHalf(view.getUint16(at, true)),
  BF16: (view, at) => fromBrain(view.getUint16(at, true)),
  FP32: (view, at) => view.getFloat32(at, true), FP64: (view, at) => view.getFloat64(at, true),
};
const SETTERS = {
  BOOL: (view, at, value) => view.setUint8(at, value ? 1 : 0),
  INT8: (view, at, value) => view.setInt8(at, value), UINT8: (view, at, value) => view.setUint8(at, value),
  INT16: (view, at, value) => view.setInt16(at, value, true), UINT16: (view, at, value) => view.setUint16(at, value, true),
  INT32: (view, at, value) => view.setInt32(at, value, true), UINT32: (view, at, value) => view.setUint32(at, value, true),
  INT64: (view, at, value) => view.setBigInt64(at, BigInt(value), true),
  UINT64: (view, at, value) => view.setBigUint64(at, BigInt(value), true),
  FP16: (view, at, value) => view.setUint16(at, toHalf(value), true),
  BF16: (view, at, value) => view.setUint16(at, toBrain(value), true),
  FP32: (view, at, value) => view.setFloat32(at, value, true), FP64: (view, at, value) => view.setFloat64(at, value, true),
};

const scratch = new DataView(new ArrayBuffer(4));

function fromHalf(bits) {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return exponent ? sign * 2 ** (exponent - 15) * (1 + fraction / 1024) : sign * 2 ** -14 * (fraction / 1024);
}

/** The nearest half; of two that are as near, the even one. */
function toHalf(value) {
  if (Number.isNaN(value)) return 0x7e00;
  const sign = value < 0 || Object.is(value, -0) ? 0x8000 : 0;
  const size = Math.abs(value);
  if (size >= 65520) return sign | 0x7c00;
  if (size < 2 ** -14) return sign | roundEven(size * 2 ** 24);
  const exponent = Math.min(15, Math.floor(Math.log2(size)));
  const exact = size < 2 ** exponent ? exponent - 1 : size >= 2 ** (exponent + 1) ? exponent + 1 : exponent;
  return sign | (((exact + 15) << 10) + roundEven((size / 2 ** exact - 1) * 1024));
}

function roundEven(value) {
  const floor = Math.floor(value);
  const rest = value - floor;
  return rest > 0.5 || (rest === 0.5 && floor % 2 === 1) ? floor + 1 : floor;
}

function fromBrain(bits) {
  scratch.setUint32(0, bits << 16);
  return scratch.getFloat32(0);
}

function toBrain(value) {
  scratch.setFloat32(0, value);
  const bits = scratch.getUint32(0);
  if (Number.isNaN(value)) return 0x7fc0;
  return ((bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16) & 0xffff;
}

/** One number or truth as `datatype` has it. Throws Error, in words for whoever typed it. */
export function checkValue(datatype, value) {
  if (datatype === 'BOOL') {
    if (value === true || value === 1) return true;
    if (value === false || value === 0) return false;
    throw new Error(`${String(value)} is no BOOL: write true or false.`);
  }
  if (typeof value === 'boolean') value = Number(value);
  if (typeof value !== 'number' && typeof value !== 'bigint') throw new Error(`${JSON.stringify(value)} is no number.`);
  if (!(datatype in INTEGERS)) return Number(value);
  if (typeof value === 'number' && !Number.isInteger(value)) throw new Error(`${value} is no integer, as ${datatype} wants.`);
  const [, least, most] = INTEGERS[datatype];
  const exact = BigInt(value);
  if (exact < least || exact > most) throw new Error(`${value} does not fit ${datatype}: it takes ${least} to ${most}.`);
  return value;
}

const encoder = new TextEncoder();
const toBytes = (value) => (value instanceof Uint8Array ? value : encoder.encode(typeof value === 'string' ? value : JSON.stringify(value)));

/** Elements as the bytes of a tensor, little-endian; those of BYTES after their lengths. */
export function encode(datatype, values) {
  if (datatype === 'BYTES') {
    const parts = values.map(toBytes);
    const whole = new Uint8Array(parts.reduce((sum, part) => sum + 4 + part.length, 0));
    const view = new DataView(whole.buffer);
    let at = 0;
    for (const part of parts) {
      view.setUint32(at, part.length, true);
      whole.set(part, at + 4);
      at += 4 + part.length;
    }
    return whole;
  }
  const size = sizeOf(datatype);
  const set = SETTERS[datatype];
  if (!set) throw new Error(`This page does not know the datatype ${datatype}.`);
  const view = new DataView(new ArrayBuffer(values.length * size));
  for (let i = 0; i < values.length; i += 1) set(view, i * size, checkValue(datatype, values[i]));
  return new Uint8Array(view.buffer);
}

/** The elements of a tensor's bytes: numbers, BigInts, truths, or Uint8Arrays for BYTES. */
export function decode(datatype, bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const values = [];
  if (datatype === 'BYTES') {
    for (let at = 0; at < bytes.length;) {
      const length = view.getUint32(at, true);
      values.push(bytes.subarray(at + 4, at + 4 + length));
      at += 4 + length;
    }
    return values;
  }
  const size = sizeOf(datatype);
  const get = GETTERS[datatype];
  if (!get) throw new Error(`This page does not know the datatype ${datatype}.`);
  for (let at = 0; at + size <= bytes.length; at += size) values.push(get(view, at));
  return values;
}

/** The shortest number that is the same 32-bit float: 0.1, not 0.10000000149011612. */
export function shortest(value) {
  for (let digits = 6; digits < 10; digits += 1) {
    const short = Number(value.toPrecision(digits));
    if (Math.fround(short) === value) return short;
  }
  return value;
}

/** A number as people read it: all that its datatype holds, and no digits that it does not. */
export function writeNumber(datatype, value) {
  if (datatype === 'FP32') return String(shortest(value));
  return String(datatype === 'FP16' || datatype === 'BF16' ? Number(value.toPrecision(9)) : value);
}

const strict = new TextDecoder('utf-8', { fatal: true });

/** A BYTES element as text, or null where it is none. */
export function asText(bytes) {
  try {
    return strict.decode(bytes);
  } catch {
    return null;
  }
}

export function base64(bytes) {
  let text = '';
  for (let at = 0; at < bytes.length; at += 0x8000) text += String.fromCharCode(...bytes.subarray(at, at + 0x8000));
  return btoa(text);
}

export const fromBase64 = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
