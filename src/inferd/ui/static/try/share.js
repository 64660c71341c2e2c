// A form as text for an address: JSON, made smaller, in letters that an address may have.

import { base64, fromBase64 } from './datatypes.js';

/** An address that is longer is cut by some programs that pass it on. */
export const MOST_LETTERS = 8000;

async function through(bytes, stream) {
  const body = new Blob([bytes]).stream().pipeThrough(stream);
  return new Uint8Array(await new Response(body).arrayBuffer());
}

export async function pack(value) {
  const bytes = new TextEncoder().encode(JSON.stringify(value));
  const packed = await through(bytes, new CompressionStream('deflate-raw'));
  return base64(packed).replaceAll('+', '-').replaceAll('/', '_').replace(/=+$/, '');
}

/** What `pack` was given, or null where the text is none of its. */
export async function unpack(text) {
  try {
    const bytes = fromBase64(text.replaceAll('-', '+').replaceAll('_', '/'));
    return JSON.parse(new TextDecoder().decode(await through(bytes, new DecompressionStream('deflate-raw'))));
  } catch {
    return null;
  }
}

const SHARED = ['way', 'text', 'shape', 'strokes', 'scale', 'fit', 'invert', 'order', 'centre', 'layout'];

/** What of the form goes into an address: no files. */
export const sharedOf = ({ fields, more }) => ({
  fields: Object.fromEntries(Object.entries(fields).map(([name, field]) => [name, Object.fromEntries(
    SHARED.filter((key) => field[key] !== undefined && field[key] !== '').map((key) => [key, field[key]]),
  )])),
  more,
});

const KINDS = {
  way: (one) => typeof one === 'string', text: (one) => typeof one === 'string', shape: (one) => typeof one === 'string',
  strokes: (one) => Array.isArray(one) && one.every((stroke) => Array.isArray(stroke) && stroke.every(
    (point) => Array.isArray(point) && point.length === 2 && point.every((part) => typeof part === 'number'),
  )),
  scale: (one) => typeof one === 'string', fit: (one) => typeof one === 'string', order: (one) => typeof one === 'string',
  layout: (one) => typeof one === 'string', invert: (one) => typeof one === 'boolean', centre: (one) => typeof one === 'boolean',
};

/** A field from an address: only what a field may have. Anybody may have written the address. */
export function fieldFrom(start, given, ways) {
  const field = { ...start };
  for (const key of SHARED) if (given && KINDS[key](given[key])) field[key] = given[key];
  if (!ways.includes(field.way)) field.way = start.way;
  return field;
}
