// What the page keeps of all models: rows by name and version.

export const emptyModels = () => ({ rows: new Map(), known: false, changes: 0 });

export const keyOf = ({ name, version }) => `${name}/${version}`;

/** The state after an event of the topic models. */
export function changeModels(state, name, data) {
  if (name !== 'models') return state;
  const rows = data.all ? new Map() : new Map(state.rows);
  for (const key of data.gone ?? []) rows.delete(key);
  for (const row of data.rows) rows.set(keyOf(row), row);
  return { rows, known: true, changes: state.changes + 1 };
}

const number = (value) => value ?? -1;

/** Columns that rows can be sorted by. */
export const ORDERS = {
  name: (a, b) => a.name.localeCompare(b.name) || compareVersions(a.version, b.version),
  state: (a, b) => a.state.localeCompare(b.state) || ORDERS.name(a, b),
  rate: (a, b) => number(b.rate) - number(a.rate),
  p50: (a, b) => number(b.p50) - number(a.p50),
  p95: (a, b) => number(b.p95) - number(a.p95),
  failure: (a, b) => b.failure - a.failure,
  success: (a, b) => b.success - a.success,
  memory: (a, b) => number(b.memory) - number(a.memory),
  instances: (a, b) => b.instances - a.instances,
  batch: (a, b) => meanBatch(b) - meanBatch(a),
  cache: (a, b) => cacheShare(b) - cacheShare(a),
  last: (a, b) => b.last - a.last,
};

const compareVersions = (a, b) => Number(a) - Number(b) || a.localeCompare(b);

/** The mean size of a row's batches; -1 where there were none. */
export function meanBatch({ batch_sizes: sizes = [] }) {
  let runs = 0;
  let requests = 0;
  for (const [size, executions] of sizes) {
    runs += executions;
    requests += size * executions;
  }
  return runs ? requests / runs : -1;
}

export const cacheShare = ({ cache_hit: hit, cache_miss: miss }) => (hit + miss ? hit / (hit + miss) : -1);

/** The rows that hold every word of `search`, in the order `order`; turned round with `up`. */
export function pick(rows, { search, order, up, only }) {
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  const text = (row) => `${row.name} ${row.version} ${row.platform} ${row.backend} ${row.state} ${row.reason}`.toLowerCase();
  const picked = [...rows].filter((row) => only(row) && (
    !words.length || words.every((word) => text(row).includes(word))));
  picked.sort(ORDERS[order]);
  return up ? picked.reverse() : picked;
}
