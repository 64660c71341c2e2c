// Where things are. All URLs are relative to the page, so that a path prefix in front does no harm.

const PAGE = new URL('.', location.href.split('#')[0]);

/** The URL of a call of the dashboard's own, such as 'events'. */
export const ofPage = (path) => new URL(path, PAGE).href;

/** The URL of a call of V2; `path` begins with a slash. */
export const ofServer = (path) => new URL(`..${path}`, PAGE).href;

/** The path of a model version below the server's root. */
export function modelPath(name, version) {
  const path = `/v2/models/${encodeURIComponent(name)}`;
  return version ? `${path}/versions/${encodeURIComponent(version)}` : path;
}

/** A link within the page: link('models', name, version). */
export const link = (...parts) => `#/${parts.filter(Boolean).map(encodeURIComponent).join('/')}`;

/** The parts and the query of what stands behind '#/'. */
export function readRoute(hash) {
  const [path, query = ''] = hash.replace(/^#\/?/, '').split('?', 2);
  const parts = path.split('/').filter(Boolean).map(decodePart);
  return { parts, query: new URLSearchParams(query) };
}

function decodePart(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
