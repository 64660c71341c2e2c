// What the page keeps of the whole server: columns of seconds and minutes, and the last tick.

const LIMITS = { second: 3600, minute: 1440 };

export const emptyOverview = () => ({
  second: { time: [] }, minute: { time: [] }, tick: null, changes: 0,
});

/** The state after an event of the topic overview. The columns are changed in place. */
export function changeOverview(state, name, data) {
  if (name === 'history') {
    return { ...state, second: data.second, minute: data.minute, changes: state.changes + 1 };
  }
  if (name === 'rows') { // seconds that were missed
    const { time } = data.second;
    time.forEach((_, i) => append(state.second, rowOf(data.second, i), LIMITS.second));
    return { ...state, changes: state.changes + 1 };
  }
  if (name !== 'tick') return state;
  const tick = { gpus: [], processes: [], ...data, row: data.row ?? {} }; // no row in the first second
  if (data.row) append(state.second, data.row, LIMITS.second);
  return { ...state, tick, changes: state.changes + 1 };
}

const rowOf = (columns, i) => Object.fromEntries(
  Object.entries(columns).map(([name, column]) => [name, column[i]]),
);

function append(columns, row, limit) {
  const last = columns.time.at(-1);
  if (last !== undefined && row.time < last) return; // told again after a reconnection
  if (row.time === last) for (const column of Object.values(columns)) column.pop(); // newer
  for (const [name, value] of Object.entries(row)) {
    columns[name] ??= new Array(columns.time.length).fill(null);
    if (name !== 'time') columns[name].push(value);
  }
  columns.time.push(row.time);
  for (const column of Object.values(columns)) {
    if (column.length > limit) column.splice(0, column.length - limit);
  }
}

/** Ranges of the charts: seconds shown, seconds a step, the columns that have them. */
export const RANGES = [
  { name: '1 min', words: 'the last minute', seconds: 60, step: 1, from: 'second' },
  { name: '5 min', words: 'the last 5 minutes', seconds: 300, step: 1, from: 'second' },
  { name: '15 min', words: 'the last 15 minutes', seconds: 900, step: 1, from: 'second' },
  { name: '1 h', words: 'the last hour', seconds: 3600, step: 1, from: 'second' },
  { name: '24 h', words: 'the last 24 hours', seconds: 86400, step: 60, from: 'minute' },
];

/**
 * The columns of a range on an even axis, gaps as null: a chart draws no line where the server
 * said nothing. Times are seconds, as uPlot wants them; counts become rates.
 */
export function windowOf(overview, range) {
  const columns = overview[range.from];
  const step = range.step * 1000;
  const end = Math.floor((columns.time.at(-1) ?? Date.now()) / step) * step;
  const length = Math.round((range.seconds * 1000) / step);
  const times = Array.from({ length }, (_, i) => (end - (length - 1 - i) * step) / 1000);
  const places = columns.time.map((time) => length - 1 - Math.round((end - time) / step));
  const column = (name, scale = 1) => {
    const values = new Array(length).fill(null);
    const given = columns[name] ?? [];
    places.forEach((place, i) => {
      const value = given[i];
      if (place >= 0 && value !== null && value !== undefined) values[place] = value * scale;
    });
    return values;
  };
  return { times, column, rate: (name) => column(name, 1 / range.step) };
}
