// The same request as a program: short tensors stand in it, long ones in files beside it.

import { writeJson } from '../app/json.js';
import { modelPath, ofServer } from '../app/place.js';
import { asText, base64, decode, shortest } from './datatypes.js';
import { bodyOf } from './infer.js';
import { needsPickle, writeNpy } from './npy.js';

const MOST_ELEMENTS = 80;

const WORDS = new Map([[true, 'True'], [false, 'False'], [null, 'None']]);

/** A value of JSON as Python has it; words such as true stay as they are in texts. */
function python(value) {
  if (WORDS.has(value)) return WORDS.get(value);
  if (typeof value === 'string') return pythonText(value);
  if (Array.isArray(value)) return `[${value.map(python).join(', ')}]`;
  if (typeof value === 'object') return `{${Object.entries(value).map(([key, one]) => `${pythonText(key)}: ${python(one)}`).join(', ')}}`;
  return typeof value === 'number' && !Number.isFinite(value) ? `float("${value}")` : writeJson(value);
}

const pythonText = (text) => JSON.stringify(text).replace(/[\u007f-\u009f\u2028\u2029]/g, (letter) => `\\u${letter.charCodeAt(0).toString(16).padStart(4, '0')}`);
const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;
const fileOf = (name) => name.replace(/[^\w.-]/g, '_') || 'input';

const NUMPY = {
  BOOL: 'np.bool_', INT8: 'np.int8', INT16: 'np.int16', INT32: 'np.int32', INT64: 'np.int64', UINT8: 'np.uint8',
  UINT16: 'np.uint16', UINT32: 'np.uint32', UINT64: 'np.uint64', FP16: 'np.float16', BF16: 'np.float32',
  FP32: 'np.float32', FP64: 'np.float64', BYTES: 'np.object_',
};
const CONTENTS = {
  BOOL: 'bool_contents', INT8: 'int_contents', INT16: 'int_contents', INT32: 'int_contents', INT64: 'int64_contents',
  UINT8: 'uint_contents', UINT16: 'uint_contents', UINT32: 'uint_contents', UINT64: 'uint64_contents',
  FP32: 'fp32_contents', FP64: 'fp64_contents', BYTES: 'bytes_contents',
};

/** The elements as JSON has them, or null where JSON cannot. */
function jsonData({ datatype, bytes }) {
  const values = decode(datatype, bytes);
  if (datatype === 'BYTES') {
    const texts = values.map(asText);
    return texts.includes(null) ? null : texts;
  }
  if (datatype === 'FP16' || datatype === 'BF16') return null;
  return values.every((value) => typeof value !== 'number' || Number.isFinite(value)) ? values.map((value) => (
    datatype === 'FP32' ? shortest(value) : value)) : null;
}

/** Words as nested lists of a shape; rows of more than one list on lines of their own. */
function nested(words, shape, indent) {
  if (shape.length <= 1) return `[${words.join(', ')}]`;
  const size = words.length / shape[0];
  const rows = Array.from({ length: shape[0] }, (_, i) => nested(words.slice(i * size, (i + 1) * size), shape.slice(1), `${indent} `));
  return rows.length === 1 ? `[${rows[0]}]` : `[${rows.join(`,\n${indent} `)}]`;
}

/** The request as JSON, or null where some of it needs binary data. */
function jsonOf({ id, tensors, outputs, parameters }) {
  const inputs = tensors.map((tensor) => ({ name: tensor.name, datatype: tensor.datatype, shape: tensor.shape, data: jsonData(tensor) }));
  if (inputs.some(({ data }) => data === null || data.length > MOST_ELEMENTS)) return null;
  return {
    ...(id ? { id } : {}), inputs,
    ...(outputs?.length ? { outputs: outputs.map(({ name, classification }) => ({ name, ...(classification ? { parameters: { classification } } : {}) })) } : {}),
    ...(Object.keys(parameters ?? {}).length ? { parameters } : {}),
  };
}

function pretty(body) {
  const text = writeJson(body);
  return text.length < 100 ? text : `{\n${Object.entries(body).map(([key, value]) => ` "${key}": ${Array.isArray(value) && typeof value[0] === 'object'
    ? `[\n${value.map((one) => `  ${writeJson(one)}`).join(',\n')}\n ]` : writeJson(value)}`).join(',\n')}\n}`;
}

/** An array in Python: in the program if it is short, else read from a file. */
function array(tensor, files) {
  const data = jsonData(tensor);
  const isShort = data !== null && data.length <= MOST_ELEMENTS;
  const kind = NUMPY[tensor.datatype];
  if (isShort) {
    const items = tensor.datatype === 'BYTES' ? data.map((one) => `${pythonText(one)}.encode()`) : data.map(python);
    if (!tensor.shape.length) return `np.array(${items[0]}, ${kind})`;
    return `np.array(${nested(items, tensor.shape, '        ')}, ${kind})`;
  }
  if (tensor.datatype === 'BYTES') {
    const [only, ...others] = decode('BYTES', tensor.bytes);
    const name = `${fileOf(tensor.name)}.bin`;
    if (!others.length) {
      files.set(name, only);
      return `np.array([open("${name}", "rb").read()], np.object_).reshape(${tensor.shape.join(', ')})`;
    }
  }
  const name = `${fileOf(tensor.name)}.npy`;
  files.set(name, writeNpy(tensor));
  return `np.load("${name}"${needsPickle(tensor) ? ', allow_pickle=True' : ''})${tensor.datatype === 'BYTES' ? '.astype(np.object_)' : ''}`;
}

function curl(request, verb, hasKey, files) {
  const url = ofServer(`${modelPath(request.model, request.version)}/${verb}`);
  const key = hasKey ? ' \\\n  -H "Authorization: Bearer $INFERD_API_KEY"' : '';
  const body = jsonOf(request);
  const start = `curl -s${verb === 'infer' ? '' : 'N'} ${quoted(url)}${key}`;
  if (body) return `${start} \\\n  -d ${quoted(pretty(body))}`;
  const { body: whole, headLength } = bodyOf(request, false);
  files.set('request.bin', whole);
  return `${start} \\\n  -H 'Inference-Header-Content-Length: ${headLength}' \\\n  --data-binary @request.bin`;
}

function client(request, isStream, hasKey, files) {
  const { model, version, id, parameters = {}, outputs } = request;
  const inputs = request.tensors.map((tensor) => `    ${pythonText(tensor.name)}: ${array(tensor, files)},`).join('\n');
  const sequence = ['sequence_id', 'sequence_start', 'sequence_end', 'priority'];
  const others = Object.fromEntries(Object.entries(parameters).filter(([key]) => !sequence.includes(key)));
  const classes = outputs?.find(({ classification }) => classification)?.classification;
  const more = [
    version && `version=${pythonText(version)}`, id && `id=${pythonText(id)}`, classes && `classification=${classes}`,
    ...sequence.filter((key) => parameters[key] !== undefined).map((key) => `${key}=${python(parameters[key])}`),
    Object.keys(others).length && `parameters=${python(others)}`,
  ].filter(Boolean).map((one) => `, ${one}`).join('');
  const base = ofServer('');
  const key = hasKey ? ', api_key=os.environ["INFERD_API_KEY"]' : '';
  const run = isStream
    ? `    for result in client.stream(${pythonText(model)}, inputs${more}):\n        print(dict(result))`
    : `    result = client.infer(${pythonText(model)}, inputs${more})\n    print(dict(result))`;
  return `${hasKey ? 'import os\n\n' : ''}import numpy as np\nfrom inferd.client import connect\n\ninputs = {\n${inputs}\n}\nwith connect(${pythonText(base)}${key}) as client:\n${run}\n`;
}

const MANY = 'from functools import partial\n';

function triton(request, isStream, hasKey, files) {
  const { model, version, id, parameters = {}, outputs, tensors } = request;
  const at = new URL(ofServer(''));
  const kind = isStream ? 'grpc' : 'http';
  const lines = tensors.flatMap((tensor, i) => [
    `data = ${array(tensor, files)}`,
    `inputs.append(${kind}.InferInput(${pythonText(tensor.name)}, data.shape, "${tensor.datatype}"))`,
    `inputs[${i}].set_data_from_numpy(data)`,
  ]);
  const wanted = outputs?.length ? `, outputs=[${outputs.map(({ name, classification }) => `${kind}.InferRequestedOutput(${pythonText(name)}${classification ? `, class_count=${classification}` : ''})`).join(', ')}]` : '';
  const known = ['sequence_id', 'sequence_start', 'sequence_end', 'priority', 'timeout'];
  const others = Object.fromEntries(Object.entries(parameters).filter(([key]) => !known.includes(key)));
  const more = [
    version && `model_version=${pythonText(version)}`, id && `request_id=${pythonText(id)}`,
    ...known.filter((key) => parameters[key] !== undefined).map((key) => `${key}=${python(parameters[key])}`),
    Object.keys(others).length && `parameters=${python(others)}`,
  ].filter(Boolean).map((one) => `, ${one}`).join('');
  const key = hasKey ? ', headers={"authorization": f"Bearer {os.environ[\'INFERD_API_KEY\']}"}' : '';
  const head = `${hasKey ? 'import os\n' : ''}${isStream ? `${MANY}from queue import Queue\n` : ''}${hasKey || isStream ? '\n' : ''}import numpy as np\nimport tritonclient.${kind} as ${kind}\n\n`;
  const inputs = `inputs = []\n${lines.join('\n')}\n`;
  if (isStream) {
    return `${head}client = grpc.InferenceServerClient("${at.hostname}:8001")\n${inputs}answers = Queue()\nclient.start_stream(lambda result, error: answers.put(error or result)${key})\nclient.async_stream_infer(${pythonText(model)}, inputs${wanted}${more}, enable_empty_final_response=True)\nwhile True:\n    answer = answers.get()\n    print(answer if isinstance(answer, Exception) else answer.get_response())\n    if isinstance(answer, Exception) or answer.get_response().parameters["triton_final_response"].bool_param:\n        break\nclient.stop_stream()\n`.replace(MANY, '');
  }
  const where = `${at.host}${at.pathname.replace(/\/$/, '')}`;
  const safe = at.protocol === 'https:' ? ', ssl=True' : '';
  return `${head}client = http.InferenceServerClient(${pythonText(where)}${safe})\n${inputs}result = client.infer(${pythonText(model)}, inputs${wanted}${more}${key})\nfor output in result.get_response()["outputs"]:\n    print(output["name"], result.as_numpy(output["name"]))\n`;
}

function javascript(request, verb, hasKey, files) {
  const url = ofServer(`${modelPath(request.model, request.version)}/${verb}`);
  const json = jsonOf(request);
  const key = hasKey ? '\n    authorization: `Bearer ${key}`,' : '';
  const hasLong = json && /\d{16}/.test(writeJson(json));
  let head = '';
  let body;
  let headers = `    'content-type': 'application/json',${key}`;
  if (json && !hasLong) body = `JSON.stringify(${pretty(json)})`;
  else if (json) body = `\`${writeJson(json).replace(/[\\`$]/g, '\\$&')}\``;
  else {
    const { body: whole, headLength } = bodyOf(request, false);
    files.set('request.bin', whole);
    head = "const body = await (await fetch('request.bin')).arrayBuffer();\n";
    headers = `    'inference-header-content-length': '${headLength}',${key}`;
    body = 'body';
  }
  const read = verb === 'infer' ? 'console.log(await response.json());'
    : "for await (const text of response.body.pipeThrough(new TextDecoderStream())) {\n  console.log(text); // events: 'data: {...}'\n}";
  return `${head}const response = await fetch(${JSON.stringify(url)}, {\n  method: 'POST',\n  headers: {\n${headers}\n  },\n  body: ${body},\n});\n${read}\n`;
}

const parameterOf = (value) => {
  if (typeof value === 'boolean') return { bool_param: value };
  if (typeof value === 'string') return { string_param: value };
  return Number.isInteger(Number(value)) ? { int64_param: String(value) } : { double_param: value };
};

function grpcurl(request, isStream, hasKey, files) {
  const { model, version, id, parameters = {}, outputs, tensors } = request;
  const params = (given) => ({ parameters: Object.fromEntries(Object.entries(given).map(([name, value]) => [name, parameterOf(value)])) });
  const inContents = tensors.every(({ datatype, bytes }) => {
    const data = datatype in CONTENTS ? decode(datatype, bytes) : null;
    return data && data.length <= MOST_ELEMENTS && data.every((value) => typeof value !== 'number' || Number.isFinite(value));
  });
  const contents = ({ datatype, bytes }) => ({ [CONTENTS[datatype]]: datatype === 'BYTES' ? decode('BYTES', bytes).map(base64)
    : datatype.endsWith('64') && datatype !== 'FP64' ? decode(datatype, bytes).map(String)
      : decode(datatype, bytes).map((value) => (datatype === 'FP32' ? shortest(value) : value)) });
  const message = {
    model_name: model, ...(version ? { model_version: version } : {}), ...(id ? { id } : {}),
    ...(Object.keys(parameters).length ? params(parameters) : {}),
    inputs: tensors.map((tensor) => ({ name: tensor.name, datatype: tensor.datatype, shape: tensor.shape, ...(inContents ? { contents: contents(tensor) } : {}) })),
    ...(outputs?.length ? { outputs: outputs.map(({ name, classification }) => ({ name, ...(classification ? params({ classification }) : {}) })) } : {}),
    ...(inContents ? {} : { raw_input_contents: tensors.map(({ bytes }) => base64(bytes)) }),
  };
  const at = new URL(ofServer(''));
  const key = hasKey ? ' \\\n  -H "authorization: Bearer $INFERD_API_KEY"' : '';
  const plain = at.protocol === 'https:' ? '' : ' -plaintext';
  const method = `inference.GRPCInferenceService/${isStream ? 'ModelStreamInfer' : 'ModelInfer'}`;
  const where = `${at.hostname}:8001 ${method}`;
  if (inContents) return `grpcurl${plain}${key} \\\n  -d ${quoted(pretty(message))} \\\n  ${where}\n`;
  files.set('request.json', new TextEncoder().encode(writeJson(message)));
  return `grpcurl${plain}${key} \\\n  -d @ ${where} < request.json\n`;
}

export const LANGUAGES = [
  ['curl', 'curl'], ['inferd', 'inferd.client'], ['triton', 'tritonclient'], ['javascript', 'JavaScript'], ['grpcurl', 'grpcurl'],
];

/** A program that makes `request`: {text, files: Map of names to bytes}. Keys are never in it. */
export function program(language, request, { isStream, hasKey }) {
  const files = new Map();
  const verb = isStream ? 'infer_stream' : 'infer';
  const text = {
    curl: () => curl(request, verb, hasKey, files), inferd: () => client(request, isStream, hasKey, files),
    triton: () => triton(request, isStream, hasKey, files), javascript: () => javascript(request, verb, hasKey, files),
    grpcurl: () => grpcurl(request, isStream, hasKey, files),
  }[language]();
  return { text, files };
}

