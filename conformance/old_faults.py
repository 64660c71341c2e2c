"""One fault for each point of the TensorRT Inference Server API, T1 and on."""

from collections.abc import Callable
from typing import Any

from conformance.faults import FAULTS, Fault, on_answer, streams
from conformance.old import code, from_text, kind
from conformance.reference.rest import Answer, Request
from google.protobuf import text_format

Change = Callable[[Any], object]


def line(message: Any) -> str:
    """Write a message on one line."""
    text: str = text_format.MessageToString(message, as_one_line=True)
    return text


def answers_with(status: int) -> Fault:
    """Answer with another HTTP status."""
    return on_answer(lambda answer: setattr(answer, "status", status))


def nv_status(change: Change) -> Fault:
    """Alter NV-Status."""

    def alter(answer: Answer) -> None:
        status = from_text("RequestStatus", answer.headers.get("NV-Status", ""))
        change(status)
        answer.headers["NV-Status"] = line(status)

    return on_answer(alter)


def says(reason: str) -> Fault:
    """Say another reason in NV-Status."""
    return nv_status(lambda status: setattr(status, "code", code(reason)))


def body(change: Callable[[bytes], bytes]) -> Fault:
    """Alter the body."""
    return on_answer(lambda answer: setattr(answer, "body", change(answer.body)))


def server_status(change: Change) -> Fault:
    """Alter a ServerStatus in binary."""

    def alter(request: Request, answer: Answer) -> None:
        if request.path.startswith("/api/status") and request.path.endswith("format=binary"):
            status = kind("ServerStatus").FromString(answer.body)
            change(status)
            answer.body = status.SerializeToString()

    return Fault(answer=alter)


def each_model(change: Change) -> Fault:
    """Alter the status of each model."""
    return server_status(lambda status: [change(one) for one in status.model_status.values()])


def each_version(change: Change) -> Fault:
    """Alter the status of each version."""
    return each_model(lambda model: [change(one) for one in model.version_status.values()])


def header(change: Change) -> Fault:
    """Alter NV-InferResponse alone."""

    def alter(answer: Answer) -> None:
        if "NV-InferResponse" in answer.headers:
            told = from_text("InferResponseHeader", answer.headers["NV-InferResponse"])
            change(told)
            answer.headers["NV-InferResponse"] = line(told)

    return on_answer(alter)


def each_output(change: Change) -> Fault:
    """Alter each output in NV-InferResponse."""
    return header(lambda told: [change(one) for one in told.output])


def each_class(change: Change) -> Fault:
    """Alter the classes of each item in NV-InferResponse."""
    return each_output(lambda output: [change(one) for one in output.batch_classes])


def drops(name: str) -> Fault:
    """Drop a header of the answer."""
    return on_answer(lambda answer: answer.headers.pop(name, None))


def sets(name: str, value: str) -> Fault:
    """Set a header of the answer."""
    return on_answer(lambda answer: answer.headers.update({name: value}))


def reversed_cls(one: Any) -> None:
    """Put the least class first."""
    rows = [(row.idx, row.value, row.label) for row in one.cls][::-1]
    del one.cls[:]
    for index, value, label in rows:
        one.cls.add(idx=index, value=value, label=label)


def on_rpc(change: Change) -> Fault:
    """Alter each answer over gRPC."""
    return Fault(old=change)


def rpc_says(reason: str) -> Fault:
    """Say another reason over gRPC."""
    return on_rpc(lambda answer: setattr(answer.request_status, "code", code(reason)))


def swap(answer: Any) -> None:
    """Put raw outputs in the opposite order."""
    answer.raw_output[:] = list(answer.raw_output)[::-1]


def drop_empty(answer: Any) -> None:
    """Send no entry for classes."""
    answer.raw_output[:] = [one for one in answer.raw_output if one]


def without_field_2(answer: Any) -> None:
    """Tell no regions."""
    del answer.shared_memory_status.shared_memory_region[:]


def config(change: Change) -> Fault:
    """Alter the configuration of each model over gRPC."""
    return on_rpc(
        lambda answer: [change(one.config) for one in answer.server_status.model_status.values()]
    )


def each_rpc_class(change: Change) -> Fault:
    """Alter each class over gRPC."""
    return on_rpc(
        lambda answer: [
            change(one)
            for output in answer.meta_data.output
            for entry in output.batch_classes
            for one in entry.cls
        ]
    )


def renamed(rows: Any) -> None:
    """Call all tensors alike."""
    for row in rows:
        row.name = "T"


def swapped_halves(data: bytes) -> bytes:
    """Exchange the first two outputs of 16 bytes."""
    return data[16:32] + data[:16] + data[32:]


def forget_query(request: Request) -> None:
    """Ignore the query."""
    request.path = request.path.partition("?")[0]


def forget_version(request: Request) -> None:
    """Ignore the version in the path."""
    request.path = request.path.removesuffix("/1")


def refuses() -> Fault:
    """Refuse what is to be answered."""
    return Fault(
        answer=lambda _, answer: (
            answer.headers.update({"NV-Status": "code: INVALID_ARG"})
            or setattr(answer, "status", 400)
        )
    )


REFUSALS = [
    *(f"T{number}" for number in (18, 64, *range(67, 95), 96, 98, 100)),
]
"""Points that are told by a code in NV-Status."""
RPC_REFUSALS = [
    f"T{number}" for number in (102, 104, 108, 110, 112, 113, 114, 115, 118, 120, 121, 122)
]

OLD_FAULTS: dict[str, Fault] = {
    **{number: says("UNKNOWN") for number in REFUSALS},
    **{number: rpc_says("ALREADY_EXISTS") for number in RPC_REFUSALS},
    "T1": answers_with(503),
    "T2": answers_with(400),
    "T3": body(lambda _: b"live"),
    "T4": answers_with(200),
    "T5": says("UNAVAILABLE"),
    "T6": answers_with(400),
    "T7": drops("NV-Status"),
    "T8": nv_status(lambda status: setattr(status, "request_id", 1)),
    "T9": answers_with(400),
    "T10": sets("NV-Status", "code: INVALID_ARG"),
    "T11": answers_with(404),
    "T12": drops("NV-Status"),
    "T13": answers_with(200),
    "T14": body(lambda data: b"{" + data),
    "T15": Fault(request=forget_query),
    "T16": Fault(request=forget_query),
    "T17": server_status(lambda status: status.model_status.pop("seq", None)),
    "T19": server_status(lambda status: setattr(status, "uptime_ns", 0)),
    "T20": server_status(lambda status: setattr(status, "ready_state", 1)),
    "T21": each_model(lambda model: model.version_status.pop(1, None)),
    "T22": each_model(lambda model: setattr(model.config, "max_batch_size", 0)),
    "T23": each_model(lambda model: [one.dims.insert(0, -1) for one in model.config.input]),
    "T24": each_model(lambda model: renamed(model.config.output)),
    "T25": each_model(lambda model: [setattr(one, "data_type", 2) for one in model.config.input]),
    "T26": each_model(
        lambda model: [setattr(one, "label_filename", "") for one in model.config.output]
    ),
    "T27": each_model(lambda model: model.config.ClearField("instance_group")),
    "T136": each_model(lambda model: model.config.ClearField("dynamic_batching")),
    "T28": each_version(
        lambda row: setattr(row, "model_inference_count", row.model_execution_count)
    ),
    "T29": each_version(
        lambda row: setattr(row, "model_execution_count", row.model_inference_count)
    ),
    "T30": each_version(lambda row: row.infer_stats.clear()),
    "T31": each_version(lambda row: setattr(row, "model_inference_count", 0)),
    "T32": body(swapped_halves),
    "T33": body(swapped_halves),
    "T34": body(lambda data: data[:32] + b"?" + data[32:]),
    "T35": Fault(request=forget_query),
    "T36": header(lambda told: setattr(told, "id", 0)),
    "T37": sets("Content-Type", "application/json"),
    "T38": each_output(lambda output: output.raw.dims.insert(0, 1)),
    "T39": each_output(lambda output: setattr(output.raw, "batch_byte_size", 16)),
    "T40": header(lambda told: setattr(told, "batch_size", 1)),
    "T41": header(lambda told: setattr(told, "id", told.id % 2**63)),
    "T42": header(lambda told: setattr(told, "model_version", 1)),
    "T43": Fault(request=forget_version),
    "T44": Fault(answer=lambda _, answer: setattr(answer, "body", bytes(16) + answer.body)),
    "T45": refuses(),
    "T46": refuses(),
    "T47": body(lambda data: data[:16] + bytes(16) + data[32:]),
    "T48": body(lambda data: data[4:]),
    "T49": each_output(lambda output: output.raw.ClearField("dims")),
    "T50": answers_with(431),
    "T51": body(lambda data: bytes(16) + data[16:]),
    "T52": refuses(),
    "T53": refuses(),
    "T54": each_class(reversed_cls),
    "T55": each_class(lambda one: [setattr(row, "label", "") for row in one.cls]),
    "T56": body(lambda data: bytes(16) + data),
    "T57": each_output(lambda output: output.batch_classes.pop()),
    "T58": each_class(lambda one: one.cls.pop()),
    "T59": body(lambda data: data[16:]),
    "T60": refuses(),
    "T61": sets("NV-InferResponse", ""),
    "T62": body(lambda data: data.replace(b"byte_size", b"dims")),
    "T63": body(lambda data: data.replace(b"idx: 1", b"idx: 2")),
    "T65": body(lambda _: b"error"),
    "T66": sets("NV-InferResponse", 'model_name: "m" id: 9'),
    "T95": says("INTERNAL"),
    "T97": body(lambda _: b""),
    "T99": refuses(),
    "T101": on_rpc(lambda answer: setattr(answer, "health", False)),
    "T103": on_rpc(lambda answer: answer.server_status.model_status.clear()),
    "T105": on_rpc(swap),
    "T106": on_rpc(lambda answer: setattr(answer.meta_data, "batch_size", 0)),
    "T107": on_rpc(lambda answer: setattr(answer.meta_data, "model_version", 3)),
    "T109": on_rpc(drop_empty),
    "T111": on_rpc(lambda answer: answer.ClearField("meta_data")),
    "T116": streams(lambda answers: answers[::-1]),
    "T117": streams(lambda answers: answers[:2]),
    "T119": on_rpc(lambda answer: answer.index.ClearField("models")),
    "T123": config(lambda one: setattr(one, "max_batch_size", 1)),
    "T124": config(lambda one: [setattr(row, "format", 2) for row in one.input]),
    "T125": config(lambda one: [row.dims.insert(0, 1) for row in one.input]),
    "T126": config(lambda one: [setattr(row, "data_type", 12) for row in one.output]),
    "T127": each_rpc_class(lambda one: setattr(one, "value", one.value / 2)),
    "T128": on_rpc(lambda answer: answer.meta_data.output[0].batch_classes.pop()),
    "T129": each_rpc_class(lambda one: setattr(one, "label", "")),
    "T130": each_rpc_class(lambda one: setattr(one, "idx", one.idx + 1)),
    "T131": streams(lambda answers: [*answers[1:], answers[0]]),
    "T132": on_rpc(lambda answer: answer.meta_data.output[0].raw.ClearField("dims")),
    "T133": on_rpc(without_field_2),
    "T134": on_rpc(without_field_2),
    "T135": Fault(habit="answers garbage"),
}
ALL_FAULTS = FAULTS | OLD_FAULTS
