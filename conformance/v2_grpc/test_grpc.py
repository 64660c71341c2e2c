"""The gRPC service's unary calls (V2 gRPC), and the services beside it."""

import struct

import grpc
import pytest
from conformance.bodies import OUTPUT0_BYTES, OUTPUT1_BYTES, prefixed
from conformance.checks import check_ok
from conformance.points import point
from conformance.rest import Rest
from conformance.rpc import (
    SERVICE,
    TIMEOUT_S,
    Rpc,
    one_raw,
    one_typed,
    raw_ok,
    set_parameters,
    typed_ok,
)
from tritonclient.grpc import service_pb2 as pb

Code = grpc.StatusCode


@point(79, "MUST", "ServerLive, ServerReady, ModelReady: true")
def test_server_and_model_are_ready(rpc: Rpc):
    assert rpc.call("ServerLive", pb.ServerLiveRequest()).live
    assert rpc.call("ServerReady", pb.ServerReadyRequest()).ready
    assert rpc.call("ModelReady", pb.ModelReadyRequest(name="m")).ready
    assert rpc.call("ModelReady", pb.ModelReadyRequest(name="m", version="1")).ready


@point(80, "SHOULD", "ModelReady of an unknown model: OK, ready=false")
def test_an_unknown_model_is_not_ready(rpc: Rpc):
    assert not rpc.call("ModelReady", pb.ModelReadyRequest(name="nope")).ready
    assert not rpc.call("ModelReady", pb.ModelReadyRequest(name="m", version="9")).ready


@point(81, "MUST", "ServerMetadata, ModelMetadata: as over HTTP")
def test_metadata_is_the_same_as_over_http(rpc: Rpc, rest: Rest):
    server = rpc.call("ServerMetadata", pb.ServerMetadataRequest())
    found = {"name": server.name, "version": server.version, "extensions": [*server.extensions]}
    assert found == check_ok(rest.get("/v2"))
    for name in ("m", "all", "mymodel"):
        model = rpc.call("ModelMetadata", pb.ModelMetadataRequest(name=name))
        found = {"name": model.name, "versions": [*model.versions], "platform": model.platform}
        for key in ("inputs", "outputs"):
            found[key] = [
                {"name": tensor.name, "datatype": tensor.datatype, "shape": [*tensor.shape]}
                for tensor in getattr(model, key)
            ]
        assert found == check_ok(rest.get(f"/v2/models/{name}"))


@point(82, "MUST", "ModelMetadata of an unknown model: NOT_FOUND")
def test_metadata_of_an_unknown_model(rpc: Rpc):
    error = rpc.refusal("ModelMetadata", pb.ModelMetadataRequest(name="nope"))
    assert error.code() is Code.NOT_FOUND
    assert "nope" in error.details()


@point(83, "MUST", "ModelInfer raw: raw_output_contents, id echoed")
def test_raw_inputs_are_answered_raw(rpc: Rpc):
    response = rpc.infer(raw_ok(id="42"))
    assert response.id == "42"
    assert response.model_name == "m"
    assert [output.name for output in response.outputs] == ["OUTPUT0", "OUTPUT1"]
    assert [list(output.shape) for output in response.outputs] == [[1, 4], [1, 4]]
    assert [output.datatype for output in response.outputs] == ["FP32", "FP32"]
    assert list(response.raw_output_contents) == [OUTPUT0_BYTES, OUTPUT1_BYTES]


@point(84, "MUST", "ModelInfer typed contents: answered, raw")
def test_typed_inputs_are_answered_raw(rpc: Rpc):
    response = rpc.infer(typed_ok())
    assert list(response.raw_output_contents) == [OUTPUT0_BYTES, OUTPUT1_BYTES]
    assert not any(output.HasField("contents") for output in response.outputs)


@point(85, "MUST", "raw and typed contents mixed: INVALID_ARGUMENT")
@pytest.mark.parametrize("raw_count", [1, 2])
def test_raw_and_typed_do_not_mix(rpc: Rpc, raw_count: int):
    request = raw_ok()
    request.inputs[0].contents.fp32_contents.extend([1, 2, 3, 4])
    del request.raw_input_contents[raw_count:]
    rpc.check_refused(request)


@point(86, "MUST", "too few raw entries: INVALID_ARGUMENT")
@pytest.mark.parametrize("raw_count", [0, 1])
def test_every_input_needs_its_raw_entry(rpc: Rpc, raw_count: int):
    request = raw_ok()
    del request.raw_input_contents[raw_count:]
    rpc.check_refused(request)


@point(87, "MUST", "wrong raw size: INVALID_ARGUMENT")
@pytest.mark.parametrize("size", [0, 8, 15, 20])
def test_a_raw_entry_of_the_wrong_size_is_refused(rpc: Rpc, size: int):
    request = raw_ok()
    request.raw_input_contents[1] = b"\0" * size
    rpc.check_refused(request, naming="INPUT1")


@point(88, "MUST", "ModelInfer on an unknown model or version: NOT_FOUND")
@pytest.mark.parametrize("fields", [{"model_name": "nope"}, {"model_version": "9"}])
def test_infer_on_an_unknown_model(rpc: Rpc, fields: dict):
    request = raw_ok()
    request.MergeFrom(pb.ModelInferRequest(**fields))
    rpc.check_refused(request, Code.NOT_FOUND)


@point(89, "MUST", 'model_version "abc": INVALID_ARGUMENT or NOT_FOUND')
@pytest.mark.parametrize("version", ["abc", "-1", "1.5", "99999999999999999999"])
def test_a_version_that_is_none_is_refused(rpc: Rpc, version: str):
    rpc.check_refused(raw_ok(model_version=version), Code.INVALID_ARGUMENT, Code.NOT_FOUND)


@point(90, "MUST", "bytes_contents: answered raw, with prefixes")
def test_strings_are_answered_with_prefixes(rpc: Rpc):
    response = rpc.infer(one_typed("BYTES", [b"a", b"", b"\xff"]))
    assert list(response.raw_output_contents) == [prefixed(b"a", b"", b"\xff")]


@point(91, "MUST", "double_param, and priority as uint64_param: accepted")
def test_parameters_of_the_client_are_accepted(rpc: Rpc):
    request = raw_ok()
    set_parameters(
        request,
        mine=("double_param", 1.5),
        priority=("uint64_param", 0),
        timeout=("int64_param", 0),
        text=("string_param", "a"),
        flag=("bool_param", True),
    )
    assert rpc.infer(request).raw_output_contents[0] == OUTPUT0_BYTES


@point(92, "MUST", "a tensor of 6 MiB: OK")
def test_a_large_tensor_passes(rpc: Rpc):
    raw = struct.pack("<I", 7) * (6 * 2**20 // 4)
    response = rpc.infer(one_raw("UINT32", [len(raw) // 4], raw))
    assert response.raw_output_contents[0] == raw


@point(97, "SHOULD", 'grpc.health.v1 Check "": SERVING')
def test_the_standard_health_service_says_serving(rpc: Rpc):
    check = rpc.channel.unary_unary("/grpc.health.v1.Health/Check")
    assert check(b"", timeout=TIMEOUT_S) == b"\x08\x01"


@point(98, "SHOULD", "a compressed call: OK")
@pytest.mark.parametrize("compression", [grpc.Compression.Gzip, grpc.Compression.Deflate])
def test_a_compressed_call_is_answered(rpc: Rpc, compression: grpc.Compression):
    response = rpc.infer(raw_ok(), compression=compression)
    assert response.raw_output_contents[0] == OUTPUT0_BYTES


@point(99, "SHOULD", "an unknown method: UNIMPLEMENTED")
def test_an_unknown_method_is_unimplemented(rpc: Rpc):
    call = rpc.channel.unary_unary(f"/{SERVICE}/Nothing")
    with pytest.raises(grpc.RpcError) as caught:
        call(b"", timeout=TIMEOUT_S)
    assert caught.value.code() is Code.UNIMPLEMENTED
