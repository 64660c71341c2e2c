"""The path of an inference, with a codec that says which of its methods ran, and in what thread."""

import threading

import numpy as np
import pytest
from fields import with_fields

from inferd.aio.inline import NotFast
from inferd.api.inference import GrpcInference, HttpInference, copied_bytes
from inferd.config.model import ModelConfig, ModelInput, ModelOutput
from inferd.core.request import InferRequest, InferResponse, Span
from inferd.engine.engine import Engine
from inferd.engine.serving.served import Served
from inferd.errors import InvalidRequest, ModelNotFound, Overloaded
from inferd.http.header_forward import HeaderForward
from inferd.http.message import HttpRequest
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor
from inferd.wire.infer_codec import InferCodec

CONFIG = ModelConfig(
    name="m",
    input=(ModelInput("IN", DataType.FP32, (4,)),),
    output=(ModelOutput("OUT", DataType.FP32, (4,)),),
)


class Doubling:
    """A scheduler whose model answers OUT = IN + IN."""

    async def run(self, request):
        [tensor] = request.inputs
        data = tensor.numpy() * 2
        return InferResponse("", "", outputs=[Tensor("OUT", DataType.FP32, (4,), data)])

    async def close(self):
        pass


class NotingCodec(InferCodec):
    """Messages are names of models; methods named in `refused` raise what it says."""

    def __init__(self, **refused):
        self.refused = refused
        self.steps = []

    def _note(self, step):
        is_loop = threading.current_thread() is threading.main_thread()
        self.steps.append(step if is_loop else f"{step} in a thread")
        if step in self.refused:
            raise self.refused[step]

    def _request(self, step, model):
        self._note(step)
        data = np.ones(4, np.float32)
        return InferRequest(model, inputs=[Tensor("IN", DataType.FP32, (4,), data)])

    def decode(self, message, call):
        return self._request("decode", message)

    def decode_large(self, message, call, *, slowly=False):
        return self._request("decode_slowly" if slowly else "decode_large", message)

    def body_of(self, message, call):
        return b""

    def model_of(self, message, call):
        return message, ""

    def encode(self, request, response, message, call, *, in_thread=False):
        self._note("encode_large" if in_thread else "encode")
        return [response.outputs[0].numpy().sum(), request.parameters]


class GrpcContext:
    """A call with metadata."""

    metadata = (("x-who", "me"),)


HTTP = HttpRequest(b"POST", b"/", {}, is_kept_alive=True, is_http_10=False)


@pytest.fixture
def engine():
    engine = Engine()
    engine.catalog.add(Served(CONFIG, 1, "onnx_onnxv1", Doubling()))
    engine.readiness.finish_loading()
    return engine


def over_http(engine, codec, **options):
    return HttpInference(engine, codec, **{"forwards": False} | options)


async def test_what_is_small_is_decoded_and_encoded_on_the_loop(engine):
    codec = NotingCodec()
    inference = over_http(engine, codec)
    assert await inference.begin("m", HTTP) == [8, {}]
    assert codec.steps == ["decode", "encode"]


async def test_what_is_large_is_decoded_and_encoded_in_threads(engine):
    codec = NotingCodec(decode=NotFast(), encode=NotFast())
    assert await over_http(engine, codec).begin("m", HTTP) == [8, {}]
    large = ["decode_large in a thread", "encode", "encode_large in a thread"]
    assert codec.steps == ["decode", *large]


async def test_what_takes_seconds_to_decode_is_decoded_by_itself(engine):
    codec = NotingCodec(decode=NotFast(), decode_large=NotFast())
    assert await over_http(engine, codec).begin("m", HTTP) == [8, {}]
    slow = ["decode_large in a thread", "decode_slowly in a thread"]
    assert codec.steps == ["decode", *slow, "encode"]


async def test_a_part_of_the_path_does_the_same(engine):
    codec = NotingCodec(decode=NotFast(), encode=NotFast())
    inference = over_http(engine, codec)
    request = await inference.decode("m", HTTP)
    assert request.arrived_ns > 0
    assert request.copied_bytes == 16
    response = await engine.infer(request)
    assert await inference.encode(request, response, "m", HTTP) == [8, {}]


@pytest.mark.parametrize("step", ["decode", "decode_large"])
async def test_a_model_that_is_not_there_is_the_first_error(engine, step):
    refused = {"decode": NotFast()} | {step: InvalidRequest("what is that?")}

    async def infer(model):
        await over_http(engine, NotingCodec(**refused)).begin(model, HTTP)

    with pytest.raises(InvalidRequest, match="what is that"):
        await infer("m")
    with pytest.raises(ModelNotFound):
        await infer("none")


@pytest.mark.parametrize("refuses", [True, False])
async def test_what_is_large_may_be_refused_before_it_is_decoded(engine, refuses):
    engine.capacity.max_requests = 0
    codec = NotingCodec(decode=NotFast())
    with pytest.raises(Overloaded):
        await over_http(engine, codec, refuses_when_full=refuses).begin("m", HTTP)
    assert len(codec.steps) == (1 if refuses else 2)
    assert engine.capacity.refused_for_requests == 1


@pytest.mark.parametrize("refused", [{}, {"decode": NotFast()}])
async def test_chosen_headers_become_parameters(engine, refused):
    http = HttpRequest(b"POST", b"/", {}, is_kept_alive=True, is_http_10=False)
    http.forwarded = {"x-who": "you"}
    inference = over_http(engine, NotingCodec(**refused), forwards=True)
    assert (await inference.begin("m", http))[1] == {"x-who": "you"}
    assert (await over_http(engine, NotingCodec(**refused)).begin("m", http))[1] == {}
    forward = HeaderForward(lambda name: name.startswith("x-"), frozenset())
    inference = GrpcInference(engine, NotingCodec(**refused), forward)
    assert (await inference.begin("m", GrpcContext()))[1] == {"x-who": "me"}


def test_views_of_the_body_and_of_shared_memory_take_nothing_and_copies_do():
    body = bytes(100)
    shared, fetched = memoryview(bytearray(7)), memoryview(bytearray(11))
    request = with_fields(
        InferRequest(
            "m",
            inputs=[
                Tensor("A", DataType.UINT8, (10,), memoryview(body)[:10]),
                Tensor("B", DataType.UINT8, (7,), shared),
                Tensor("C", DataType.UINT8, (11,), fetched),
                Tensor("D", DataType.UINT8, (13,), b"x" * 13),
                Tensor("E", DataType.FP32, (5,), np.zeros(5, "f4")),
            ],
        ),
        spans=[
            Span(shared, ((1,), 0, 7), None),
            Span(fetched, ((2,), 0, 11), None, is_copy=True),
        ],
    )
    assert copied_bytes(request, body) == 11 + 13 + 20
    assert copied_bytes(request, memoryview(body)) == 11 + 13 + 20
