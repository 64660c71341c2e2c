"""The gRPC handlers alone: bytes in, buffers or an error out, no socket."""

import asyncio
import struct

import msgspec
import pytest
from tritonclient.grpc import service_pb2 as pb

from inferd.api.call import V2_SERVICE
from inferd.api.grpc_methods import grpc_methods
from inferd.api.v2.calls import V2_ALONE
from inferd.config.model import ModelConfig, ModelInput, ModelOutput
from inferd.config.options.access import API_GROUPS
from inferd.config.server import ServerConfig
from inferd.core.metadata import ModelState
from inferd.core.request import InferResponse
from inferd.engine.engine import Engine
from inferd.engine.serving.served import Served
from inferd.errors import InvalidRequest, ModelNotFound, Unavailable
from inferd.http.access import Access, Secret
from inferd.http.grpc.handler import Unary
from inferd.server.options import grpc_options
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor
from inferd.transport.grpc_options import port_methods
from inferd.wire.proto import pool

FOUR = struct.pack("<4f", 1, 2, 3, 4)


class Doubling:
    """A scheduler whose model answers OUT = IN + IN."""

    async def run(self, request):
        [tensor] = request.inputs
        return InferResponse(
            "", "", "", [Tensor("OUT", DataType.FP32, tensor.shape, tensor.numpy() * 2)]
        )

    async def close(self):
        pass


CONFIG = ModelConfig(
    name="m",
    input=(ModelInput("IN", DataType.FP32, (4,)),),
    output=(ModelOutput("OUT", DataType.FP32, (4,)),),
)


@pytest.fixture
def engine():
    engine = Engine()
    engine.catalog.add(Served(CONFIG, 1, "onnx_onnxv1", Doubling()))
    engine.catalog.add(Served(CONFIG, 3, "onnx_onnxv1", Doubling()))
    engine.readiness.finish_loading()
    return engine


async def no_pause():
    await asyncio.sleep(0)
    return True


def called(engine, rpc, request=b"", service=V2_SERVICE, typed_answers=False):
    """Return the bytes the unary method answers `request` with."""
    method = grpc_methods(engine, no_pause, typed_answers=typed_answers)[f"/{service}/{rpc}"]
    data = request if isinstance(request, bytes) else request.SerializeToString()
    return b"".join(asyncio.run(method.handler(data, None)))


def infer_request(**fields):
    tensor = pb.ModelInferRequest.InferInputTensor(name="IN", datatype="FP32", shape=[4])
    return pb.ModelInferRequest(model_name="m", inputs=[tensor], **fields)


def test_all_rpcs_of_the_service_are_in_the_table(engine):
    methods = grpc_methods(engine, no_pause, typed_answers=False)
    ours = {path.rpartition("/")[2] for path in methods if path.startswith(f"/{V2_SERVICE}/")}
    assert ours == {rpc.name for rpc in pool().FindServiceByName(V2_SERVICE).methods}


def test_every_method_belongs_to_an_api_group_and_every_group_has_methods(engine):
    methods = grpc_methods(engine, no_pause, typed_answers=False)
    groups = {
        path: call.group for call in V2_ALONE.calls for rpc in call.rpcs for path in rpc.paths()
    }
    assert groups.keys() == methods.keys()
    assert set(groups.values()) == set(API_GROUPS)


def test_mlservers_own_service_for_repositories_is_answered_as_v2s(engine):
    service = "inference.model_repository.ModelRepositoryService"
    request = pb.RepositoryIndexRequest(ready=True)
    answer = called(engine, "RepositoryIndex", request, service)
    assert answer == called(engine, "RepositoryIndex", request)
    rows = pb.RepositoryIndexResponse.FromString(answer).models
    assert {row.name for row in rows} == {"m"}
    for rpc in ("RepositoryModelLoad", "RepositoryModelUnload"):
        with pytest.raises(Unavailable, match="--model-control-mode"):
            called(engine, rpc, pb.RepositoryModelLoadRequest(model_name="m"), service)


def test_the_server_is_live_and_ready(engine):
    assert pb.ServerLiveResponse.FromString(called(engine, "ServerLive")).live
    assert pb.ServerReadyResponse.FromString(called(engine, "ServerReady")).ready
    engine.drain()
    assert pb.ServerLiveResponse.FromString(called(engine, "ServerLive")).live
    assert not pb.ServerReadyResponse.FromString(called(engine, "ServerReady")).ready


@pytest.mark.parametrize("rpc", ["ServerLive", "ServerReady", "ServerMetadata", "ModelInfer"])
def test_garbage_is_invalid(engine, rpc):
    with pytest.raises(InvalidRequest, match="cannot be read"):
        called(engine, rpc, b"\xff")


@pytest.mark.parametrize(
    ("name", "version", "ready"),
    [
        ("m", "", True),
        ("m", "1", True),
        ("m", "v3", True),
        ("m", "9", False),
        ("m", "abc", False),
        ("m", "-1", False),
        ("nope", "", False),
        ("", "", False),
        ("broken", "", False),
    ],
)
def test_a_model_that_cannot_answer_is_not_ready(engine, name, version, ready):
    engine.catalog.set_state("broken", 1, ModelState.UNAVAILABLE, "does not load")
    data = called(engine, "ModelReady", pb.ModelReadyRequest(name=name, version=version))
    assert pb.ModelReadyResponse.FromString(data).ready is ready


def test_the_server_tells_who_it_is(engine):
    metadata = pb.ServerMetadataResponse.FromString(called(engine, "ServerMetadata"))
    expected = engine.server_metadata()
    assert (metadata.name, metadata.version) == (expected.name, expected.version)
    assert list(metadata.extensions) == expected.extensions


def test_a_model_tells_what_it_takes(engine):
    request = pb.ModelMetadataRequest(name="m")
    metadata = pb.ModelMetadataResponse.FromString(called(engine, "ModelMetadata", request))
    assert (metadata.name, list(metadata.versions)) == ("m", ["1", "3"])
    [tensor] = metadata.inputs
    assert (tensor.name, tensor.datatype, list(tensor.shape)) == ("IN", "FP32", [4])


@pytest.mark.parametrize(("name", "version"), [("nope", ""), ("m", "9"), ("m", "abc")])
def test_metadata_of_an_unknown_model_are_not_found(engine, name, version):
    with pytest.raises(ModelNotFound):
        called(engine, "ModelMetadata", pb.ModelMetadataRequest(name=name, version=version))


def test_an_inference_is_answered_with_the_id_of_its_request(engine):
    request = infer_request(raw_input_contents=[FOUR], id="42")
    answer = pb.ModelInferResponse.FromString(called(engine, "ModelInfer", request))
    assert (answer.model_name, answer.model_version, answer.id) == ("m", "3", "42")
    assert list(answer.raw_output_contents) == [struct.pack("<4f", 2, 4, 6, 8)]


def test_typed_contents_are_answered_raw_unless_the_option_says_typed(engine):
    request = infer_request()
    request.inputs[0].contents.fp32_contents.extend([1, 2, 3, 4])
    raw = pb.ModelInferResponse.FromString(called(engine, "ModelInfer", request))
    assert list(raw.raw_output_contents) == [struct.pack("<4f", 2, 4, 6, 8)]
    typed = pb.ModelInferResponse.FromString(
        called(engine, "ModelInfer", request, typed_answers=True)
    )
    assert list(typed.outputs[0].contents.fp32_contents) == [2, 4, 6, 8]
    assert list(typed.raw_output_contents) == []


def test_the_engine_learns_when_a_request_arrived(engine):
    seen = []

    class Noting(Doubling):
        async def run(self, request):
            seen.append(request.arrived_ns)
            return await super().run(request)

    engine.catalog.add(Served(CONFIG, 4, "x", Noting()))
    called(engine, "ModelInfer", infer_request(raw_input_contents=[FOUR]))
    assert seen[0] > 0


def test_a_method_of_no_api_group_is_guarded_as_inference(engine):
    async def handler(data, call):
        raise NotImplementedError

    options = msgspec.structs.replace(
        grpc_options(ServerConfig()), access=Access({"inference": Secret(b"k", b"v")})
    )
    methods = port_methods(engine, options, asyncio.Event(), {"/other.Service/Run": Unary(handler)})
    guarded = {path for path, method in methods.items() if method.guard}
    infer = {f"/{V2_SERVICE}/ModelInfer", f"/{V2_SERVICE}/ModelStreamInfer"}
    assert guarded == {"/other.Service/Run", *infer}
