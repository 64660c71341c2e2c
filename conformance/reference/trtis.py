"""The TensorRT Inference Server API by plain rules: protobuf reads and writes everything."""

import re
import struct
from collections.abc import Iterator
from itertools import count
from math import prod
from typing import Any
from urllib.parse import parse_qs, unquote

from conformance.old import PACKAGE, code, from_text, kind, pool
from conformance.reference import repository, shared_memory
from conformance.reference.classes import CLASSIFIABLE, wide
from conformance.reference.models import SIZES, Model, Refused, Server, Tensor
from conformance.reference.rest import Answer, Request
from google.protobuf import json_format, text_format
from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

CODES = {
    "invalid": "INVALID_ARG",
    "not found": "UNAVAILABLE",
    "internal": "INTERNAL",
    "unsupported": "UNSUPPORTED",
    "unavailable": "UNAVAILABLE",
    "unknown": "UNKNOWN",
    "exists": "ALREADY_EXISTS",
    "no region": "NOT_FOUND",
}
PLATFORM = "custom"
VERBS = {"infer": "POST", "modelcontrol": "POST", "sharedmemorycontrol": "POST"}
WORDS = {"health", "status", "infer", "profile", "modelcontrol", "sharedmemorycontrol"}
UNREADABLE = "that cannot be read"


class Old:
    """The old API of one server."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self._numbers = count(1)
        self._live: set[int] = set()  # sequences

    def status(self, refused: Refused | None = None) -> Any:
        """Return the status of the next request."""
        status = kind("RequestStatus")(server_id="inference:0", request_id=next(self._numbers))
        status.code = code("SUCCESS" if refused is None else CODES[refused.reason])
        status.msg = "" if refused is None else refused.text
        return status

    # --- HTTP ---

    def http(self, request: Request) -> Answer:
        """Answer a request below /api/."""
        path = request.path.partition("?")[0]
        parts = [unquote(part) for part in path.split("/")[2:]]
        verb = "GET" if path.endswith("sharedmemorycontrol/status") else VERBS.get(parts[0], "GET")
        if parts[0] in WORDS and request.method != verb:
            return Answer(405, b"", {})
        header: list[Any] = []
        try:
            answer = self._http(parts, request, header)
            refused = None
        except Refused as error:
            refused = error
            answer = Answer(400, b"", {"Content-Type": "application/octet-stream"})
            if header and not is_old(header[0]):
                said = f"id: {header[0].id}" if header[0].id else ""
                answer.headers["NV-InferResponse"] = said
        answer.headers["NV-Status"] = line(self.status(refused))
        return answer

    def _http(self, parts: list[str], request: Request, header: list[Any]) -> Answer:
        match parts:
            case ["health", ("live" | "ready") as mode]:
                healthy = mode == "live" or self.server.ready
                return Answer(200 if healthy else 400, b"", {})
            case ["status", *name]:
                return formatted(self.server_status("".join(name)), request)
            case ["infer", model, *version] if len(version) < 2:
                return self._infer_http(model, "".join(version), request, header)
            case ["modelcontrol", verb, model]:
                self.control(verb, model)
                return Answer(200, b"", {})
            case ["repository", "index"]:
                return formatted(self.index(), request)
            case ["sharedmemorycontrol", *what]:
                return self._memory(what, request)
            case ["profile"]:
                msg = "no profiling"
                raise Refused(msg, "unsupported")
        msg = "nothing there"
        raise Refused(msg)

    def _memory(self, what: list[str], request: Request) -> Answer:
        match what:
            case ["status"]:
                told = kind("SharedMemoryStatus")()
                self.regions(told.shared_memory_region)
                return formatted(told, request)
            case ["register", name, "", key, offset, size]:
                self.register(name, "/" + key, int(offset), int(size))
            case ["unregister", name]:
                self.server.regions.pop(name, None)
            case ["unregisterall"]:
                self.server.regions.clear()
            case _:
                msg = "nothing there"
                raise Refused(msg)
        return Answer(200, b"", {})

    def _infer_http(self, model: str, version: str, request: Request, header: list[Any]) -> Answer:
        if "nv-inferrequest" not in request.headers:
            msg = "no NV-InferRequest"
            raise Refused(msg)
        asked = read_header(request.headers["nv-inferrequest"])
        header.append(asked)
        if version and not version.isdecimal():
            msg = "no version"
            raise Refused(msg)
        found, _ = self.server.find(model, version)
        raw, rest = [], request.body
        for one in asked.input:
            size = 0 if one.HasField("shared_memory") else expected(found, one, asked)
            if size > len(rest):
                msg = "the body is too short"
                raise Refused(msg)
            raw += [] if one.HasField("shared_memory") else [rest[:size]]
            rest = rest[size:]
        if rest:
            msg = "the body is too long"
            raise Refused(msg)
        told, data = self.infer(model, version, asked, raw)
        tail = formatted(told, request).body
        headers = {"Content-Type": "application/octet-stream"}
        if is_old(asked):
            tail = tail.replace(b"dims:", b"byte_size:")
        else:
            headers["NV-InferResponse"] = line(told)
        return Answer(200, b"".join(data) + tail, headers)

    # --- gRPC ---

    def rpc(self, name: str, data: bytes) -> Any:
        """Answer one call with a message."""
        answer = kind(f"{name}Response")()
        refused = None
        try:
            request = kind(f"{name}Request").FromString(data)
            if name == "Infer":
                answer.meta_data.id = request.meta_data.id
            getattr(self, f"_{name.lower()}")(request, answer, data)
        except DecodeError:
            refused = Refused(UNREADABLE)
        except Refused as error:
            refused = error
        answer.request_status.CopyFrom(self.status(refused))
        return answer

    def stream(self, requests: Iterator[bytes]) -> Iterator[Any]:
        """Answer StreamInfer."""
        for data in requests:
            yield self.rpc("Infer", data)

    def _status(self, request: Any, answer: Any, _: bytes) -> None:
        answer.server_status.CopyFrom(self.server_status(request.model_name))

    def _health(self, request: Any, answer: Any, _: bytes) -> None:
        if request.mode not in ("live", "ready"):
            msg = "no such health"
            raise Refused(msg, "unknown")
        answer.health = request.mode == "live" or self.server.ready

    def _profile(self, *_: Any) -> None:
        msg = "no profiling"
        raise Refused(msg, "unsupported")

    def _modelcontrol(self, request: Any, *_: Any) -> None:
        self.control("load" if request.type else "unload", request.model_name)

    def _repository(self, request: Any, answer: Any, _: bytes) -> None:
        if not request.HasField("index"):
            msg = "say index"
            raise Refused(msg, "unknown")
        answer.index.CopyFrom(self.index())

    def _sharedmemorycontrol(self, request: Any, answer: Any, _: bytes) -> None:
        asked = request.WhichOneof("shared_memory_control")
        older = {one.field_number: one.data for one in UnknownFieldSet(request.unregister)}
        if 2 in older:  # 1.6: name, key, offset, byte_size
            key, offset, size = older[2].decode(), older.get(3, 0), older.get(4, 0)
            self.register(request.unregister.name, key, offset, size)
        elif asked == "status":
            answer.shared_memory_status.SetInParent()
            self.regions(answer.shared_memory_status.shared_memory_region)
        elif asked == "register":
            where = request.register.system_shared_memory
            size = request.register.byte_size
            self.register(request.register.name, where.shared_memory_key, where.offset, size)
        elif asked is None:
            msg = "nothing asked"
            raise Refused(msg, "unknown")
        else:
            name = request.unregister.name if asked == "unregister" else None
            for known in [name] if name is not None else list(self.server.regions):
                self.server.regions.pop(known, None)

    def _infer(self, request: Any, answer: Any, data: bytes) -> None:
        asked = request.meta_data
        version = "" if request.model_version == -1 else str(request.model_version)
        if is_old(asked):
            text = re.search(rb"\x12(.)", data[len(request.model_name) + 2 :][:2], re.DOTALL)
            version = data[len(request.model_name) + 4 :][: text[1][0]].decode() if text else ""
        self.server.find(request.model_name, version)
        told, raw = self.infer(request.model_name, version, asked, list(request.raw_input))
        answer.meta_data.CopyFrom(told)
        raw_outputs = iter(raw)
        for output in told.output:
            is_sent = output.HasField("raw") and not any(
                one.name == output.name and one.HasField("shared_memory") for one in asked.output
            )
            answer.raw_output.append(next(raw_outputs) if is_sent else b"")

    # --- what both do ---

    def infer(
        self, name: str, version: str, asked: Any, raw: list[bytes]
    ) -> tuple[Any, list[bytes]]:
        """Return the response header and the raw outputs that are sent."""
        model, _ = self.server.find(name, version)
        check(model, asked)
        self._check_sequence(model, asked)
        inputs = [self._input(model, one, asked, raw) for one in asked.input]
        extra = {"sequence_id": asked.correlation_id, "sequence_start": True}
        wanted = [one.name for one in asked.output]
        chosen, outputs = self.server.infer(name, version, inputs, wanted, extra)
        by_name = {tensor.name: tensor for tensor in outputs}
        told = kind("InferResponseHeader")(
            model_name=name, model_version=int(chosen), batch_size=asked.batch_size, id=asked.id
        )
        sent = []
        for one in asked.output:
            tensor = by_name[one.name]
            output = told.output.add(name=one.name)
            if one.cls.count:
                classify(model, tensor, one.cls.count, asked.batch_size, output)
                continue
            if is_old(asked):
                output.raw.dims.append(len(tensor.raw) // asked.batch_size)
            else:
                output.raw.dims.extend(tensor.shape[1:] if model.max_batch else tensor.shape)
                output.raw.batch_byte_size = len(tensor.raw)
            if one.HasField("shared_memory"):
                place = one.shared_memory
                shared_memory.write(self.server, parameters(place), tensor.raw)
            else:
                sent.append(tensor.raw)
        return told, sent

    def _input(self, model: Model, one: Any, asked: Any, raw: list[bytes]) -> Tensor:
        dims = shape_of(model, one, asked)
        if one.HasField("shared_memory"):
            data = self._read_region(one.shared_memory)
        elif raw:
            data = raw.pop(0)
        else:
            msg = f"no raw input for {one.name}"
            raise Refused(msg)
        if len(data) != expected(model, one, asked):
            msg = f"the size of {one.name} is wrong"
            raise Refused(msg)
        return Tensor(one.name, model.inputs[one.name][0], dims, data)

    def _check_sequence(self, model: Model, asked: Any) -> None:
        if model.sequence is None:
            return
        number, starts, ends = asked.correlation_id, asked.flags & 1, asked.flags & 2
        if not number or not (starts or number in self._live):
            msg = "the sequence has not begun"
            raise Refused(msg)
        self._live.add(number)
        if ends:
            self._live.discard(number)

    def _read_region(self, place: Any) -> bytes:
        if place.name not in self.server.regions:
            msg = f"no region {place.name}"
            raise Refused(msg, "no region")
        return shared_memory.read(self.server, parameters(place))

    def register(self, name: str, key: str, offset: int, size: int) -> None:
        """Make a region known."""
        if name in self.server.regions:
            msg = f"{name} is there"
            raise Refused(msg, "exists")
        if not (shared_memory.FOLDER / key.lstrip("/")).exists():
            msg = f"no {key}"
            raise Refused(msg, "internal")
        entry = {"name": name, "key": key, "offset": offset, "byte_size": size}
        self.server.regions[name] = entry

    def regions(self, target: Any) -> None:
        """Tell the regions."""
        for one in self.server.regions.values():
            region = target.add(name=one["name"], byte_size=one["byte_size"])
            region.system_shared_memory.shared_memory_key = one["key"]
            region.system_shared_memory.offset = one["offset"]

    def control(self, verb: str, model: str) -> None:
        """Load or unload."""
        if not self.server.explicit:
            msg = "not explicit"
            raise Refused(msg, "unavailable")
        if verb == "load":
            repository.load(self.server, model, b"")
        elif verb == "unload":
            repository.unload(self.server, model)
        else:
            msg = "no such control"
            raise Refused(msg)

    def index(self) -> Any:
        """Return the names."""
        told = kind("ModelRepositoryIndex")()
        for name in sorted(self.server.models):
            told.models.add(name=name)
        return told

    def server_status(self, name: str) -> Any:
        """Return the ServerStatus."""
        status = kind("ServerStatus")(
            id="inference:0", version="1", uptime_ns=1 + next(self._numbers), ready_state=2
        )
        if name and name not in self.server.models:
            msg = f"no model {name}"
            raise Refused(msg)
        for model in self.server.models.values():
            if name in ("", model.name):
                self._tell(model, status.model_status[model.name])
        return status

    def _tell(self, model: Model, told: Any) -> None:
        config = told.config
        config.name, config.platform, config.max_batch_size = model.name, PLATFORM, model.max_batch
        for rows, specs in ((config.input, model.inputs), (config.output, model.outputs)):
            for tensor, (datatype, shape) in specs.items():
                word = "TYPE_" + datatype.replace("BYTES", "STRING")
                number = pool().FindEnumTypeByName(f"{PACKAGE}.DataType").values_by_name.get(word)
                row = rows.add(name=tensor, data_type=number.number if number else 0)
                row.dims.extend(shape[1:] if model.max_batch else shape)
                if rows is config.input:
                    row.format = {"nhwc": 1, "nchw": 2}.get(model.name, 0)
        for output in config.output:
            if output.name in model.labels:
                output.label_filename = "labels.txt"
        config.instance_group.add(name=model.name, count=1, kind=2)
        if model.name == "late":
            config.dynamic_batching.preferred_batch_size.extend((4, 8))
        for version in model.versions:
            row = told.version_status[int(version)]
            row.ready_state = 2 if model.broken or model.name in self.server.unloaded else 1
            tally = self.server.tallies[model.name, version].row(model.name, version)
            row.model_inference_count = tally["inference_count"]
            row.model_execution_count = tally["execution_count"]
            for batch in tally["batch_stats"]:
                number = batch["compute_infer"]["count"]
                stats = row.infer_stats[batch["batch_size"]]
                for part in ("success", "compute", "queue"):
                    getattr(stats, part).count = number
                    getattr(stats, part).total_time_ns = number


def parameters(place: Any) -> dict[str, Any]:
    """Return a place as V2 has it."""
    return {
        "shared_memory_region": place.name,
        "shared_memory_offset": place.offset,
        "shared_memory_byte_size": place.byte_size,
    }


def line(message: Message) -> str:
    """Return protobuf text on one line."""
    text: str = text_format.MessageToString(message, as_one_line=True)
    return text


def formatted(message: Message, request: Request) -> Answer:
    """Return a message in the form the query asks for."""
    form = parse_qs(request.path.partition("?")[2]).get("format", [""])[0]
    if form == "binary":
        data = message.SerializeToString()
        return Answer(200, data, {"Content-Type": "application/octet-stream"})
    if form == "json" or request.headers.get("accept") == "application/json":
        text = json_format.MessageToJson(message, preserving_proto_field_name=True)
        return Answer(200, text.encode(), {"Content-Type": "application/json"})
    return Answer(
        200, text_format.MessageToString(message).encode(), {"Content-Type": "text/plain"}
    )


def read_header(text: str) -> Any:
    """Read NV-InferRequest of either generation; of the old one byte_size stands in dims."""
    try:
        return from_text("InferRequestHeader", text)
    except text_format.ParseError:
        if "dims" in text or "batch_byte_size" in text:
            raise Refused(UNREADABLE) from None
    try:
        old = re.sub(r"(input\s*{[^}]*?)\bbyte_size:", r"\1dims:", text)
        return from_text("InferRequestHeader", old)
    except text_format.ParseError:
        raise Refused(UNREADABLE) from None


def is_old(asked: Any) -> bool:
    """Tell whether a client is from before 0.11."""
    return any(one.byte_size for one in asked.output)


def check(model: Model, asked: Any) -> None:
    """Refuse a header that does not fit the model."""
    most = 1 if model.sequence else model.max_batch or 1
    inputs = [one.name for one in asked.input]
    outputs = [one.name for one in asked.output]
    wrong = (
        not 1 <= asked.batch_size <= most
        or len(set(inputs)) != len(inputs)
        or len(set(outputs)) != len(outputs)
        or set(inputs) - set(model.inputs)
        or set(outputs) - set(model.outputs)
        or (len(inputs) != len(model.inputs) and not model.optional)
    )
    if wrong:
        msg = "batch size, inputs or outputs are not the model's"
        raise Refused(msg)
    for one in asked.output:
        datatype, shape = model.outputs[one.name]
        if one.cls.count and datatype not in CLASSIFIABLE:
            msg = "that has no classes"
            raise Refused(msg)
        item = prod(shape[1:] if model.max_batch else shape) * SIZES[datatype]
        if one.byte_size and one.byte_size != item:
            msg = f"{one.byte_size} is not {item}"
            raise Refused(msg)


def shape_of(model: Model, one: Any, asked: Any) -> list[int]:
    """Return the whole shape of an input."""
    if one.name not in model.inputs:
        msg = f"no input {one.name}"
        raise Refused(msg)
    dims = model.inputs[one.name][1][1 if model.max_batch else 0 :]
    given = dims if is_old(asked) or not one.dims else list(one.dims)
    if -1 in given or len(given) != len(dims):
        msg = "dims"
        raise Refused(msg)
    if any(want not in (-1, have) for want, have in zip(dims, given, strict=True)):
        msg = "dims"
        raise Refused(msg)
    return [asked.batch_size, *given] if model.max_batch else given


def expected(model: Model, one: Any, asked: Any) -> int:
    """Return how many bytes an input has."""
    shape = shape_of(model, one, asked)
    if model.inputs[one.name][0] == "BYTES":
        return int(one.batch_byte_size)
    size = prod(shape) * SIZES[model.inputs[one.name][0]]
    said = one.dims[0] * asked.batch_size if is_old(asked) and one.dims else one.batch_byte_size
    if said not in (0, size):
        msg = f"{said} is not {size}"
        raise Refused(msg)
    return size


def classify(model: Model, tensor: Tensor, top_k: int, batch: int, output: Any) -> None:
    """Tell the greatest elements of each item."""
    values = (
        wide(tensor.raw)
        if tensor.datatype == "FP32"
        else struct.unpack(f"<{len(tensor.raw) // 4}i", tensor.raw)
    )
    size = len(values) // batch
    labels = model.labels.get(tensor.name, [])
    for start in range(0, len(values), size):
        entry = sorted(enumerate(values[start : start + size]), key=lambda one: -one[1])
        classes = output.batch_classes.add()
        for index, value in entry[:top_k]:
            label = labels[index] if index < len(labels) else ""
            classes.cls.add(idx=index, value=value, label=label)
