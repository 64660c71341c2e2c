// Asks the model `digits` from JavaScript, with nothing but fetch: as JSON, and as binary tensors.
//
//     node examples/javascript/ask.mjs [HTTP_URL]
//
// The functions below run in a browser, too.
import { readFile } from "node:fs/promises";

const url = process.argv[2] ?? "http://127.0.0.1:8000";
const infer = `${url}/v2/models/digits/infer`;
const HEAD_LENGTH = "Inference-Header-Content-Length";

// What holds the numbers of a datatype; FP16, BF16 and BYTES need more than this.
const ARRAYS = {
  BOOL: Uint8Array, UINT8: Uint8Array, INT8: Int8Array, UINT16: Uint16Array, INT16: Int16Array,
  UINT32: Uint32Array, INT32: Int32Array, UINT64: BigUint64Array, INT64: BigInt64Array,
  FP32: Float32Array, FP64: Float64Array,
};

async function post(body, headers = {}) {
  const response = await fetch(infer, { method: "POST", body, headers });
  if (!response.ok) throw new Error(`${response.status}: ${(await response.json()).error}`);
  return response;
}

/** Sends tensors as raw bytes behind a head of JSON; returns outputs by name, as typed arrays. */
async function inferBinary(inputs) {
  const head = new TextEncoder().encode(JSON.stringify({
    inputs: inputs.map(({ data, ...tensor }) => (
      { ...tensor, parameters: { binary_data_size: data.byteLength } })),
    parameters: { binary_data_output: true },
  }));
  const body = new Blob([head, ...inputs.map(({ data }) => data)]);
  const response = await post(body, { [HEAD_LENGTH]: String(head.length) });
  const bytes = await response.arrayBuffer();
  let position = Number(response.headers.get(HEAD_LENGTH));
  const answer = JSON.parse(new TextDecoder().decode(bytes.slice(0, position)));
  const outputs = {};
  for (const { name, datatype, parameters } of answer.outputs) {
    const end = position + parameters.binary_data_size;
    outputs[name] = new ARRAYS[datatype](bytes.slice(position, end));
    position = end;
  }
  return outputs;
}

const request = await readFile(new URL("../digits/digit.json", import.meta.url), "utf8");
const plain = await (await post(request)).json();
const [digit] = plain.outputs.find(({ name }) => name === "digit").data;
console.log(`as JSON:   ${digit}`);

const [image] = JSON.parse(request).inputs;
const pixels = Float32Array.from(image.data.flat(Infinity));
const outputs = await inferBinary([{ ...image, data: pixels }]);
const best = outputs.probability[Number(outputs.digit[0])];
console.log(`as binary: ${outputs.digit[0]}, ${(100 * best).toFixed(1)} % sure`);

const refused = await inferBinary([{ ...image, shape: [1, 9, 9], data: pixels }])
  .catch((error) => error.message);
console.log(`a wrong shape: ${refused}`);
