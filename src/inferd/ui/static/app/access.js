// What this tab may do: the API key that somebody typed, and the session of an unlocked page. Both
// are kept until the tab is closed, and sent only to the server that gave this page.

const KEYS = 'inferd-keys';
const SESSION = 'inferd-session';
const listeners = new Set();

function stored(name, otherwise) {
  try {
    return sessionStorage.getItem(name) ?? otherwise;
  } catch {
    return otherwise;
  }
}

function store(name, value) {
  try {
    if (value) sessionStorage.setItem(name, value);
    else sessionStorage.removeItem(name);
  } catch {
    // A browser without storage: the page forgets it when it is loaded again.
  }
}

let keys = JSON.parse(stored(KEYS, '{}'));
let session = stored(SESSION, '');

function tell() {
  for (const listener of listeners) listener();
}

/** Call `listener` whenever a key or the session changes; returns how to stop that. */
export function onAccess(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** The key for a header, such as 'authorization'. */
export const keyFor = (header) => keys[header] ?? '';

export const hasKey = () => Object.values(keys).some(Boolean);

export function setKey(header, key) {
  keys = { ...keys, [header]: key.trim() };
  store(KEYS, JSON.stringify(keys));
  tell();
}

export const isUnlocked = () => session !== '';

export function setSession(name) {
  session = name;
  store(SESSION, name);
  tell();
}

/** The headers that show who asks. */
export function accessHeaders() {
  const headers = {};
  for (const [header, key] of Object.entries(keys)) {
    if (key) headers[header] = header === 'authorization' ? `Bearer ${key}` : key;
  }
  return headers;
}

/** The headers of an act: those, and the session. */
export function actHeaders() {
  return session ? { ...accessHeaders(), 'x-inferd-ui-session': session } : accessHeaders();
}
