// An inference over REST: tensors as binary data, so that every number arrives as it is.

import { call } from '../app/calls.js';
import { readEvents } from '../app/events.js';
import { parseJson, writeJson } from '../app/json.js';
import { modelPath, ofServer } from '../app/place.js';
import { decode } from './datatypes.js';

/** The JSON of a request whose tensors follow it. */
function headOf(request, isBinary) {
  const { id, parameters, outputs, tensors } = request;
  const head = {
    ...(id ? { id } : {}),
    inputs: tensors.map(({ name, datatype, shape, bytes }) => ({
      name, datatype, shape, parameters: { binary_data_size: bytes.length },
    })),
  };
  const given = { ...parameters };
  if (outputs?.length) {
    head.outputs = outputs.map(({ name, classification }) => ({
      name,
      parameters: { binary_data: isBinary, ...(classification ? { classification } : {}) },
    }));
  } else if (isBinary) given.binary_data_output = true;
  if (Object.keys(given).length) head.parameters = given;
  return head;
}

/** The body of a request, and where its JSON ends. */
export function bodyOf(request, isBinary = true) {
  const head = new TextEncoder().encode(writeJson(headOf(request, isBinary)));
  const parts = [head, ...request.tensors.map(({ bytes }) => bytes)];
  const body = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    body.set(part, at);
    at += part.length;
  }
  return { body, headLength: head.length };
}

function post(request, verb, isBinary, signal) {
  const { body, headLength } = bodyOf(request, isBinary);
  return call(ofServer(`${modelPath(request.model, request.version)}/${verb}`), {
    method: 'POST',
    body,
    signal,
    headers: {
      'content-type': 'application/octet-stream', 'inference-header-content-length': String(headLength),
    },
  });
}

const flat = (data) => (Array.isArray(data) ? data.flat(Infinity) : [data]);

/** `wanted` are the outputs of the request: only it says whether texts are classes. */
function outputOf({ name, datatype, shape, data, parameters }, wanted, bytes) {
  const isClasses = Boolean(wanted?.find((one) => one.name === name)?.classification);
  return { name, datatype, shape, parameters, isClasses, values: bytes ? decode(datatype, bytes) : flat(data ?? []) };
}

/** One answer: {outputs: [{name, datatype, shape, values}], version, id, parameters}. */
export async function infer(request, signal) {
  const response = await post(request, 'infer', true, signal);
  const whole = new Uint8Array(await response.arrayBuffer());
  const length = Number(response.headers.get('inference-header-content-length') ?? whole.length);
  const head = parseJson(new TextDecoder().decode(whole.subarray(0, length)));
  let at = length;
  const outputs = head.outputs.map((output) => {
    const size = output.parameters?.binary_data_size;
    if (size === undefined) return outputOf(output, request.outputs);
    const bytes = whole.subarray(at, at + size);
    at += size;
    return outputOf(output, request.outputs, bytes);
  });
  return { outputs, version: head.model_version, id: head.id, parameters: head.parameters };
}

/** The same as a stream: `each(answer)` is called as they come. Throws where the model fails. */
export async function inferStream(request, each, signal) {
  const response = await post(request, 'infer_stream', false, signal);
  let failed = null;
  await readEvents(response, (_, data) => {
    if (data.error !== undefined) failed = new Error(data.error);
    else each({ outputs: (data.outputs ?? []).map((one) => outputOf(one, request.outputs)), version: data.model_version, id: data.id, parameters: data.parameters });
  });
  if (failed) throw failed;
}
