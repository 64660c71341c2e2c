"""The fixture models by plain rules, and whether a request fits one: no code shared with inferd."""

import struct
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from conformance.reference.statistics import Tally

SIZES = {
    "BOOL": 1, "UINT8": 1, "UINT16": 2, "UINT32": 4, "UINT64": 8, "INT8": 1, "INT16": 2,
    "INT32": 4, "INT64": 8, "FP16": 2, "BF16": 2, "FP32": 4, "FP64": 8, "BYTES": 0,
}  # fmt: skip


LOG: dict[str, Any] = {
    "log_file": "",
    "log_info": True,
    "log_warning": True,
    "log_error": True,
    "log_verbose_level": 0,
    "log_format": "default",
}
"""The settings of the logging extension."""

TRACE: dict[str, list[str]] = {
    "trace_level": ["OFF"],
    "trace_rate": ["1000"],
    "trace_count": ["-1"],
    "log_frequency": ["0"],
    "trace_file": [""],
    "trace_mode": ["triton"],
}
"""The settings of the trace extension, as gRPC has them: each a list of texts."""


LATE_QUEUE, LATE_S = threading.Lock(), 0.5
"""Where one request to model late has room, and how long it waits."""


class Refused(Exception):
    """A request that cannot be answered; `reason` is a word the protocols map to a status."""

    def __init__(self, text: str, reason: str = "invalid") -> None:
        super().__init__(text)
        self.text, self.reason = text, reason


@dataclass
class Tensor:
    """A tensor as wire bytes."""

    name: str
    datatype: str
    shape: list[int]
    raw: bytes


@dataclass
class Model:
    """One model; specs map a tensor's name to datatype and shape, batch dim included."""

    name: str
    versions: list[str]
    inputs: dict[str, tuple[str, list[int]]]
    outputs: dict[str, tuple[str, list[int]]]
    run: Callable[[dict[str, Tensor]], list[Tensor]]
    max_batch: int = 0
    optional: bool = False
    broken: bool = False
    labels: dict[str, list[str]] = field(default_factory=dict)
    decoupled: bool = False
    sequence: type | None = None
    """Of a sequence model the type of its ids; `run` is given START and ID as inputs."""
    is_kept: bool = False
    """Whether its answers are kept in the response cache."""


@dataclass
class Server:
    """What one server serves."""

    models: dict[str, Model] = field(default_factory=dict)
    log: dict[str, Any] = field(default_factory=LOG.copy)
    regions: dict[str, dict[str, Any]] = field(default_factory=dict)
    shares_memory: bool = True
    explicit: bool = False
    unloaded: set[str] = field(default_factory=set)
    trace: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    """What was set of the trace settings, by model, "" for all models."""
    answers: set[tuple[Any, ...]] = field(default_factory=set)
    """The requests whose answers are kept; as running a model anew gives the same, no more is."""
    tallies: dict[tuple[str, str], Tally] = field(default_factory=lambda: defaultdict(Tally))

    @property
    def ready(self) -> bool:
        """Strict readiness: every model loaded."""
        return not any(model.broken for model in self.models.values())

    def find(self, name: str, version: str) -> tuple[Model, str]:
        """Return a model and the version that answers."""
        model = self.models.get(name)
        if model is None or name in self.unloaded:
            msg = f"there is no model '{name}'"
            raise Refused(msg, "not found")
        if model.broken:
            msg = f"model '{name}' has no version that loaded"
            raise Refused(msg, "not found")
        asked = version[1:] if version[:1] == "v" and version[1:].isdigit() else version
        if asked and asked not in model.versions:
            msg = f"model '{name}' has no version '{version}'"
            raise Refused(msg, "not found")
        return model, asked or model.versions[-1]

    def statistics(self, name: str, version: str) -> list[dict[str, Any]]:
        """Return the rows of a version, of a model's versions, or (name "") of all."""
        models = [model for model in self.models.values() if not model.broken]
        if name:
            try:
                model, chosen = self.find(name, version)
            except Refused as refused:
                raise Refused(refused.text) from refused
            if version:
                return [self.tallies[name, chosen].row(name, chosen)]
            models = [model]
        return [
            self.tallies[model.name, number].row(model.name, number)
            for model in models
            for number in model.versions
        ]

    def stream(self, name: str, version: str, inputs: Sequence[Tensor]) -> list[list[Tensor]]:
        """Return the outputs of every answer of a model; one that is not decoupled has one."""
        model, _ = self.find(name, version)
        check_inputs(model, inputs)
        outputs = model.run({tensor.name: tensor for tensor in inputs})
        if not model.decoupled:
            return [outputs]
        width = len(model.outputs)
        return [outputs[at : at + width] for at in range(0, len(outputs), width)]

    def infer(
        self,
        name: str,
        version: str,
        inputs: Sequence[Tensor],
        wanted: Sequence[str],
        extra: Mapping[str, Any],
    ) -> tuple[str, list[Tensor]]:
        """Return the version that answered and its outputs; `extra` are the parameters."""
        model, chosen = self.find(name, version)
        if model.decoupled:
            msg = f"model '{name}' is decoupled"
            raise Refused(msg, "unsupported")
        check_inputs(model, inputs)
        for output in wanted:
            if output not in model.outputs:
                msg = f"model '{name}' has no output '{output}'"
                raise Refused(msg)
            if wanted.count(output) > 1:
                msg = f"output '{output}' is requested twice"
                raise Refused(msg)
        given = {tensor.name: tensor for tensor in inputs}
        outputs = model.run(given | controls(model, extra))
        asked = (name, chosen, str(sorted(given.items())), tuple(wanted), str(extra))
        is_hit = asked in self.answers
        if model.is_kept:
            self.answers.add(asked)
            self.tallies[name, chosen].look_up(is_hit=is_hit)
        if not is_hit:
            self.tallies[name, chosen].add(inputs[0].shape[0] if model.max_batch else 1)
        return chosen, [tensor for tensor in outputs if not wanted or tensor.name in wanted]


def controls(model: Model, extra: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return what a sequence model is told of a request. Raise Refused without a sequence."""
    if model.sequence is None:
        return {}
    number, starts = extra.get("sequence_id"), extra.get("sequence_start", False)
    if not number or not isinstance(number, model.sequence) or not starts:
        msg = f"model '{model.name}' needs sequence_start and a sequence_id of its type"
        raise Refused(msg)
    text = str(number).encode()
    is_text = model.sequence is str
    raw = struct.pack("<I", len(text)) + text if is_text else struct.pack("<Q", number)
    return {
        "START": Tensor("START", "INT32", [1, 1], struct.pack("<i", starts)),
        "ID": Tensor("ID", "BYTES" if is_text else "UINT64", [1, 1], raw),
    }


def in_sequence(inputs: dict[str, Tensor]) -> list[Tensor]:
    """Run a sequence model: INPUT, START and ID as they came."""
    names = {"OUTPUT": "INPUT", "STARTED": "START", "ID_SEEN": "ID"}
    return [
        Tensor(name, inputs[of].datatype, inputs[of].shape, inputs[of].raw)
        for name, of in names.items()
    ]


def check_inputs(model: Model, inputs: Sequence[Tensor]) -> None:
    """Raise Refused when the inputs are not the model's."""
    names = [tensor.name for tensor in inputs]
    for tensor in inputs:
        if names.count(tensor.name) > 1:
            msg = f"input '{tensor.name}' comes twice"
            raise Refused(msg)
        if tensor.name not in model.inputs:
            msg = f"model '{model.name}' has no input '{tensor.name}'"
            raise Refused(msg)
        check_input(model, tensor)
    missing = [name for name in model.inputs if name not in names]
    if missing and not model.optional:
        msg = f"input {missing} is missing"
        raise Refused(msg)
    if model.max_batch and len({tensor.shape[0] for tensor in inputs}) > 1:
        msg = "the inputs have different batch sizes"
        raise Refused(msg)


def check_input(model: Model, tensor: Tensor) -> None:
    """Raise Refused when datatype, shape or byte count are not what the model expects."""
    datatype, dims = model.inputs[tensor.name]
    if tensor.datatype != datatype:
        msg = f"input '{tensor.name}' is {tensor.datatype}, expected {datatype}"
        raise Refused(msg)
    fits = len(tensor.shape) == len(dims) and all(
        have >= 0 and want in (-1, have) for have, want in zip(tensor.shape, dims, strict=True)
    )
    if not fits or (model.max_batch and tensor.shape[0] > model.max_batch):
        msg = f"input '{tensor.name}' has shape {tensor.shape}, expected {dims}"
        raise Refused(msg)
    count = prod(tensor.shape)
    if datatype == "BYTES":
        if len(elements(tensor)) != count:
            msg = f"input '{tensor.name}' has not the {count} elements its shape says"
            raise Refused(msg)
    elif len(tensor.raw) != count * SIZES[datatype]:
        msg = f"input '{tensor.name}' has {len(tensor.raw)} bytes, its shape says other"
        raise Refused(msg)


def elements(tensor: Tensor) -> list[bytes]:
    """Return the elements of a BYTES tensor."""
    found, at = [], 0
    while at < len(tensor.raw):
        if len(tensor.raw) < at + 4:
            msg = f"'{tensor.name}' ends inside a length"
            raise Refused(msg)
        (length,) = struct.unpack_from("<I", tensor.raw, at)
        found.append(tensor.raw[at + 4 : at + 4 + length])
        at += 4 + length
        if at > len(tensor.raw):
            msg = f"'{tensor.name}' ends inside an element"
            raise Refused(msg)
    return found


def add_and_subtract(inputs: dict[str, Tensor]) -> list[Tensor]:
    """Run model m."""
    shape = inputs["INPUT0"].shape
    pairs = [struct.unpack(f"<{prod(shape)}f", inputs[name].raw) for name in ("INPUT0", "INPUT1")]
    sums = [a + b for a, b in zip(*pairs, strict=True)]
    differences = [a - b for a, b in zip(*pairs, strict=True)]
    return [
        Tensor(name, "FP32", shape, struct.pack(f"<{prod(shape)}f", *data))
        for name, data in (("OUTPUT0", sums), ("OUTPUT1", differences))
    ]


def printed(inputs: dict[str, Tensor]) -> list[Tensor]:
    """Run model mymodel."""
    del inputs
    return [Tensor("output0", "FP32", [3, 2], struct.pack("<6f", 1, 1.1, 2, 2.1, 3, 3.1))]


def repeat(inputs: dict[str, Tensor]) -> list[Tensor]:
    """Run an identity model: IN_x is OUT_x, INPUT0 is OUTPUT0."""
    return [
        Tensor(name.replace("INPUT", "OUTPUT") if "INPUT" in name else name.replace("IN", "OUT", 1),
               tensor.datatype, tensor.shape, tensor.raw)
        for name, tensor in inputs.items()
    ]  # fmt: skip


def only_full(inputs: dict[str, Tensor]) -> list[Tensor]:
    """Run model late: less than a full batch waits for more, and nobody comes in time."""
    if inputs["INPUT0"].shape[0] == 8:
        return repeat(inputs)
    if not LATE_QUEUE.acquire(blocking=False):
        msg = "the queue is full"
        raise Refused(msg, "unavailable")
    try:
        time.sleep(LATE_S)
    finally:
        LATE_QUEUE.release()
    msg = "the request waited too long in the queue"
    raise Refused(msg, "unavailable")


def count_up(inputs: dict[str, Tensor]) -> list[Tensor]:
    """Run model repeat: OUT and IDX of all its answers, one after the other."""
    given = inputs["IN"].raw
    answers = []
    for index in range(len(given) // 4):
        answers.append(Tensor("OUT", "INT32", [1], given[4 * index : 4 * index + 4]))
        answers.append(Tensor("IDX", "UINT32", [1], struct.pack("<I", index)))
    return answers


def say_again(inputs: dict[str, Tensor]) -> list[Tensor]:
    """Run model gen."""
    return [Tensor("text_output", "BYTES", [1], inputs["text_input"].raw)]


def fixture() -> Server:
    """Return a server of the repository v2."""
    fp32 = ("FP32", [-1, 4])
    models = [
        Model(
            "m", ["1", "3"], {"INPUT0": fp32, "INPUT1": fp32}, {"OUTPUT0": fp32, "OUTPUT1": fp32},
            add_and_subtract, max_batch=8, labels={"OUTPUT0": ["ant", "bee", "bird"]},
        ),
        Model(
            "kept", ["1"], {"INPUT0": fp32, "INPUT1": fp32}, {"OUTPUT0": fp32, "OUTPUT1": fp32},
            add_and_subtract, max_batch=8, is_kept=True,
        ),
        Model(
            "mymodel", ["1", "2"], {"input0": ("UINT32", [2, 2]), "input1": ("BOOL", [3])},
            {"output0": ("FP32", [3, 2])}, printed,
        ),
        Model(
            "all", ["1"], {f"IN_{name}": (name, [-1]) for name in SIZES},
            {f"OUT_{name}": (name, [-1]) for name in SIZES}, repeat, optional=True,
        ),
        single(),
        Model(
            "late", ["1"], {"INPUT0": ("FP32", [-1, 1])}, {"OUTPUT0": ("FP32", [-1, 1])}, only_full,
            max_batch=8,
        ),
        Model("text", ["1"], {"INPUT0": ("BYTES", [1])}, {"OUTPUT0": ("BYTES", [1])}, repeat),
        Model(
            "gen", ["1"], {"text_input": ("BYTES", [1])}, {"text_output": ("BYTES", [1])}, say_again
        ),
        Model(
            "repeat", ["1"],
            {"IN": ("INT32", [-1]), "DELAY": ("UINT32", [-1]), "WAIT": ("UINT32", [1])},
            {"OUT": ("INT32", [1]), "IDX": ("UINT32", [1])}, count_up, decoupled=True,
        ),
        picture("nchw", [3, 2, 2]),
        picture("nhwc", [2, 2, 3]),
        in_sequences_of("seq", int, "UINT64"),
        in_sequences_of("seq_text", str, "BYTES"),
    ]  # fmt: skip
    return Server({model.name: model for model in models})


def picture(name: str, dims: list[int]) -> Model:
    """Return a model that has a class for each number of a picture."""
    inputs, outputs = {"INPUT0": ("FP32", [-1, *dims])}, {"OUTPUT0": ("FP32", [-1, 12])}
    return Model(
        name, ["1"], inputs, outputs, flatten, max_batch=8, labels={"OUTPUT0": ["ant", "bee"]}
    )


def flatten(inputs: dict[str, Tensor]) -> list[Tensor]:
    """Run a model of pictures."""
    given = inputs["INPUT0"]
    return [Tensor("OUTPUT0", "FP32", [given.shape[0], 12], given.raw)]


def in_sequences_of(name: str, kind: type, datatype: str) -> Model:
    """Return a model of sequences whose ids are of one type."""
    number = ("INT32", [-1, 1])
    outputs = {"OUTPUT": number, "STARTED": number, "ID_SEEN": (datatype, [-1, 1])}
    return Model(name, ["1"], {"INPUT": number}, outputs, in_sequence, max_batch=4, sequence=kind)


def single() -> Model:
    """Return the one-input identity model of both repositories."""
    return Model("single", ["1"], {"INPUT0": ("FP32", [-1])}, {"OUTPUT0": ("FP32", [-1])}, repeat)


def broken() -> Server:
    """Return a server of the repository broken."""
    tensors = {"INPUT0": ("FP32", [4])}
    failed = Model("broken", ["1"], tensors, tensors, repeat, broken=True)
    return Server({"single": single(), "broken": failed})
