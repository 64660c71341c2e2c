// Numbers, times and sizes as people read them.

const grouped = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });
const clockFormat = new Intl.DateTimeFormat(undefined, {
  hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23',
});
const minuteFormat = new Intl.DateTimeFormat(undefined, {
  hour: '2-digit', minute: '2-digit', hourCycle: 'h23',
});
const dayFormat = new Intl.DateTimeFormat(undefined, { month: 'short', day: 'numeric' });

export const NOTHING = '–';
const isNothing = (value) => value === null || value === undefined || Number.isNaN(value);

/** Three figures: 0.123, 1.23, 12.3, 1,234. */
export function figures(value) {
  if (isNothing(value)) return NOTHING;
  const size = Math.abs(value);
  if (size === 0 || size >= 100) return grouped.format(value);
  const digits = size >= 10 ? 1 : size >= 1 ? 2 : 3;
  return String(Number(value.toFixed(digits)));
}

export const count = (value) => (isNothing(value) ? NOTHING : grouped.format(value));

export function rate(value) {
  if (isNothing(value)) return NOTHING;
  return `${value >= 10 ? grouped.format(value) : Number(value.toFixed(1))}/s`;
}

const STEPS = [[1e9, 's'], [1e6, 'ms'], [1e3, 'µs'], [1, 'ns']];

/** Nanoseconds as a length of time: '1.2 ms'. */
export function duration(ns) {
  if (isNothing(ns)) return NOTHING;
  if (ns >= 60e9) return span(ns / 1e6);
  const [unit, name] = STEPS.find(([size]) => ns >= size) ?? [1, 'ns'];
  return `${figures(ns / unit)} ${name}`;
}

/** Milliseconds as two units at most: '2 h 5 min'. */
export function span(ms) {
  if (isNothing(ms)) return NOTHING;
  const seconds = Math.max(0, Math.floor(ms / 1000));
  const parts = [
    [Math.floor(seconds / 86400), 'd'], [Math.floor(seconds / 3600) % 24, 'h'],
    [Math.floor(seconds / 60) % 60, 'min'], [seconds % 60, 's'],
  ];
  const first = parts.findIndex(([amount]) => amount > 0);
  if (first < 0) return '0 s';
  return parts.slice(first, first + 2).filter(([amount]) => amount > 0)
    .map(([amount, unit]) => `${amount} ${unit}`).join(' ');
}

const SIZES = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];

export function bytes(size) {
  if (isNothing(size)) return NOTHING;
  let step = 0;
  while (size >= 1024 && step < SIZES.length - 1) {
    size /= 1024;
    step += 1;
  }
  return `${figures(size)} ${SIZES[step]}`;
}

/** A share of 1 as a percentage; what is not nothing is not shown as nothing. */
export function percent(share) {
  if (isNothing(share)) return NOTHING;
  if (share > 0 && share < 0.0001) return '< 0.01 %';
  if (share < 1 && share > 0.9999) return '> 99.99 %';
  return `${Number((share * 100).toFixed(share < 0.1 ? 2 : 1))} %`;
}

/** A moment, in the viewer's zone; with the day if that is not today. */
export function moment(ms, now = Date.now()) {
  if (!ms) return NOTHING;
  const time = clockFormat.format(ms);
  return new Date(ms).toDateString() === new Date(now).toDateString()
    ? time : `${dayFormat.format(ms)}, ${time}`;
}

export const clock = (ms) => clockFormat.format(ms);
export const minute = (ms) => minuteFormat.format(ms);
export const iso = (ms) => new Date(ms).toISOString();

export const ago = (ms, now = Date.now()) => (
  ms ? (now - ms < 2000 ? 'now' : `${span(now - ms)} ago`) : 'never'
);

/** '1 model', '2 models'. */
export const plural = (number, word) => `${count(number)} ${word}${number === 1 ? '' : 's'}`;

/** A shape: '1 × 8 × 8', with 'any' where the model takes any size. */
export const shape = (dims) => (
  dims.length ? dims.map((dim) => (Number(dim) < 0 ? 'any' : String(dim))).join(' × ') : 'scalar'
);
