"""V2 over REST by plain rules: a message in, a message out."""

import gzip
import json
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from typing import Any
from urllib.parse import unquote_to_bytes

from conformance.checks import flat
from conformance.reference import repository, settings, shared_memory
from conformance.reference.classes import check_classes, classified
from conformance.reference.models import SIZES, Model, Refused, Server, Tensor
from conformance.reference.values import (
    TooLarge,
    decode_base64,
    decode_tensor,
    encode_elements,
    read_float,
)

STATUS = {
    "invalid": 400,
    "not found": 404,
    "internal": 500,
    "unsupported": 501,
    "unavailable": 503,
}
INFERENCE_HEADER = "inference-header-content-length"
METADATA = {
    "name": "reference",
    "version": "1",
    "extensions": [
        "classification",
        "binary_tensor_data",
        "parameters",
        "statistics",
        "trace",
        "logging",
    ],
}


@dataclass
class Request:
    """One HTTP request; header names in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Answer:
    """One HTTP answer; Content-Length is added when it is sent."""

    status: int
    body: bytes
    headers: dict[str, str] = field(default_factory=lambda: {"Content-Type": "application/json"})


def to_json(value: Any) -> bytes:
    """Write JSON without spaces."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def answer(server: Server, request: Request) -> Answer:
    """Answer any request."""
    path = request.path.partition("?")[0]
    try:
        parts = [unquote_to_bytes(part).decode() for part in path.split("/")[1:]]
        if parts[-1] == "" and len(parts) > 1:
            parts.pop()
        verb, call = route(server, parts, request)
        if request.method != verb and not (request.method == "HEAD" and verb == "GET"):
            return Answer(
                405,
                to_json({"error": f"expected {verb}"}),
                {"Content-Type": "application/json", "Allow": verb},
            )
        return call()
    except UnicodeDecodeError:
        return Answer(404, to_json({"error": "the path is no UTF-8"}))
    except Refused as refused:
        headers = {"Content-Type": "application/json"}
        if refused.reason == "unsupported":
            headers["Accept-Encoding"] = "gzip, deflate"
        return Answer(STATUS[refused.reason], to_json({"error": refused.text}), headers)


def route(server: Server, parts: list[str], request: Request) -> tuple[str, Any]:
    """Return the verb of a path and the call that answers it."""
    match parts:
        case ["v2"]:
            return "GET", lambda: Answer(200, to_json(METADATA))
        case ["v2", "health", "live"]:
            return "GET", lambda: Answer(200, to_json({"live": True}))
        case ["v2", "health", "ready"]:
            return "GET", lambda: server_ready(server)
        case ["v2", "logging"]:
            return request.method, lambda: log_settings(server, request)
        case ["v2", "systemsharedmemory" | "cudasharedmemory", *rest]:
            return shared_memory_route(server, rest, request)
        case ["v2", "repository", *rest]:
            return repository_route(server, rest, request)
        case ["v2", "trace", "setting"]:
            return request.method, lambda: trace_settings(server, "", request)
        case ["metrics"]:
            return "GET", lambda: metrics(server)
        case ["v2", "models", *rest]:
            return models_route(server, rest, request)
    msg = "no such path"
    raise Refused(msg, "not found")


def models_route(server: Server, rest: list[str], request: Request) -> tuple[str, Any]:
    """Return the verb of a path below /v2/models, and the call that answers it."""
    match rest:
        case []:
            return "GET", lambda: Answer(200, to_json({"models": list(server.models)}))
        case ["stats"]:
            return "GET", lambda: statistics(server, "", "")
        case _:
            return model_route(server, rest[0], rest[1:], request)


def model_route(server: Server, name: str, rest: list[str], request: Request) -> tuple[str, Any]:
    """Return the verb of a path below a model's, and the call that answers it."""
    version = ""
    if rest[:1] == ["versions"] and len(rest) > 1:
        version, rest = rest[1], rest[2:]
    match rest:
        case []:
            return "GET", lambda: metadata(server, name, version)
        case ["stats"]:
            return "GET", lambda: statistics(server, name, version)
        case ["config"]:
            return "GET", lambda: Answer(200, to_json(repository.config(server, name, version)))
        case ["ready"]:
            return "GET", lambda: model_ready(server, name, version)
        case ["generate"]:
            return "POST", lambda: generate(server, name, version, request)
        case ["generate_stream"]:
            return "POST", lambda: generate_stream(server, name, version, request)
        case ["trace", "setting"]:
            return request.method, lambda: trace_settings(server, name, request)
        case ["infer"]:
            return "POST", lambda: infer(server, name, version, request)
    msg = "no such path"
    raise Refused(msg, "not found")


def statistics(server: Server, name: str, version: str) -> Answer:
    """Answer .../stats."""
    rows = [row | {"response_stats": {}} for row in server.statistics(name, version)]
    return Answer(200, to_json({"model_stats": rows}))


def metrics(server: Server) -> Answer:
    """Answer /metrics."""
    name = "nv_inference_request_success"
    lines = [f"# HELP {name} requests", f"# TYPE {name} counter"]
    for row in server.statistics("", ""):
        labels = f'model="{row["name"]}",version="{row["version"]}"'
        lines.append(f"{name}{{{labels}}} {row['inference_stats']['success']['count']}")
    return Answer(200, "\n".join([*lines, ""]).encode(), {"Content-Type": "text/plain"})


def repository_route(server: Server, rest: list[str], request: Request) -> tuple[str, Any]:
    """Return the verb of a path of the model repository extension, and the call that answers it."""
    match rest:
        case ["index"]:
            return "POST", lambda: Answer(200, to_json(repository.index(server, request.body)))
        case ["models", name, "load"]:
            return "POST", lambda: done(repository.load(server, name, request.body))
        case ["models", name, "unload"]:
            return "POST", lambda: done(repository.unload(server, name))
    msg = "no such path"
    raise Refused(msg, "not found")


def shared_memory_route(server: Server, rest: list[str], request: Request) -> tuple[str, Any]:
    """Return the verb of a path of the shared memory extensions, and the call that answers it."""
    name = rest[1] if rest[:1] == ["region"] and len(rest) == 3 else ""
    match rest[-1]:
        case "status":
            return "GET", lambda: Answer(200, to_json(shared_memory.status(server, name)))
        case "register":
            return "POST", lambda: done(shared_memory.register(server, name, request.body))
        case "unregister":
            return "POST", lambda: done(shared_memory.unregister(server, name))
    msg = "no such path"
    raise Refused(msg, "not found")


def done(_nothing: None) -> Answer:
    """Answer a call that has nothing to tell."""
    return Answer(200, b"")


def log_settings(server: Server, request: Request) -> Answer:
    """Answer /v2/logging."""
    if request.method == "POST":
        settings.change_log(server.log, json.loads(request.body))
    return Answer(200, to_json(server.log))


def trace_settings(server: Server, name: str, request: Request) -> Answer:
    """Answer .../trace/setting."""
    wanted = None
    if request.method == "POST":
        try:
            wanted = settings.trace_document(json.loads(request.body))
        except ValueError as error:
            msg = "the settings are no JSON"
            raise Refused(msg) from error
    found = settings.trace_settings(server, name, wanted)
    told = {key: texts if key == "trace_level" else texts[0] for key, texts in found.items()}
    return Answer(200, to_json(told))


def server_ready(server: Server) -> Answer:
    """Answer /v2/health/ready."""
    if server.ready:
        return Answer(200, to_json({"live": True, "ready": True}))
    return Answer(400, to_json({"live": False, "ready": False, "error": "a model failed"}))


def model_ready(server: Server, name: str, version: str) -> Answer:
    """Answer .../ready."""
    try:
        server.find(name, version)
    except Refused as refused:
        status = 400 if name in server.models and server.models[name].broken else 404
        return Answer(status, to_json({"name": name, "ready": False, "error": refused.text}))
    return Answer(200, to_json({"name": name, "ready": True}))


def metadata(server: Server, name: str, version: str) -> Answer:
    """Answer .../models/<name>."""
    model, chosen = server.find(name, version)
    body: dict[str, Any] = {
        "name": name,
        "versions": [chosen] if version else model.versions,
        "platform": "onnx_onnxv1",
    }
    for key, specs in (("inputs", model.inputs), ("outputs", model.outputs)):
        body[key] = [
            {"name": tensor, "datatype": datatype, "shape": shape}
            for tensor, (datatype, shape) in specs.items()
        ]
    return Answer(200, to_json(body))


def generate(server: Server, name: str, version: str, request: Request) -> Answer:
    """Answer .../generate."""
    answers = generated(server, name, version, request)
    if len(answers) != 1:
        return Answer(500, to_json({"error": f"{len(answers)} answers, expected one"}))
    return Answer(200, to_json(answers[0]))


def generate_stream(server: Server, name: str, version: str, request: Request) -> Answer:
    """Answer .../generate_stream; events that come all at once are events still."""
    answers = generated(server, name, version, request)
    events = b"".join(b"data: %b\n\n" % to_json(one) for one in answers)
    return Answer(200, events, {"Content-Type": "text/event-stream; charset=utf-8"})


def generated(server: Server, name: str, version: str, request: Request) -> list[dict[str, Any]]:
    """Return the answers to a body of generate."""
    model, chosen = server.find(name, version)
    if request.headers.get("content-encoding", "identity") != "identity":
        msg = "generate takes no coded bodies"
        raise Refused(msg)
    document = parse(request.body, members_once)
    head = {"model_name": name, "model_version": chosen}
    if isinstance(document.get("inputs"), list):
        answers = server.stream(name, version, read_inputs(server, document, b""))
        return [
            json.loads(write(head, outputs, {t.name: False for t in outputs}, frozenset()).body)
            for outputs in answers
        ]
    if "id" in document:
        head["id"] = check_type("id", document["id"], str)
    found = []
    for outputs in server.stream(name, version, read_members(model, document)):
        fields: dict[str, Any] = dict(head)
        for tensor in outputs:
            data = decode_tensor(tensor)
            fields[tensor.name] = data[0] if len(data) == 1 else data
        found.append(dict(sorted(fields.items())))
    return found


def read_members(model: Model, document: dict[str, Any]) -> list[Tensor]:
    """Return the members of a flat body that are inputs; the others must be parameters."""
    members = {key: value for key, value in document.items() if key != "parameters"}
    members.update(parameters("the request", document))
    inputs = []
    for key, value in members.items():
        if key in model.inputs:
            inputs.append(flat_input(key, *model.inputs[key], value))
        elif value is None or isinstance(value, dict | list):
            msg = f"parameter '{key}' is no string, number or boolean"
            raise Refused(msg)
    return inputs


def flat_input(name: str, datatype: str, dims: list[int], value: Any) -> Tensor:
    """Return an input whose shape its elements decide: the last variable dim takes the rest."""
    elements = flat(value)
    rest, over = divmod(len(elements), prod(dim for dim in dims if dim != -1))
    if over or (-1 not in dims and rest != 1):
        msg = f"input '{name}' has {len(elements)} elements, expected {dims}"
        raise Refused(msg)
    shape = [1 if dim == -1 else dim for dim in dims]
    if -1 in dims:
        shape[len(dims) - 1 - dims[::-1].index(-1)] = rest
    return Tensor(name, datatype, shape, encode_elements(name, datatype, elements))


def infer(server: Server, name: str, version: str, request: Request) -> Answer:
    """Answer .../infer."""
    model, _ = server.find(name, version)
    body = decompress(request)
    size = request.headers.get(INFERENCE_HEADER)
    if size is not None and not (size.isascii() and size.isdigit()):
        msg = f"{INFERENCE_HEADER} is {size}, expected a number"
        raise Refused(msg)
    length = len(body) if size is None else int(size)
    if length > len(body):
        msg = f"{INFERENCE_HEADER} is {size}, the body has {len(body)} bytes"
        raise Refused(msg)
    if size is not None and length == 0:
        document, inputs = {}, [raw_input(model, body)]
        choices, default, top_k = {}, True, {}
    else:
        document = parse(body[:length])
        inputs = read_inputs(server, document, body[length:])
        choices, default = read_outputs(document)
        top_k = read_classes(document)
    check_classes(model, top_k)
    chosen, outputs = server.infer(
        name, version, inputs, list(choices), parameters("the request", document)
    )
    outputs = [
        classified(model, tensor, top_k[tensor.name]) if tensor.name in top_k else tensor
        for tensor in outputs
    ]
    placed = place_outputs(server, document, outputs)
    head = {"model_name": name, "model_version": chosen}
    if document.get("id"):
        head["id"] = document["id"]
    is_binary = {t.name: choices.get(t.name, default) for t in outputs}
    response = write(head, outputs, is_binary, placed)
    return compress(request, response)


def decompress(request: Request) -> bytes:
    """Undo Content-Encoding."""
    encoding = request.headers.get("content-encoding", "identity")
    if encoding not in ("identity", "gzip", "deflate"):
        msg = f"Content-Encoding {encoding} is not supported"
        raise Refused(msg, "unsupported")
    try:
        if encoding == "gzip":
            if not request.body:
                raise EOFError
            return gzip.decompress(request.body)
        return zlib.decompress(request.body) if encoding == "deflate" else request.body
    except (OSError, EOFError, zlib.error) as error:
        msg = f"the body is no {encoding}"
        raise Refused(msg) from error


def compress(request: Request, response: Answer) -> Answer:
    """Follow a plain Accept-Encoding."""
    accepted = [one.strip() for one in request.headers.get("accept-encoding", "").split(",")]
    if "gzip" in accepted:
        response.body = gzip.compress(response.body)
        response.headers["Content-Encoding"] = "gzip"
    return response


def members_once(members: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object that has these members, each name once."""
    values = dict(members)
    if len(values) < len(members):
        msg = "a member is given twice"
        raise Refused(msg)
    return values


def parse(
    body: bytes, pairs: Callable[[list[tuple[str, Any]]], dict[str, Any]] = dict
) -> dict[str, Any]:
    """Read the JSON document of an inference request; `pairs` makes an object of its members."""
    try:
        document = json.loads(
            body.decode("utf-8-sig"), parse_float=read_float, object_pairs_hook=pairs
        )
        json.dumps(document, default=str, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise Refused(f"the body is no JSON: {error}"[:200]) from error
    return check_type("the body", document, dict)


def check_type(what: str, value: Any, kind: type) -> Any:
    """Return `value` if it is of the JSON type."""
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        msg = f"{what} is no {kind.__name__}"
        raise Refused(msg)
    return value


def parameters(what: str, holder: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of a request or tensor; null is absent."""
    found = holder.get("parameters")
    return {} if found is None else check_type(f"parameters of {what}", found, dict)


def raw_input(model: Model, body: bytes) -> Tensor:
    """Return the one input of a raw request."""
    if len(model.inputs) != 1:
        msg = f"a raw request needs one input, model '{model.name}' has more"
        raise Refused(msg)
    [(name, (datatype, shape))] = model.inputs.items()
    if datatype == "BYTES":
        return Tensor(name, datatype, [1], len(body).to_bytes(4, "little") + body)
    count = len(body) // SIZES[datatype]
    return Tensor(name, datatype, [count] if -1 in shape else shape, body)


def read_inputs(server: Server, document: dict[str, Any], blobs: bytes) -> list[Tensor]:
    """Return the inputs of a document and the blobs after it."""
    inputs = []
    for item in check_type("inputs", document.get("inputs"), list):
        tensor, size = read_input(server, check_type("an input", item, dict))
        if size is not None:
            if size > len(blobs):
                msg = f"input '{tensor.name}' ends after the body"
                raise Refused(msg)
            tensor.raw, blobs = blobs[:size], blobs[size:]
        inputs.append(tensor)
    if blobs:
        msg = f"{len(blobs)} bytes follow the last input"
        raise Refused(msg)
    return inputs


def read_input(server: Server, item: dict[str, Any]) -> tuple[Tensor, int | None]:
    """Return one input, and the size of its blob if it has one."""
    name = check_type("an input's name", item.get("name"), str)
    what = f"input '{name}'"
    datatype = check_type(f"datatype of {what}", item.get("datatype"), str)
    shape = check_type(f"shape of {what}", item.get("shape"), list)
    for dim in shape:
        check_type(f"a dim in the shape of {what}", dim, int)
    if datatype not in SIZES and datatype != "STRING":
        msg = f"{what} has the unknown datatype {datatype}"
        raise Refused(msg)
    tensor = Tensor(name, "BYTES" if datatype == "STRING" else datatype, shape, b"")
    extra = parameters(what, item)
    sources = [key for key in ("binary_data_size", "shared_memory_region") if key in extra]
    if len(sources) + ("data" in item) != 1:
        msg = f"{what} needs one source of data"
        raise Refused(msg)
    if "shared_memory_region" in extra:
        tensor.raw = shared_memory.read(server, extra)
        return tensor, None
    if "binary_data_size" in extra:
        size = check_type(f"binary_data_size of {what}", extra["binary_data_size"], int)
        if size < 0 or -1 in shape:
            msg = f"{what} has a size or a shape below zero"
            raise Refused(msg)
        return tensor, size
    read_data(tensor, item["data"])
    return tensor, None


def read_data(tensor: Tensor, data: Any) -> None:
    """Fill a tensor from `data`, and its shape where it has one -1."""
    fixed = prod(dim for dim in tensor.shape if dim != -1)
    if isinstance(data, str):
        tensor.raw = decode_base64(tensor, data, fixed if -1 not in tensor.shape else None)
        size = SIZES[tensor.datatype]
        count = len(tensor.raw) // size if size else -1
    else:
        try:
            found = flat(check_type(f"data of input '{tensor.name}'", data, list))
        except RecursionError as error:
            msg = f"data of input '{tensor.name}' are nested too deeply"
            raise Refused(msg) from error
        if any(isinstance(element, TooLarge) for element in found):
            msg = f"input '{tensor.name}' has a number that is too large"
            raise Refused(msg)
        tensor.raw = encode_elements(tensor.name, tensor.datatype, found)
        count = len(found)
    if tensor.shape.count(-1) == 1 and fixed > 0 and count >= 0 and count % fixed == 0:
        tensor.shape = [count // fixed if dim == -1 else dim for dim in tensor.shape]


def read_outputs(document: dict[str, Any]) -> tuple[dict[str, bool], bool]:
    """Return whether each requested output is binary, and the default when none is."""
    identifier = document.get("id")
    if identifier is not None:
        check_type("id", identifier, str)
    extra = parameters("the request", document)
    for key, value in extra.items():
        if isinstance(value, dict | list):
            msg = f"parameter '{key}' is no string, number or boolean"
            raise Refused(msg)
        if key.startswith("triton_"):
            msg = f"parameter '{key}' is reserved"
            raise Refused(msg)
    check_reserved(extra)
    default = check_type("binary_data_output", extra.get("binary_data_output", False), bool)
    choices = {}
    for item in check_type("outputs", document.get("outputs", []), list):
        output = check_type("an output", item, dict)
        name = check_type("an output's name", output.get("name"), str)
        if name in choices:
            msg = f"output '{name}' is requested twice"
            raise Refused(msg)
        choice = parameters(f"output '{name}'", output).get("binary_data", False)
        choices[name] = check_type("binary_data", choice, bool)
    return choices, default


def check_reserved(extra: dict[str, Any]) -> None:
    """Raise Refused when a parameter that means something has a value that does not."""
    for key, value in extra.items():
        is_count = isinstance(value, int) and not isinstance(value, bool) and value >= 0
        if (
            (key in ("priority", "timeout") and not is_count)
            or (key == "sequence_id" and not is_count and not isinstance(value, str))
            or (key in ("sequence_start", "sequence_end") and not isinstance(value, bool))
        ):
            msg = f"parameter '{key}' is {value!r}"
            raise Refused(msg)


def read_classes(document: dict[str, Any]) -> dict[str, int]:
    """Return how many classes of each requested output are wanted, where any are."""
    wanted = {}
    for item in document.get("outputs", []):
        value = parameters("an output", item).get("classification")
        if value is not None and check_type("classification", value, int) < 0:
            msg = f"classification is {value}"
            raise Refused(msg)
        if value:
            wanted[item["name"]] = value
    return wanted


def place_outputs(
    server: Server, document: dict[str, Any], outputs: list[Tensor]
) -> frozenset[str]:
    """Put outputs where in shared memory they are wanted, and return the names of those."""
    places = {
        item["name"]: item["parameters"]
        for item in document.get("outputs", [])
        if "shared_memory_region" in (item.get("parameters") or {})
    }
    for tensor in outputs:
        if tensor.name in places:
            shared_memory.write(server, places[tensor.name], tensor.raw)
    return frozenset(places)


def write(
    head: dict[str, Any], outputs: list[Tensor], binary: dict[str, bool], placed: frozenset[str]
) -> Answer:
    """Return the answer of an inference; `placed` outputs have their data elsewhere."""
    rows, blobs = [], b""
    for tensor in outputs:
        row = {"name": tensor.name, "datatype": tensor.datatype, "shape": tensor.shape}
        if tensor.name in placed:
            pass
        elif binary[tensor.name]:
            row["parameters"] = {"binary_data_size": len(tensor.raw)}
            blobs += tensor.raw
        else:
            row["data"] = decode_tensor(tensor)
        rows.append(row)
    body = to_json({**head, "outputs": rows})
    if not blobs:
        return Answer(200, body)
    headers = {
        "Content-Type": "application/octet-stream",
        "Inference-Header-Content-Length": str(len(body)),
    }
    return Answer(200, body + blobs, headers)
