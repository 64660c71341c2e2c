"""The gRPC service beyond the checklist (V2 gRPC, the message descriptions)."""

import struct
from typing import Any

import grpc
import pytest
from conformance.bodies import HALVES, OUTPUT0_BYTES, OUTPUT1_BYTES, SAMPLES, prefixed
from conformance.points import point
from conformance.rpc import (
    SERVICE,
    TIMEOUT_S,
    Rpc,
    one_raw,
    one_typed,
    raw_ok,
    set_parameters,
    tensor,
    typed_ok,
)
from tritonclient.grpc import service_pb2 as pb

Code = grpc.StatusCode
TYPED_OUT_OF_RANGE = {
    "INT8": (-129, 128),
    "INT16": (-(2**15) - 1, 2**15),
    "UINT8": (256,),
    "UINT16": (65536,),
}


@point("S112", "MUST", "InferTensorContents: every datatype in its field, answered raw")
@pytest.mark.parametrize("datatype", SAMPLES)
def test_typed_contents_of_every_datatype(rpc: Rpc, datatype: str):
    data, raw = SAMPLES[datatype]
    sent = [text.encode() for text in data] if datatype == "BYTES" else data
    response = rpc.infer(one_typed(datatype, sent))
    assert [output.datatype for output in response.outputs] == [datatype]
    assert [list(output.shape) for output in response.outputs] == [[3]]
    assert list(response.raw_output_contents) == [raw]


@point("S113", "MUST", "raw_input_contents: every datatype, bytes equal")
@pytest.mark.parametrize("datatype", [*SAMPLES, *HALVES])
def test_raw_contents_of_every_datatype(rpc: Rpc, datatype: str):
    raw = {**SAMPLES, **HALVES}[datatype][1]
    response = rpc.infer(one_raw(datatype, [3], raw))
    assert [output.datatype for output in response.outputs] == [datatype]
    assert list(response.raw_output_contents) == [raw]


@point("S114", "SHOULD", "8- and 16-bit elements out of range in typed contents: INVALID_ARGUMENT")
@pytest.mark.parametrize(
    ("datatype", "number"),
    [(name, one) for name, ends in TYPED_OUT_OF_RANGE.items() for one in ends],
)
def test_typed_integers_never_wrap(rpc: Rpc, datatype: str, number: int):
    rpc.check_refused(one_typed(datatype, [0, number]), naming=f"IN_{datatype}")


@point("S115", "MUST", "contents in another field than the datatype's: INVALID_ARGUMENT")
@pytest.mark.parametrize(
    ("datatype", "field", "data"),
    [
        ("FP32", "int_contents", [1]),
        ("FP32", "fp64_contents", [1.0]),
        ("INT32", "int64_contents", [1]),
        ("UINT64", "uint_contents", [1]),
        ("BOOL", "int_contents", [1]),
        ("BYTES", "uint_contents", [1]),
        ("FP16", "fp32_contents", [1.0]),
        ("BF16", "fp32_contents", [1.0]),
    ],
)
def test_contents_stand_in_their_own_field(rpc: Rpc, datatype: str, field: str, data: list[Any]):
    rpc.check_refused(one_typed(datatype, data, field=field), naming=f"IN_{datatype}")


@point("S116", "MUST", "contents in two fields: INVALID_ARGUMENT")
def test_contents_stand_in_one_field(rpc: Rpc):
    request = typed_ok()
    request.inputs[0].contents.int_contents.extend([1, 2, 3, 4])
    rpc.check_refused(request, naming="INPUT0")


@point("S117", "MUST", "typed contents of the wrong count: INVALID_ARGUMENT")
@pytest.mark.parametrize("count", [0, 3, 5])
def test_typed_contents_fit_the_shape(rpc: Rpc, count: int):
    request = typed_ok()
    del request.inputs[0].contents.fp32_contents[:]
    request.inputs[0].contents.fp32_contents.extend([1.0] * count)
    rpc.check_refused(request, naming="INPUT0")


@point("S118", "SHOULD", "more raw entries than inputs: INVALID_ARGUMENT")
def test_raw_entries_without_an_input_are_refused(rpc: Rpc):
    request = raw_ok()
    request.raw_input_contents.append(b"\0" * 16)
    rpc.check_refused(request)


@point("S119", "MUST", "an input missing, unknown or twice: INVALID_ARGUMENT")
@pytest.mark.parametrize(("index", "name"), [(1, None), (1, "EXTRA"), (1, "INPUT0"), (0, "input0")])
def test_inputs_are_the_models(rpc: Rpc, index: int, name: str | None):
    request = raw_ok()
    if name is None:
        del request.inputs[index], request.raw_input_contents[index]
    else:
        request.inputs[index].name = name
    rpc.check_refused(request, naming=name or "INPUT1")


@point("S120", "MUST", "another datatype, an unknown one, none: INVALID_ARGUMENT")
@pytest.mark.parametrize("datatype", ["INT32", "FLOAT", "fp32", ""])
def test_datatypes_are_the_models(rpc: Rpc, datatype: str):
    request = raw_ok()
    request.inputs[0].datatype = datatype
    rpc.check_refused(request, naming="INPUT0")


@point("S121", "MUST", "a shape that does not fit, -1, or huge: INVALID_ARGUMENT, never a wrap")
@pytest.mark.parametrize(
    "shape",
    [[-1], [-2], [1], [3], [2, 1], [], [2**63 - 1], [2**62], [2**32, 2**32], [2**31, 2**31, 2**31]],
)
def test_shapes_are_checked(rpc: Rpc, shape: list[int]):
    rpc.check_refused(one_raw("FP32", shape, bytes(8)), naming="IN_FP32")


@point("S122", "MUST", "an output asked for comes alone; an unknown one: INVALID_ARGUMENT")
def test_outputs_are_chosen(rpc: Rpc):
    request = raw_ok()
    request.outputs.add(name="OUTPUT1")
    response = rpc.infer(request)
    assert [output.name for output in response.outputs] == ["OUTPUT1"]
    assert list(response.raw_output_contents) == [OUTPUT1_BYTES]
    request.outputs.add(name="NOPE")
    rpc.check_refused(request, naming="NOPE")


@point("S123", "MUST", "ModelInferResponse: model_name, model_version; id empty when not given")
@pytest.mark.parametrize(("asked", "answered"), [("", "3"), ("1", "1"), ("v1", "1"), ("v3", "3")])
def test_the_answer_names_its_model(rpc: Rpc, asked: str, answered: str):
    response = rpc.infer(raw_ok(model_version=asked))
    assert (response.model_name, response.model_version) == ("m", answered)
    assert response.id == ""


@point("S124", "MUST", "an empty tensor, raw and typed: one raw entry of no bytes")
def test_empty_tensors_pass(rpc: Rpc):
    for request in (one_raw("FP32", [0], b""), one_typed("FP32", [], [0])):
        response = rpc.infer(request)
        assert [list(output.shape) for output in response.outputs] == [[0]]
        assert list(response.raw_output_contents) == [b""]


@point("S125", "MUST", "raw BYTES whose prefixes do not add up: INVALID_ARGUMENT")
@pytest.mark.parametrize(
    "raw", [b"\x05\x00\x00\x00a", b"a", prefixed(b"a", b"b"), b"", b"\xff\xff\xff\xff"]
)
def test_raw_strings_that_do_not_add_up_are_refused(rpc: Rpc, raw: bytes):
    rpc.check_refused(one_raw("BYTES", [1], raw), naming="IN_BYTES")


@point("S126", "SHOULD", "a parameter without a value: INVALID_ARGUMENT")
def test_a_parameter_has_a_value(rpc: Rpc):
    request = raw_ok()
    request.parameters["mine"].SetInParent()
    rpc.check_refused(request, naming="mine")


@point("S127", "SHOULD", "a reserved parameter: INVALID_ARGUMENT")
def test_reserved_parameters_are_refused(rpc: Rpc):
    request = raw_ok()
    set_parameters(request, triton_x=("int64_param", 1))
    rpc.check_refused(request, naming="triton_x")


@point("S128", "SHOULD", "parameters of every kind on inputs and outputs are tolerated")
def test_tensor_parameters_are_tolerated(rpc: Rpc):
    request = raw_ok()
    set_parameters(request.inputs[0], mine=("double_param", 0.5))
    set_parameters(request.outputs.add(name="OUTPUT0"), binary_data=("bool_param", False))
    assert list(rpc.infer(request).raw_output_contents) == [OUTPUT0_BYTES]


@point("S129", "MUST", "metadata and readiness of one version; unknown versions: NOT_FOUND")
def test_metadata_of_one_version(rpc: Rpc):
    found = rpc.call("ModelMetadata", pb.ModelMetadataRequest(name="m", version="1"))
    assert list(found.versions) == ["1"]
    assert rpc.call("ModelReady", pb.ModelReadyRequest(name="m", version="v3")).ready
    error = rpc.refusal("ModelMetadata", pb.ModelMetadataRequest(name="m", version="9"))
    assert error.code() is Code.NOT_FOUND


@point("S130", "MUST", "a message that cannot be read: an error, and the next call is answered")
def test_a_broken_message_harms_nobody(rpc: Rpc):
    call = rpc.channel.unary_unary(f"/{SERVICE}/ModelInfer")
    with pytest.raises(grpc.RpcError) as caught:
        call(b"\xff\xff\xff", timeout=TIMEOUT_S)
    assert caught.value.code() in (Code.INTERNAL, Code.INVALID_ARGUMENT)
    assert rpc.call("ServerLive", pb.ServerLiveRequest()).live


@point("S131", "SHOULD", "server reflection lists the service")
def test_reflection_lists_the_service(rpc: Rpc):
    call = rpc.channel.stream_stream(
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
    )
    answers = list(call(iter([b"\x3a\x01*"]), timeout=TIMEOUT_S))
    assert len(answers) == 1
    assert SERVICE.encode() in answers[0]


@point("S132", "MUST", "the model's name and tensors are case-sensitive over gRPC")
def test_grpc_names_have_their_case(rpc: Rpc):
    rpc.check_refused(raw_ok(model_version="V1"), Code.NOT_FOUND, Code.INVALID_ARGUMENT)
    request = raw_ok()
    request.model_name = "M"
    rpc.check_refused(request, Code.NOT_FOUND)


@point("S133", "MUST", "batch of two, and over max_batch_size: INVALID_ARGUMENT")
@pytest.mark.parametrize("rows", [2, 8, 9])
def test_batches_over_grpc(rpc: Rpc, rows: int):
    request = pb.ModelInferRequest(model_name="m")
    for name in ("INPUT0", "INPUT1"):
        tensor(request, name, "FP32", [rows, 4])
        request.raw_input_contents.append(struct.pack("<4f", 1, 2, 3, 4) * rows)
    if rows > 8:
        rpc.check_refused(request)
    else:
        raw = rpc.infer(request).raw_output_contents
        assert list(raw) == [struct.pack("<4f", 2, 4, 6, 8) * rows, bytes(16 * rows)]


@point("S134", "MUST", "unknown fields of a message are ignored")
def test_unknown_fields_are_ignored(rpc: Rpc):
    call = rpc.channel.unary_unary(f"/{SERVICE}/ModelInfer")
    answer = call(raw_ok().SerializeToString() + b"\xfa\x3f\x03abc", timeout=TIMEOUT_S)
    response = pb.ModelInferResponse.FromString(answer)
    assert list(response.raw_output_contents) == [OUTPUT0_BYTES, OUTPUT1_BYTES]
