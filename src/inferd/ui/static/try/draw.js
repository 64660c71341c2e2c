// A sheet to draw on, with a pointer or with the arrow keys.

import { html, useEffect, useLayoutEffect, useRef, useState } from '../app/html.js';
import { pixels } from './picture.js';

const SIDE = 256;
const STEP = 0.03; // what an arrow key moves the pen by
const round = (value) => Math.round(value * 1000) / 1000;

function trace(context, strokes, place) {
  context.lineCap = 'round';
  context.lineJoin = 'round';
  for (const stroke of strokes) {
    context.beginPath();
    stroke.forEach(([x, y], i) => {
      const at = place([x, y]);
      if (i === 0) context.moveTo(...at);
      context.lineTo(...at);
    });
    context.stroke();
  }
}

/** What part of its picture a digit fills, and how thick its lines are, as in well-known data. */
const styleOf = (width) => (width <= 12 ? { fill: 0.87, pen: 0.13 } : { fill: 20 / 28 - 0.07, pen: 0.075 });

/**
 * Strokes as an image of a size, light on dark. `centre` moves and scales them to where the digits
 * stand that models are trained with.
 */
export function imageOf(strokes, width, height, centre) {
  const canvas = Object.assign(document.createElement('canvas'), { width: SIDE, height: SIDE });
  const context = canvas.getContext('2d', { willReadFrequently: true });
  context.fillStyle = '#000';
  context.fillRect(0, 0, SIDE, SIDE);
  context.strokeStyle = '#fff';
  const { fill, pen } = styleOf(width);
  context.lineWidth = pen * SIDE;
  let place = ([x, y]) => [x * SIDE, y * SIDE];
  if (centre && strokes.length) {
    const points = strokes.flat();
    const [xs, ys] = [points.map(([x]) => x), points.map(([, y]) => y)];
    const [left, right, top, low] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
    const scale = Math.min(4, (fill - pen / 2) / Math.max(right - left, low - top, 0.05));
    place = ([x, y]) => [
      SIDE * (0.5 + (x - (left + right) / 2) * scale), SIDE * (0.5 + (y - (top + low) / 2) * scale),
    ];
  }
  trace(context, strokes, place);
  return pixels(canvas, width, height, 'stretch');
}

/** `strokes`: lists of [x, y] from 0 to 1; `change` is told of new ones. */
export function Sheet({ label, strokes, change }) {
  const ref = useRef(null);
  const stroke = useRef(null);
  const [pen, setPen] = useState(null); // where the keyboard's pen is: {x, y, down}

  useLayoutEffect(() => {
    const context = ref.current.getContext('2d');
    context.clearRect(0, 0, SIDE, SIDE);
    const style = getComputedStyle(ref.current);
    context.strokeStyle = style.color;
    context.lineWidth = 22;
    trace(context, stroke.current ? [...strokes, stroke.current] : strokes, ([x, y]) => [x * SIDE, y * SIDE]);
    if (pen) {
      context.lineWidth = 3;
      context.strokeStyle = style.outlineColor;
      context.beginPath();
      context.arc(pen.x * SIDE, pen.y * SIDE, pen.down ? 9 : 14, 0, 2 * Math.PI);
      context.stroke();
    }
  });

  const at = (event) => {
    const box = ref.current.getBoundingClientRect();
    return [round((event.clientX - box.left) / box.width), round((event.clientY - box.top) / box.height)];
  };
  const down = (event) => {
    ref.current.setPointerCapture(event.pointerId);
    stroke.current = [at(event)];
    setPen(null);
    event.preventDefault();
    ref.current.focus({ preventScroll: true });
  };
  const [, redraw] = useState(0);
  const move = (event) => {
    if (!stroke.current) return;
    stroke.current.push(at(event));
    redraw((number) => number + 1);
  };
  const up = () => {
    if (!stroke.current) return;
    const done = stroke.current;
    stroke.current = null;
    change([...strokes, done]);
  };
  const key = (event) => {
    const step = { ArrowLeft: [-STEP, 0], ArrowRight: [STEP, 0], ArrowUp: [0, -STEP], ArrowDown: [0, STEP] }[event.key];
    const here = pen ?? { x: 0.5, y: 0.2, down: false };
    if (event.key === ' ') {
      setPen({ ...here, down: !here.down });
      if (!here.down) change([...strokes, [[here.x, here.y]]]);
    } else if (step) {
      const x = round(Math.min(1, Math.max(0, here.x + step[0])));
      const y = round(Math.min(1, Math.max(0, here.y + step[1])));
      setPen({ ...here, x, y });
      if (here.down) change([...strokes.slice(0, -1), [...(strokes.at(-1) ?? []), [x, y]]]);
    } else return;
    event.preventDefault();
  };
  return html`<canvas class="sheet" ref=${ref} width=${SIDE} height=${SIDE} tabindex="0" role="application"
    aria-label=${`${label}: draw with a pointer, or with the arrow keys; the space bar lowers and lifts the pen`}
    onPointerDown=${down} onPointerMove=${move} onPointerUp=${up} onPointerCancel=${up} onKeyDown=${key}
    onBlur=${() => setPen(null)}></canvas>`;
}

/** The picture as the model gets it, enlarged. */
export function Preview({ image }) {
  const ref = useRef(null);
  useEffect(() => {
    if (!image) return;
    ref.current.width = image.width;
    ref.current.height = image.height;
    ref.current.getContext('2d').putImageData(image, 0, 0);
  }, [image]);
  return html`<canvas class="preview" ref=${ref} role="img" aria-label="What the model gets"></canvas>`;
}
