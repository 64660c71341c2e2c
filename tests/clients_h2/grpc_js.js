// Calls the test service with @grpc/grpc-js and prints what it found as JSON.
// node grpc_js.js HOST:PORT plain|edges|keepalive [CA [KEY CERTIFICATE]]
const fs = require("fs");
const grpc = require("@grpc/grpc-js");

const [address, what, ca, key, certificate] = process.argv.slice(2);
const read = (name) => (name ? fs.readFileSync(name) : null);
const credentials = ca
  ? grpc.credentials.createSsl(read(ca), read(key), read(certificate))
  : grpc.credentials.createInsecure();
const options = {
  "grpc.max_receive_message_length": -1,
  "grpc.max_send_message_length": -1,
};
const same = (bytes) => bytes;
const path = (name) => `/test.Service/${name}`;
const soon = () => ({ deadline: Date.now() + 20000 });

const unary = (client, name, message, metadata, callOptions, onCall) =>
  new Promise((resolve) => {
    const call = client.makeUnaryRequest(
      path(name), same, same, Buffer.from(message), metadata || new grpc.Metadata(),
      callOptions || soon(), (error, answer) => resolve({ error, answer, call }));
    call.on("metadata", (found) => { call.initial = found; });
    call.on("status", (status) => { call.final = status; });
    if (onCall) onCall(call);
  });

const sum = (client, count, size) =>
  new Promise((resolve, reject) => {
    const call = client.makeClientStreamRequest(
      path("Sum"), same, same, new grpc.Metadata(), soon(),
      (error, answer) => (error ? reject(error) : resolve(answer.toString())));
    for (let number = 0; number < count; number++) call.write(Buffer.alloc(size));
    call.end();
  });

const all = (call) =>
  new Promise((resolve) => {
    const answers = [];
    call.on("data", (answer) => answers.push(answer));
    call.on("error", (error) => resolve({ answers, code: error.code }));
    call.on("end", () => resolve({ answers, code: 0 }));
  });

async function plain(client) {
  const found = { unary: [] };
  for (const size of [0, 1, 1000, 65536, 3000000]) {
    const { error, answer } = await unary(client, "Echo", Buffer.alloc(size, 7));
    if (error) throw error;
    if (!answer.equals(Buffer.alloc(size, 7))) throw new Error("another message came back");
    found.unary.push(answer.length);
  }
  found.sum = await sum(client, 100, 1000);
  const repeated = await all(client.makeServerStreamRequest(
    path("Repeat"), same, same, Buffer.from("50 10000"), new grpc.Metadata(), soon()));
  found.repeat = [repeated.answers.length, Buffer.concat(repeated.answers).length];
  const chat = client.makeBidiStreamRequest(path("Chat"), same, same, new grpc.Metadata(), soon());
  const heard = all(chat);
  for (let number = 0; number < 10; number++) chat.write(Buffer.from(String(number)));
  chat.end();
  found.chat = (await heard).answers.map(String);
  const many = [...Array(200).keys()].map((n) => unary(client, "Echo", `message ${n}`));
  found.concurrent = (await Promise.all(many))
    .filter(({ answer }, n) => answer.toString() === `message ${n}`).length;
  return found;
}

async function edges(client) {
  const found = {};
  const failed = (await unary(client, "Fail", "")).error;
  found.fail = [failed.code, failed.details, failed.metadata.get("x-trailing")[0]];
  found.unknown = (await unary(client, "Nothing", "")).error.code;
  const late = await unary(client, "Wait", "", null, { deadline: Date.now() + 300 });
  found.late = late.error.code;
  const cancelled = await unary(client, "Wait", "", null, soon(),
    (call) => setTimeout(() => call.cancel(), 200));
  found.cancelled = cancelled.error.code;
  const metadata = new grpc.Metadata();
  metadata.set("x-key", "value");
  metadata.set("x-key-bin", Buffer.from([0, 1, 2, 255]));
  const { call } = await unary(client, "Echo", "", metadata);
  await new Promise((resolve) => setImmediate(resolve));
  found.initial = call.initial.get("x-initial")[0];
  found.trailing = call.final.metadata.get("x-trailing-bin")[0].length;
  const packed = new grpc.Client(address, credentials,
    { ...options, "grpc.default_compression_algorithm": 2 });
  const text = "again and again ".repeat(10000);
  found.gzip = (await unary(packed, "Echo", text, metadata)).answer.length;
  packed.close();
  const failing = client.makeBidiStreamRequest(
    path("FailLate"), same, same, new grpc.Metadata(), soon());
  const heard = all(failing);
  for (let number = 0; number < 3; number++) failing.write(Buffer.from("x"));
  failing.end();
  const { answers, code } = await heard;
  found.failLate = [answers.length, code];
  return found;
}

// A ping may be unanswered for the longer the busier the machine is; a call outlasts that each time.
async function keepalive() {
  let quiet;
  for (const patience of [1000, 4000, 16000]) {
    const client = new grpc.Client(address, credentials, {
      ...options, "grpc.keepalive_time_ms": 100, "grpc.keepalive_timeout_ms": patience,
      "grpc.keepalive_permit_without_calls": 1,
    });
    quiet = await unary(client, "Wait", "", null, { deadline: Date.now() + 1.5 * patience });
    const afterwards = (await unary(client, "Echo", "on")).answer.toString();
    client.close();
    if (quiet.error.code === 4) return { afterwards };
  }
  throw quiet.error;
}

async function main() {
  const client = new grpc.Client(address, credentials, options);
  const found = await { plain, edges, keepalive }[what](client);
  client.close();
  console.log(JSON.stringify(found));
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
