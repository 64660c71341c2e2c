// A link that the server printed ends in #token=T: it unlocks the page, once.

import { unlock } from './calls.js';

const listeners = new Set();
let said = null;

/** What became of the token in the address: null, or {ok, text}. */
export const tokenResult = () => said;

export function onToken(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Take a token out of the address at once, so that it is in no history, and unlock with it. */
export function takeToken() {
  const [, token] = /^#\/?token=(.+)$/.exec(location.hash) ?? [];
  if (!token) return;
  history.replaceState(null, '', `${location.pathname}${location.search}#/`);
  unlock(decoded(token)).then(
    () => tell({ ok: true, text: 'This page is unlocked: models can be loaded and unloaded.' }),
    (error) => tell({ ok: false, text: `The page stays locked. ${error.message}` }),
  );
}

function decoded(token) {
  try {
    return decodeURIComponent(token);
  } catch {
    return token;
  }
}

function tell(result) {
  said = result;
  for (const listener of listeners) listener();
}
