// Pictures: a file becomes the elements of a tensor, and a tensor becomes a picture.

/** Ways to scale a channel of 0 to 255; each with what it is for. */
export const SCALES = [
  ['unit', '0 to 1'], ['byte', '0 to 255'], ['signed', '−1 to 1'], ['sixteen', '0 to 16'],
  ['imagenet', 'less ImageNet’s mean, by its deviation'],
];
const MEAN = [0.485, 0.456, 0.406];
const DEVIATION = [0.229, 0.224, 0.225];

/** The scale that an input likely wants. */
export function guessScale(datatype, { height, width }) {
  if (datatype === 'UINT8' || datatype.startsWith('INT') || datatype.startsWith('UINT')) return 'byte';
  return height === 8 && width === 8 ? 'sixteen' : 'unit'; // scikit-learn's digits go from 0 to 16
}

function scaled(value, channel, scale) {
  switch (scale) {
    case 'byte': return value;
    case 'signed': return value / 127.5 - 1;
    case 'sixteen': return Math.round((value / 255) * 16); // whole numbers, as the digits there
    case 'imagenet': return (value / 255 - MEAN[channel % 3]) / DEVIATION[channel % 3];
    default: return value / 255;
  }
}

/** The picture in a file, or null where the browser knows none in it. */
export async function readPicture(file) {
  try {
    return await createImageBitmap(file);
  } catch {
    return null;
  }
}

/** `source`, a picture or a canvas, at a size: {data, width, height}, RGBA. Smaller is averaged. */
export function pixels(source, width, height, fit) {
  // Halving again and again averages all pixels; one large step of drawImage leaves some out.
  let current = source;
  let [w, h] = [source.width, source.height];
  while (w > 2 * width && h > 2 * height) {
    [w, h] = [Math.ceil(w / 2), Math.ceil(h / 2)];
    current = drawn(current, w, h, [0, 0, w, h]);
  }
  const box = fit === 'whole' ? inside(w, h, width, height) : fit === 'crop' ? around(w, h, width, height) : [0, 0, width, height];
  const canvas = drawn(current, width, height, box);
  return canvas.getContext('2d').getImageData(0, 0, width, height);
}

function drawn(source, width, height, [x, y, w, h]) {
  const canvas = Object.assign(document.createElement('canvas'), { width, height });
  const context = canvas.getContext('2d', { willReadFrequently: true });
  context.fillStyle = '#000';
  context.fillRect(0, 0, width, height);
  context.imageSmoothingQuality = 'high';
  context.drawImage(source, x, y, w, h);
  return canvas;
}

function inside(w, h, width, height) {
  const scale = Math.min(width / w, height / h);
  return [(width - w * scale) / 2, (height - h * scale) / 2, w * scale, h * scale];
}

function around(w, h, width, height) {
  const scale = Math.max(width / w, height / h);
  return [(width - w * scale) / 2, (height - h * scale) / 2, w * scale, h * scale];
}

const grey = (data, at) => 0.299 * data[at] + 0.587 * data[at + 1] + 0.114 * data[at + 2];

/** The elements of an image in a layout; integers are rounded. */
export function elements({ data, width, height }, { layout, channels }, { scale, invert, order, whole }) {
  const size = width * height;
  const values = new Array(size * channels);
  for (let i = 0; i < size; i += 1) {
    for (let c = 0; c < channels; c += 1) {
      const from = order === 'BGR' && c < 3 ? 2 - c : c;
      let value = channels === 1 ? grey(data, 4 * i) : data[4 * i + from];
      if (invert && c < 3) value = 255 - value;
      value = scaled(value, c, scale);
      values[layout === 'CHW' ? c * size + i : i * channels + c] = whole ? Math.round(value) : value;
    }
  }
  return values;
}

/** Draw a tensor onto a canvas, from its least value to its greatest. */
export function paint(canvas, values, { layout, channels, height, width }) {
  canvas.width = width;
  canvas.height = height;
  const context = canvas.getContext('2d');
  const image = context.createImageData(width, height);
  const numbers = values.map(Number);
  let [low, high] = [Infinity, -Infinity];
  for (const value of numbers) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  const range = low >= 0 && high <= 255 && high > 1 ? [0, 255] : low >= 0 && high <= 1 ? [0, 1] : [low, high];
  const toByte = (value) => (255 * (value - range[0])) / (range[1] - range[0] || 1);
  const size = width * height;
  for (let i = 0; i < size; i += 1) {
    for (let c = 0; c < 4; c += 1) {
      const from = channels === 1 ? 0 : c;
      const value = c === 3 && channels < 4 ? range[1] : numbers[layout === 'CHW' ? from * size + i : i * channels + from];
      image.data[4 * i + c] = toByte(value);
    }
  }
  context.putImageData(image, 0, 0);
}
