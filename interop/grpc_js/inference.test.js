// @grpc/grpc-js, the gRPC of Node.js, with our .proto, as a Node program would use it.
const assert = require("node:assert/strict");
const fs = require("node:fs");
const path = require("node:path");
const { test, after } = require("node:test");

const grpc = require("@grpc/grpc-js");
const loader = require("@grpc/proto-loader");

const servers = JSON.parse(process.env.SERVERS);
const definition = loader.loadSync("grpc_service.proto", {
  includeDirs: process.env.PROTOS.split(path.delimiter),
  keepCase: true,
  longs: String,
  defaults: true,
});
const { GRPCInferenceService } = grpc.loadPackageDefinition(definition).inference;
const limits = { "grpc.max_receive_message_length": -1, "grpc.max_send_message_length": -1 };

function connect({ grpc: address, ca }) {
  const credentials = ca
    ? grpc.credentials.createSsl(fs.readFileSync(ca))
    : grpc.credentials.createInsecure();
  const client = new GRPCInferenceService(address, credentials, limits);
  after(() => client.close());
  return client;
}

const soon = () => ({ deadline: Date.now() + 20000 });

function call(client, method, request, metadata = new grpc.Metadata()) {
  return new Promise((resolve, reject) => {
    client[method](request, metadata, soon(), (error, answer) =>
      error ? reject(error) : resolve(answer));
  });
}

function floats(values) {
  return Buffer.from(new Float32Array(values).buffer);
}

function infer(values, more = {}) {
  return {
    model_name: "echo_FP32",
    inputs: [{ name: "INPUT0", datatype: "FP32", shape: [1, values.length] }],
    raw_input_contents: [floats(values)],
    ...more,
  };
}

for (const [name, server] of Object.entries(servers)) {
  test(`${name}: the server and its models are live, ready and described`, async () => {
    const client = connect(server);
    assert.equal((await call(client, "ServerLive", {})).live, true);
    assert.equal((await call(client, "ServerReady", {})).ready, true);
    assert.equal((await call(client, "ModelReady", { name: "echo_FP32" })).ready, true);
    assert.equal((await call(client, "ModelReady", { name: "nobody" })).ready, false);
    assert.equal((await call(client, "ServerMetadata", {})).name, "inferd");
    const metadata = await call(client, "ModelMetadata", { name: "echo_FP32" });
    assert.deepEqual(metadata.inputs, [{ name: "INPUT0", datatype: "FP32", shape: ["-1", "-1"] }]);
  });

  test(`${name}: tensors come back, small and large, raw and typed`, async () => {
    const client = connect(server);
    for (const count of [1, 1000, 1000000]) {
      const values = Array(count).fill(1.5);
      const answer = await call(client, "ModelInfer", infer(values, { id: "42" }));
      assert.equal(answer.id, "42");
      assert.deepEqual(answer.outputs[0].shape, ["1", String(count)]);
      assert.ok(answer.raw_output_contents[0].equals(floats(values)));
    }
    const typed = infer([], { raw_input_contents: [] });
    typed.inputs = [{ name: "INPUT0", datatype: "FP32", shape: [1, 2], contents: { fp32_contents: [0.5, 2] } }];
    const answer = await call(client, "ModelInfer", typed);
    assert.ok(answer.raw_output_contents[0].equals(floats([0.5, 2])));
  });

  test(`${name}: 64-bit integers and text are exact`, async () => {
    const client = connect(server);
    const largest = "9223372036854775807";
    const integers = { name: "INPUT0", datatype: "INT64", shape: [1, 1], contents: { int64_contents: [largest] } };
    let answer = await call(client, "ModelInfer", { model_name: "echo_INT64", inputs: [integers] });
    assert.equal(answer.raw_output_contents[0].readBigInt64LE(), BigInt(largest));
    const text = Buffer.from("日本");
    const texts = { name: "INPUT0", datatype: "BYTES", shape: [1, 1], contents: { bytes_contents: [text] } };
    answer = await call(client, "ModelInfer", { model_name: "echo_BYTES", inputs: [texts] });
    assert.ok(answer.raw_output_contents[0].subarray(4).equals(text));
  });

  test(`${name}: a stream answers each request in its order`, async () => {
    const client = connect(server);
    const stream = client.ModelStreamInfer(new grpc.Metadata(), soon());
    const answers = [];
    const ended = new Promise((resolve, reject) => {
      stream.on("data", (answer) => answers.push(answer));
      stream.on("error", reject);
      stream.on("end", resolve);
    });
    for (let number = 0; number < 20; number++) {
      stream.write(infer([number], { id: String(number) }));
    }
    stream.write(infer([0], { model_name: "nobody" }));
    stream.end();
    await ended;
    assert.equal(answers.length, 21);
    answers.slice(0, 20).forEach((answer, number) => {
      assert.equal(answer.infer_response.id, String(number));
      assert.ok(answer.infer_response.raw_output_contents[0].equals(floats([number])));
    });
    assert.match(answers[20].error_message, /nobody/);
  });

  test(`${name}: errors are statuses with words`, async () => {
    const client = connect(server);
    const unknown = await call(client, "ModelInfer", infer([1], { model_name: "nobody" }))
      .catch((error) => error);
    assert.equal(unknown.code, grpc.status.NOT_FOUND);
    assert.match(unknown.details, /nobody/);
    const short = await call(client, "ModelInfer", infer([1], { raw_input_contents: [Buffer.alloc(3)] }))
      .catch((error) => error);
    assert.equal(short.code, grpc.status.INVALID_ARGUMENT);
  });
}
