// Calls of the server: V2 as every client makes them, and the two of the dashboard's own.

import { accessHeaders, actHeaders, setSession } from './access.js';
import { parseJson } from './json.js';
import { modelPath, ofPage, ofServer } from './place.js';

/** A call that was refused or failed; `status` is 0 where no answer came. */
export class CallError extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

/** What a failed answer says, in one sentence. */
export async function errorOf(response) {
  const text = await response.text().catch(() => '');
  try {
    const { error } = JSON.parse(text);
    if (typeof error === 'string') return new CallError(response.status, error);
  } catch {
    // Not JSON: a proxy's page, or nothing.
  }
  const words = text && text.length < 300 && !text.includes('<') ? `: ${text.trim()}` : '';
  return new CallError(response.status, `The server answered ${response.status}${words}.`);
}

/** Make a call; the answer has a status below 400. Throws CallError. */
export async function call(url, options = {}) {
  let response;
  try {
    response = await fetch(url, {
      ...options,
      headers: { ...accessHeaders(), ...options.headers },
      credentials: 'same-origin',
      cache: 'no-store',
    });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new CallError(0, 'The server does not answer.');
  }
  if (!response.ok) throw await errorOf(response);
  return response;
}

const json = async (url, options) => parseJson(await (await call(url, options)).text());

export const about = () => json(ofPage('about'));
export const metadata = (name, version) => json(ofServer(modelPath(name, version)));
export const config = (name, version) => json(ofServer(`${modelPath(name, version)}/config`));
export const logSettings = () => json(ofServer('/v2/logging'));
export const traceSettings = (name) => json(
  ofServer(name ? `${modelPath(name)}/trace/setting` : '/v2/trace/setting'),
);

const posted = (body, headers) => ({
  method: 'POST',
  body: JSON.stringify(body),
  headers: { 'content-type': 'application/json', ...headers },
});

/** Do what only an unlocked page, or somebody with a key, may; returns what was done, in words. */
export async function act(what) {
  try {
    return (await json(ofPage('act'), posted(what, actHeaders()))).done;
  } catch (error) {
    if (error.status === 401) setSession(''); // it is over: the next try asks for a token
    throw error;
  }
}

/** All models of the repository, also those that were never loaded: [{name, version, …}]. */
export const repositoryIndex = () => json(ofServer('/v2/repository/index'), { method: 'POST' });

/** Exchange the token that the server printed for a session. */
export async function unlock(token) {
  const { session } = await json(ofPage('unlock'), posted({ token: token.trim() }));
  setSession(session);
}
