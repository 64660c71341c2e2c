"""The requests that the bench sends and the expected answers, for any server that speaks V2."""

import json
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from tritonclient.grpc import service_pb2

Arrays = dict[str, np.ndarray]

MODELS = {"simple": "simple", "identity": "identity_fp32", "convnet": "convnet_t1"}
NUMPY_TYPES = {"INT32": "<i4", "FP32": "<f4"}
WIRE_TYPES = {np.dtype(code): name for name, code in NUMPY_TYPES.items()}
GRPC_METHOD = "/inference.GRPCInferenceService/ModelInfer"
ID_LENGTH = 12
SIZES = {"simple": (1, 2), "identity": (150_000, 120_000), "convnet": (1, 2)}
"""Per kind, the size that is judged and another: rows of a batch, or elements for identity."""


@dataclass(frozen=True)
class Case:
    """One row of the table: how a request travels, and what it asks for."""

    protocol: str  # json, bin, grpc, or trtis: raw tensors, described in NV-InferRequest
    kind: str  # a key of MODELS
    shape: str = ""  # streams: all calls on one connection; changing: no two heads are alike;
    # regions: tensors in shared memory, in one place for all connections, as perf_analyzer does,
    # and as the row through sockets sends one body; regions-apart: one place per connection

    @property
    def name(self) -> str:
        """The name of the row."""
        return f"{self.protocol}/{self.kind}{'-' * bool(self.shape)}{self.shape}"

    @property
    def concurrencies(self) -> tuple[int, ...]:
        """How many requests are sent at once, each on its own connection unless `shape` differs."""
        return (16,) if self.shape in ("streams", "regions-apart") else (1, 16)

    @property
    def uses_regions(self) -> bool:
        """Whether the tensors lie in shared memory."""
        return self.shape.startswith("regions")


@dataclass(frozen=True)
class Request:
    """One request as it is sent, and the inputs it was made from."""

    path: str
    headers: dict[str, str]
    body: bytes
    inputs: Arrays


ALL_CASES = [
    Case("json", "simple"),
    Case("bin", "simple"),
    Case("grpc", "simple"),
    Case("grpc", "simple", "streams"),
    Case("grpc", "simple", "changing"),
    Case("bin", "identity"),
    Case("bin", "identity", "regions"),
    Case("bin", "identity", "regions-apart"),
    Case("json", "identity"),
    Case("grpc", "identity"),
    Case("grpc", "identity", "regions"),
    Case("bin", "convnet"),
    Case("trtis", "simple"),
    Case("trtis", "identity"),
]


def make_inputs(kind: str, size: int, random: np.random.Generator) -> Arrays:
    """Return random inputs of one kind."""
    if kind == "simple":
        values = random.integers(-1000, 1000, (2, size, 16), dtype=np.int32)
        return {"INPUT0": values[0], "INPUT1": values[1]}
    if kind == "identity":
        return {"INPUT0": random.random(size, dtype=np.float32)}
    return {"INPUT": random.random((size, 3, 224, 224), dtype=np.float32)}


def output_names(kind: str) -> list[str]:
    """Return the names of the outputs that a request of this kind asks for."""
    return {"simple": ["OUTPUT0", "OUTPUT1"], "identity": ["OUTPUT0"]}.get(kind, ["OUTPUT"])


def is_right(kind: str, inputs: Arrays, outputs: Arrays) -> bool:
    """Return whether the flat `outputs` are the right values for `inputs`."""
    if sorted(outputs) != output_names(kind):
        return False
    if kind == "simple":
        a, b = inputs["INPUT0"].ravel(), inputs["INPUT1"].ravel()
        return np.array_equal(outputs["OUTPUT0"], a + b) and np.array_equal(
            outputs["OUTPUT1"], a - b
        )
    if kind == "identity":
        return np.array_equal(outputs["OUTPUT0"], inputs["INPUT0"])
    rows = outputs["OUTPUT"].reshape(len(inputs["INPUT"]), 1000)  # a softmax: each row sums to 1
    return bool(np.allclose(rows.sum(axis=1), 1.0, atol=1e-4) and (rows >= 0).all())


def encode(case: Case, model: str, request_id: str, inputs: Arrays) -> Request:
    """Return the request of `case` to `model`; `request_id` has ID_LENGTH characters, or none."""
    if case.protocol == "trtis":
        return _trtis_request(case, model, request_id, inputs)
    path = f"/v2/models/{model}/infer"
    if case.protocol == "grpc":
        return framed(_grpc_message(case, model, request_id, inputs), inputs)
    binary = case.protocol == "bin"
    document: dict[str, object] = {"id": request_id} if request_id else {}
    document["inputs"] = [_json_input(name, array, binary) for name, array in inputs.items()]
    wanted = {"binary_data": binary}
    document["outputs"] = [{"name": n, "parameters": wanted} for n in output_names(case.kind)]
    head = json.dumps(document, separators=(",", ":")).encode()
    if not binary:
        return Request(path, {"Content-Type": "application/json"}, head, inputs)
    headers = {
        "Content-Type": "application/octet-stream",
        "Inference-Header-Content-Length": str(len(head)),
    }
    tails = b"".join(array.tobytes() for array in inputs.values())
    return Request(path, headers, head + tails, inputs)


def _trtis_request(case: Case, model: str, request_id: str, inputs: Arrays) -> Request:
    """Return the request as old clients send it; an id, which has only digits, is prefixed by 1."""
    batches = case.kind == "simple"
    first = next(iter(inputs.values()))
    parts = [f"batch_size: {len(first) if batches else 1}"]
    for name, array in inputs.items():
        dims = " ".join(f"dims: {dim}" for dim in array.shape[batches:])
        parts.append(f'input {{ name: "{name}" {dims} batch_byte_size: {array.nbytes} }}')
    parts += [f'output {{ name: "{name}" }}' for name in output_names(case.kind)]
    if request_id:
        parts.append(f"id: 1{request_id}")
    headers = {"Content-Type": "application/octet-stream", "NV-InferRequest": " ".join(parts)}
    body = b"".join(array.tobytes() for array in inputs.values())
    return Request(f"/api/infer/{model}?format=binary", headers, body, inputs)


def _json_input(name: str, array: np.ndarray, binary: bool) -> dict[str, object]:  # noqa: FBT001
    entry = {"name": name, "shape": array.shape, "datatype": WIRE_TYPES[array.dtype]}
    if binary:
        return {**entry, "parameters": {"binary_data_size": array.nbytes}}
    return {**entry, "data": array.ravel().tolist()}


def framed(message: service_pb2.ModelInferRequest, inputs: Arrays) -> Request:
    """Return the gRPC request with `message`."""
    data = message.SerializeToString(deterministic=True)
    headers = {"content-type": "application/grpc", "te": "trailers"}
    return Request(GRPC_METHOD, headers, struct.pack(">BI", 0, len(data)) + data, inputs)


def _grpc_message(
    case: Case, model: str, request_id: str, inputs: Arrays
) -> service_pb2.ModelInferRequest:
    message = service_pb2.ModelInferRequest(model_name=model, id=request_id)
    for name, array in inputs.items():
        tensor = message.inputs.add(name=name, datatype=WIRE_TYPES[array.dtype])
        tensor.shape.extend(array.shape)
        message.raw_input_contents.append(array.tobytes())
    for name in output_names(case.kind):
        message.outputs.add(name=name)
    return message


def decode_http(headers: Mapping[str, str], body: bytes) -> tuple[str, Arrays]:
    """Return the id and the flat outputs of a REST answer, JSON or binary."""
    head_length = headers.get("Inference-Header-Content-Length")
    position = int(head_length) if head_length else len(body)
    document = json.loads(body[:position])
    outputs = {}
    for output in document["outputs"]:
        dtype = NUMPY_TYPES[output["datatype"]]
        size_bytes = output.get("parameters", {}).get("binary_data_size")
        if size_bytes is None:
            outputs[output["name"]] = np.array(output["data"], dtype).ravel()
        else:
            outputs[output["name"]] = np.frombuffer(body[position : position + size_bytes], dtype)
            position += size_bytes
    return document.get("id", ""), outputs


def decode_trtis(kind: str, headers: Mapping[str, str], body: bytes) -> tuple[str, Arrays]:
    """Return the id, without its leading 1, and the flat outputs of an answer in the old format."""
    header = headers["NV-InferResponse"]
    dtype = NUMPY_TYPES["INT32" if kind == "simple" else "FP32"]
    outputs = {}
    position = 0
    for name, size in re.findall(r'name: "(\w+)" raw {[^}]*batch_byte_size: (\d+)', header):
        outputs[name] = np.frombuffer(body[position : position + int(size)], dtype)
        position += int(size)
    found = re.search(r"(?<![_\w])id: 1(\d+)", header)
    return found[1] if found else "", outputs


def decode_grpc(message: bytes) -> tuple[str, Arrays]:
    """Return the id and the flat outputs of a ModelInferResponse with raw or typed contents."""
    response = service_pb2.ModelInferResponse.FromString(message)
    outputs = {}
    for number, output in enumerate(response.outputs):
        dtype = NUMPY_TYPES[output.datatype]
        if number < len(response.raw_output_contents):
            array = np.frombuffer(response.raw_output_contents[number], dtype)
        elif output.datatype == "INT32":
            array = np.array(output.contents.int_contents, dtype)
        else:
            array = np.array(output.contents.fp32_contents, dtype)
        outputs[output.name] = array
    return response.id, outputs
