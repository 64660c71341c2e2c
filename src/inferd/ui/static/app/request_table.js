// Requests that were slow or failed, with their phases.

import { duration, iso, moment, NOTHING } from './format.js';
import { html } from './html.js';
import { PhaseBar } from './parts.js';
import { link } from './place.js';

/** `hasModel`: requests of several models stand in one table. */
export function RequestTable({ rows, caption, hasModel }) {
  const longest = Math.max(0, ...rows.map(({ took }) => took));
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${caption}><table class="requests">
    <caption class="visually-hidden">${caption}</caption>
    <thead><tr><th scope="col">Time</th>${hasModel && html`<th scope="col">Model</th>`}<th scope="col" class="num">Took</th>
      <th scope="col">Phases</th><th scope="col" class="num">Batch</th><th scope="col">Request</th></tr></thead>
    <tbody>${rows.map((row, i) => html`<tr key=${`${row.time}-${row.pid}-${i}`}>
      <th scope="row" class="nowrap"><time datetime=${iso(row.time)}>${moment(row.time)}</time></th>
      ${hasModel && html`<td class="name"><a href=${link('models', row.model, row.version)}><bdi>${row.model}</bdi></a></td>`}
      <td class="num">${duration(row.took)}</td>
      <td class="wide"><${PhaseBar} times=${row} longest=${longest} /></td>
      <td class="num">${row.batch_size || NOTHING}</td>
      <td class="what">${row.status === 'failed' ? html`<span class="pill bad"><i class="dot" aria-hidden="true"></i>failed</span> ` : ''}
        <bdi class="mono">${row.id}</bdi>${row.error ? html`<p class="bad-text reason">${row.error}</p>` : ''}</td>
    </tr>`)}</tbody></table></div>`;
}
