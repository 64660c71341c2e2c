"""The TensorRT Inference Server API over gRPC: nvidia.inferenceserver.GRPCService."""

import pytest
from conformance.old import (
    DIFFERENCES,
    GOOD,
    HALVES,
    INPUTS,
    SUMS,
    VALUES,
    OldRpc,
    code,
    floats,
    from_text,
    kind,
)
from conformance.points import point

RAW = (floats(*VALUES), floats(*HALVES))


def message(header: str, *raw: bytes, model: str = "m") -> bytes:
    data: bytes = kind("InferRequest")(
        model_name=model,
        model_version=-1,
        meta_data=from_text("InferRequestHeader", header),
        raw_input=raw,
    ).SerializeToString()
    return data


@point("T101", "MUST", "Health, live and ready (document, Health)")
def test_health(old_rpc: OldRpc):
    for mode in ("live", "ready"):
        assert old_rpc.call("Health", mode=mode).health


@point("T102", "MUST", "Health of another mode: UNKNOWN, inside of an OK answer")
def test_unknown_health(old_rpc: OldRpc):
    answer = old_rpc.call("Health", mode="well")
    assert (answer.request_status.code, answer.health) == (code("UNKNOWN"), False)


@point("T103", "MUST", "Status of one model (document, Status)")
def test_status(old_rpc: OldRpc):
    answer = old_rpc.call("Status", model_name="m")
    assert answer.request_status.code == code("SUCCESS")
    assert list(answer.server_status.model_status) == ["m"]


@point("T104", "MUST", "Status of an unknown model: INVALID_ARG")
def test_status_of_an_unknown_model(old_rpc: OldRpc):
    answer = old_rpc.call("Status", model_name="none")
    assert answer.request_status.code == code("INVALID_ARG")


@point("T105", "MUST", "Infer: raw_output as the outputs were asked for (document, Inference)")
def test_infer(old_rpc: OldRpc):
    answer = old_rpc.infer("m", GOOD, *RAW)
    assert list(answer.raw_output) == [floats(*SUMS), floats(*DIFFERENCES)]


@point("T106", "MUST", "Infer: meta_data describe the outputs (document, Inference)")
def test_meta_data(old_rpc: OldRpc):
    told = old_rpc.infer("m", f"{GOOD} id: 3", *RAW).meta_data
    assert (told.model_name, told.model_version, told.batch_size, told.id) == ("m", 3, 1, 3)
    assert [(one.name, list(one.raw.dims)) for one in told.output] == [
        ("OUTPUT0", [4]),
        ("OUTPUT1", [4]),
    ]


@point("T107", "MUST", "model_version asks a version (0.11)")
def test_version(old_rpc: OldRpc):
    assert old_rpc.infer("m", GOOD, *RAW, version=1).meta_data.model_version == 1


@point("T108", "MUST", "model_version 0 is version 0, not the latest (0.11)")
def test_version_0(old_rpc: OldRpc):
    answer = old_rpc.infer("m", GOOD, *RAW, version=0)
    assert answer.request_status.code == code("UNAVAILABLE")


@point("T109", "MUST", "an output as classes keeps its place in raw_output, empty (0.8)")
def test_classes(old_rpc: OldRpc):
    outputs = 'output { name: "OUTPUT0" cls { count: 1 } } output { name: "OUTPUT1" }'
    answer = old_rpc.infer("m", f"batch_size: 1 {INPUTS} {outputs}", *RAW)
    assert list(answer.raw_output) == [b"", floats(*DIFFERENCES)]


@point("T110", "MUST", "an error is inside of the answer; the status of gRPC is OK (0.8)")
def test_error(old_rpc: OldRpc):
    answer = old_rpc.infer("none", GOOD, *RAW)
    assert answer.request_status.code == code("UNAVAILABLE")
    assert answer.request_status.msg


@point("T111", "MUST", "an error echoes the id (1.0)")
def test_error_id(old_rpc: OldRpc):
    assert old_rpc.infer("none", f"{GOOD} id: 8", *RAW).meta_data.id == 8


REFUSALS = [
    ("T112", "too few raw_input", GOOD, RAW[:1]),
    ("T113", "raw_input of another size", GOOD, (RAW[0], RAW[1][:-1])),
    ("T114", "batch_size 0", GOOD.replace("size: 1 ", "size: 0 ", 1), RAW),
    ("T115", "an unknown output", GOOD.replace("OUTPUT1", "OTHER"), RAW),
]


@pytest.mark.parametrize(
    ("header", "raw"),
    [
        pytest.param(*what, id=number, marks=point(number, "MUST", f"{text}: INVALID_ARG"))
        for number, text, *what in REFUSALS
    ],
)
def test_a_refusal(old_rpc: OldRpc, header: str, raw: tuple[bytes, ...]):
    assert old_rpc.infer("m", header, *raw).request_status.code == code("INVALID_ARG")


@point("T116", "MUST", "StreamInfer: answers in the order of the requests, each with its id (1.0)")
def test_stream(old_rpc: OldRpc):
    asked = [message(f"{GOOD} id: {number}", *RAW) for number in range(1, 41)]
    answers = [kind("InferResponse").FromString(one) for one in old_rpc.stream(*asked)]
    assert [one.meta_data.id for one in answers] == list(range(1, 41))


@point(
    "T117", "MUST", "StreamInfer: a request that fails is answered, and the stream goes on (1.0)"
)
def test_stream_after_an_error(old_rpc: OldRpc):
    asked = [message(GOOD, *RAW), message(GOOD, *RAW, model="none"), message(GOOD, *RAW)]
    answers = [kind("InferResponse").FromString(one) for one in old_rpc.stream(*asked)]
    codes = [one.request_status.code for one in answers]
    assert codes == [code("SUCCESS"), code("UNAVAILABLE"), code("SUCCESS")]


@point("T118", "MUST", "Repository that does not say index: UNKNOWN (1.9)")
def test_repository_without_index(old_rpc: OldRpc):
    assert old_rpc.call("Repository").request_status.code == code("UNKNOWN")


@point("T119", "MUST", "Repository, index: the names of all models (1.9)")
def test_index(old_rpc: OldRpc):
    answer = old_rpc.call("Repository", index=True)
    assert {"m", "seq"} <= {one.name for one in answer.index.models}


@point("T120", "MUST", "ModelControl in another mode than explicit: UNAVAILABLE (1.9)")
def test_model_control(old_rpc: OldRpc):
    answer = old_rpc.call("ModelControl", model_name="m", type=1)
    assert answer.request_status.code == code("UNAVAILABLE")


@point("T121", "MUST", "SharedMemoryControl that says nothing: UNKNOWN (1.7)")
def test_shared_memory_control(old_rpc: OldRpc):
    assert old_rpc.call("SharedMemoryControl").request_status.code == code("UNKNOWN")


@point("T122", "SHOULD", "Profile is refused: UNSUPPORTED (0.8)")
def test_profile(old_rpc: OldRpc):
    assert old_rpc.call("Profile", cmd="start").request_status.code == code("UNSUPPORTED")
