// Requests as a file of trace events, which ui.perfetto.dev and chrome://tracing show.

import { PHASES } from './parts.js';

/** `rows` as trace events: each request is a slice, its phases lie below it. Times are in µs. */
export function traceOf(rows) {
  const events = [];
  for (const row of rows) {
    const start = row.time * 1000 - row.took / 1000;
    const common = { ph: 'X', pid: row.pid, tid: row.model, cat: row.status };
    const args = { id: row.id, version: row.version, batch_size: row.batch_size, error: row.error };
    events.push({ ...common, name: row.model, ts: start, dur: row.took / 1000, args });
    let at = start;
    for (const [key, name] of PHASES) {
      if (!row[key]) continue;
      events.push({ ...common, name, ts: at, dur: row[key] / 1000 });
      at += row[key] / 1000;
    }
  }
  return { displayTimeUnit: 'ms', traceEvents: events };
}
