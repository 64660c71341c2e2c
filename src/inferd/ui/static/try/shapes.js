// Shapes: what a nested list has, and what of a declared shape a number of elements settles.

export const product = (dims) => dims.reduce((all, dim) => all * dim, 1);

/** The elements of a nested list in order, and its shape. Throws Error where it is ragged. */
export function flatten(nested) {
  const shape = [];
  for (let level = nested; Array.isArray(level); [level] = level) shape.push(level.length);
  const flat = [];
  const walk = (part, depth) => {
    if (depth === shape.length) {
      if (Array.isArray(part)) throw new Error('The lists in it are not all as deep.');
      flat.push(part);
      return;
    }
    if (!Array.isArray(part) || part.length !== shape[depth]) throw new Error('The lists in it are not all as long.');
    for (const one of part) walk(one, depth + 1);
  };
  walk(nested, 0);
  return { flat, shape };
}

const fits = (shape, declared) => shape.length === declared.length
  && shape.every((dim, i) => declared[i] < 0 || declared[i] === dim);

export const write = (shape) => (shape.length ? shape.join(' × ') : 'scalar');
const writeDeclared = (shape) => write(shape.map((dim) => (dim < 0 ? 'any' : dim)));

/** A shape that somebody typed: '1, 8, 8' or '1 × 8 × 8'; null for nothing. Throws Error. */
export function readShape(text) {
  const words = text.trim().replace(/^\[|\]$/g, '').split(/[\s,×x]+/).filter(Boolean);
  if (!words.length) return null;
  return words.map((word) => {
    if (!/^\d+$/.test(word)) throw new Error(`${word} is no size in a shape.`);
    return Number(word);
  });
}

/**
 * The shape of `count` elements for an input declared as `declared` (-1: any), given as a list of
 * shape `given` or with the shape `typed`. Throws Error where that cannot be.
 */
export function settle(declared, count, given, typed) {
  if (typed) {
    if (product(typed) !== count) throw new Error(`${write(typed)} are ${product(typed)} elements; there are ${count}.`);
    return typed;
  }
  if (given && fits(given, declared)) return given;
  // Without the batch: one row.
  if (given && declared[0] === -1 && fits([1, ...given], declared)) return [1, ...given];
  const open = declared.flatMap((dim, i) => (dim < 0 ? [i] : []));
  const known = product(declared.filter((dim) => dim >= 0));
  if (!open.length) {
    if (known !== count) throw new Error(`The model wants ${writeDeclared(declared)}: ${known} elements. There are ${count}.`);
    return declared;
  }
  if (known === 0 || count % known) throw new Error(`${count} elements do not fit ${writeDeclared(declared)}.`);
  // All but one open size are 1; the last one takes what there is, unless one row is all there is.
  const shape = declared.map((dim) => (dim < 0 ? 1 : dim));
  shape[open.at(-1)] = count / known;
  return shape;
}

/**
 * How an input may hold a picture: {layout, channels, height, width} (0: any size), or null.
 * Of three sizes, the one that is 1, 3 or 4 is that of the channels.
 */
export function pictureOf(declared, hasBatch) {
  const dims = hasBatch || (declared.length > 3) ? declared.slice(1) : declared;
  const size = (dim) => Math.max(0, dim);
  const isSide = (dim) => dim < 0 || dim > 4;
  const isColour = (dim) => [1, 3, 4].includes(dim);
  if (dims.length === 2 && dims.every(isSide)) return { layout: 'HW', channels: 1, height: size(dims[0]), width: size(dims[1]) };
  if (dims.length !== 3) return null;
  if (isColour(dims[0]) && isSide(dims[1]) && isSide(dims[2])) return { layout: 'CHW', channels: dims[0], height: size(dims[1]), width: size(dims[2]) };
  if (isColour(dims[2]) && isSide(dims[0]) && isSide(dims[1])) return { layout: 'HWC', channels: dims[2], height: size(dims[0]), width: size(dims[1]) };
  return null;
}

/** The shape of one picture in a layout, with the batch if the input has one. */
export function shapeOfPicture({ layout, channels, height, width }, rank) {
  const dims = { HW: [height, width], CHW: [channels, height, width], HWC: [height, width, channels] }[layout];
  return rank > dims.length ? [...new Array(rank - dims.length).fill(1), ...dims] : dims;
}
