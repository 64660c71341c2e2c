"""The path of one request, written down; adding a hop means editing these lists, with a reason."""

import asyncio
import json
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from inferd.api.trtis.mount import TrtisMount
from inferd.api.v2.calls import Apis
from inferd.config.server import ServerConfig
from inferd.core.request import InferRequest
from inferd.engine.engine import Engine
from inferd.http.grpc.messages import encode_message
from inferd.http.h2.frames import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PREFACE,
    SETTINGS,
    encode_frame,
    encode_window_update,
)
from inferd.http.h2.hpack import encode_fields
from inferd.http.http2_connection import Http2Connection
from inferd.http.message import HttpRequest
from inferd.record import Record
from inferd.server.options import grpc_options, http_options
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor
from inferd.transport.http2_server import Http2Server
from inferd.transport.http_server import HttpServer
from inferd.wire.v2.grpc.codec import encode_infer_request

pytestmark = pytest.mark.plain

TO_THE_ENGINE_AND_BACK = [
    "engine.Engine.begin",
    "engine.Engine.find",
    "request_check.RequestCheck.check",
    "dynamic.DynamicScheduler.run_now",  # or DirectScheduler.run_now, without batching
    "execution.Execution.run_now",
    "promotion.size_class_of",
    "instance.OnnxInstance.execute",
    "instance.OnnxInstance._answer_plain",
    "bound.Bindings.take",
    "instance.OnnxInstance._answer_bound",
    "bound.Bound.run",
    "bound.Bindings.give_back",
    "response_check.ResponseCheck.check",
    "rule.are_named",
    "engine._settled",
    "stats.Counts.add_success",  # every statistic and metric of the request, in one call
]
KNOWN_REQUEST = [  # says the same as one before but for its id and values
    "codec.V2Rest.decode_infer_request",
    "template.Templates.request",
    "template._TextTemplate.read",
    "template.Template.filled",
]
KNOWN_ANSWER = [  # which differs from one before in its id and values, too
    "http_infer.RestCodec.encode",
    "codec.V2Rest.encode_infer_response",
    "codec.V2Rest._known_answer",
    "answer.KnownAnswer.fits",
    "answer.KnownAnswer.encoded",
]
READ = [
    "connection.HttpConnection.get_buffer",
    "connection.HttpConnection.buffer_updated",
    "connection.HttpConnection.take_turn",
    "connection.HttpConnection._advance",
    "reader.RequestReader.read",
]
WRITTEN = [
    "connection.HttpConnection._send",
    "message.encode_head",
    "writer.AnswerWriter.write",
    "writer.AnswerWriter.write_pending",
]
JSON_HOPS = [  # of a request whose head is like the one before
    *READ,
    "connection.HttpConnection._answer",
    "routes.HttpRoutes.begin",
    "http_infer.RestInference.begin",
    "inference.Inference.begin",
    "http_infer.RestCodec.decode",
    *KNOWN_REQUEST,
    *TO_THE_ENGINE_AND_BACK,
    *KNOWN_ANSWER,
    *WRITTEN,
]
BINARY_OUTPUT = ["tensor.Tensor.packed"]
BINARY_HOPS = [
    *READ,
    "connection.HttpConnection._answer",
    "routes.HttpRoutes.begin",
    "http_infer.RestInference.begin",
    "inference.Inference.begin",
    "http_infer.RestCodec.decode",
    "binary.json_length",
    *KNOWN_REQUEST,
    *TO_THE_ENGINE_AND_BACK,
    *KNOWN_ANSWER,
    *BINARY_OUTPUT,
    *BINARY_OUTPUT,
    *WRITTEN,
]

TRTIS_HOPS = [  # of a request like one before but for its id and values
    *READ,
    "head_template.HeadTemplate.read",
    "connection.HttpConnection._answer",
    "routes.HttpRoutes.begin",
    "http_infer.TrtisInference.begin",
    "inference.Inference.begin",
    "http_infer.TrtisHttpCodec.decode",
    "http.decode_request_header",
    "header.InferHeader.renewed",
    "trtis.Trtis.form",
    "engine.Engine.find",
    "http.Body.__init__",
    "infer.Form.decode_request",
    "http.Body.take_all",
    "template.Template.filled",
    *TO_THE_ENGINE_AND_BACK,
    "trtis.TrtisCodec.encode",
    "infer.Form.encode_response",
    "infer.Form._answer_alike",
    *BINARY_OUTPUT,
    *BINARY_OUTPUT,
    "answer.Answer.__init__",
    "http_infer.TrtisHttpCodec.answered",
    "http.StatusLine.success",
    "answer.Answer.line",
    "answer.Answer.message",
    "fields.encode_varint",  # the id
    *WRITTEN,
]

GRPC_OUTPUT = [*BINARY_OUTPUT, "fields.encode_varint"]
GRPC_HOPS = [  # of a call like one before on the same connection
    "http2_connection.Http2Connection.get_buffer",
    "http2_connection.Http2Connection.buffer_updated",
    "http2_connection.Http2Connection.take_turn",
    "connection.H2Connection.receive",
    "connection.H2Connection._read_frames",
    "connection.H2Connection._usual_request",
    "stream.H2Stream.__init__",
    "http2_connection.Http2Connection._handle",
    "call.GrpcCall.__init__",
    "unary_call.UnaryCall.on_open",
    "unary_call.UnaryCall.on_data",
    "unary_call.UnaryCall._answer_to",
    "inference.Inference.begin",
    "codec.V2Grpc.decode",
    "codec.decode_infer_request",
    "fields.Layout.cut",
    "codec._MessageTemplate.read",
    "template.Template.filled",
    *TO_THE_ENGINE_AND_BACK,
    "codec.V2Grpc.encode",
    "fields.with_raw",
    *GRPC_OUTPUT,
    *GRPC_OUTPUT,
    "unary_call.UnaryCall._answer",
    "messages.encode_small_answer",
    "sender.H2Sender.send_at_once",
    "sender.H2Sender._end",
    "frame_writer.FrameWriter.flush",
    "frame_writer.FrameWriter.write_pending",
]

MOST_RUNS = 5000
OVERRUN = "promotion.Promotion.note_overrun"
UNBOUND = "bound.Bindings.note_run"
NAMES = ("INPUT0", "INPUT1")
VALUES = np.arange(16, dtype=np.int32).reshape(1, 16)
TOUR = (Path(__file__).parents[2] / "docs" / "tour.md").read_text()


@pytest.fixture
def repository(tmp_path):
    """The model every benchmark asks: sum and difference of two INT32 [n, 16]."""
    kind, shape = TensorProto.INT32, ["n", 16]
    outputs = ("OUTPUT0", "OUTPUT1")
    nodes = [
        helper.make_node(operator, NAMES, [output])
        for operator, output in zip(("Add", "Sub"), outputs, strict=True)
    ]
    values = {name: helper.make_tensor_value_info(name, kind, shape) for name in (*NAMES, *outputs)}
    graph = helper.make_graph(
        nodes, "graph", [values[name] for name in NAMES], [values[name] for name in outputs]
    )
    opsets = [helper.make_opsetid("", 21)]
    folder = tmp_path / "addsub" / "1"
    folder.mkdir(parents=True)
    content = helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
    (folder / "model.onnx").write_bytes(content)
    return tmp_path


def http_request(inputs, binary=b""):
    document = {"inputs": inputs}
    if binary:
        document["parameters"] = {"binary_data_output": True}
    head = json.dumps(document).encode()
    length = {b"inference-header-content-length": str(len(head)).encode()} if binary else {}
    target = b"/v2/models/addsub/infer"
    return HttpRequest(b"POST", target, length, True, False, memoryview(head + binary))


def json_request():
    data = VALUES.ravel().tolist()
    return http_request(
        [{"name": n, "datatype": "INT32", "shape": [1, 16], "data": data} for n in NAMES]
    )


def binary_request():
    size = {"binary_data_size": VALUES.nbytes}
    return http_request(
        [{"name": n, "datatype": "INT32", "shape": [1, 16], "parameters": size} for n in NAMES],
        VALUES.tobytes() * 2,
    )


def trtis_request():
    parts = [f'input {{ name: "{name}" dims: 16 batch_byte_size: 64 }}' for name in NAMES]
    parts += [f'output {{ name: "OUTPUT{number}" }}' for number in (0, 1)]
    headers = {b"nv-inferrequest": f"batch_size: 1 {' '.join(parts)} id: 7".encode()}
    target = b"/api/infer/addsub?format=binary"
    return HttpRequest(b"POST", target, headers, True, False, memoryview(VALUES.tobytes() * 2))


def calls_of(function):
    """Return what `function` returns, and the functions of ours that ran, in order."""
    seen = []

    def note(frame, event, _arg):
        module = frame.f_globals.get("__name__", "")
        name = frame.f_code.co_qualname
        # Python 3.12 has no frames for comprehensions any more; a record is made, not visited.
        is_made = isinstance(frame.f_locals.get("self"), Record) and "__" in name
        is_hop = not name.endswith(">") and not is_made
        if event == "call" and module.startswith("inferd.") and is_hop:
            seen.append(f"{module.rpartition('.')[2]}.{name}")

    sys.setprofile(note)
    try:
        return function(), seen
    finally:
        sys.setprofile(None)


class Written(asyncio.Transport):
    """A socket's place: keeps what is written to it."""

    def __init__(self):
        super().__init__()
        self.data = b""
        self.has_more = asyncio.Event()

    def set_write_buffer_limits(self, high=None, low=None):
        pass

    def is_closing(self):
        return False

    def get_extra_info(self, name, default=None):
        return default

    def write(self, data):
        self.data = bytes(data)
        self.has_more.set()


async def moved_inline(connection, wire, first=b""):
    """Send the bytes `wire(number)` until the model has moved onto the event loop.

    By then its memory is bound. Return what was written then, and the hops. On a busy machine a
    run may take long by no fault of its own; then another one tells. The bytes `first` go before.
    """
    transport = Written()
    connection.connection_made(transport)

    def read(data):
        connection.get_buffer(-1)[: len(data)] = data
        connection.buffer_updated(len(data))

    if first:
        read(first)
        await transport.has_more.wait()
    for number in range(MOST_RUNS):
        transport.has_more.clear()
        # This connection is alone: what it has read is answered at once.
        _, seen = calls_of(partial(read, wire(number)))
        # From the third on, a request like those before is read by a template.
        if transport.has_more.is_set() and number > 2 and not {OVERRUN, UNBOUND} & set(seen):
            # When all who read take their turns is http/turns.py's business.
            return transport.data, [hop for hop in seen if not hop.startswith("turns.")]
        await transport.has_more.wait()
    msg = f"after {MOST_RUNS} requests the model is still in threads, or its memory not bound"
    raise AssertionError(msg)


async def answered_inline(engine, request):
    """Send `request` until the model has moved onto the event loop; return the answer, and hops."""
    trtis = TrtisMount(engine, None)
    options = http_options(ServerConfig(), apis=Apis(mounts=(trtis,)))
    head = b"%b %b HTTP/1.1\r\nHost: here\r\n" % (request.method, request.target)
    headers = {**request.headers, b"content-length": b"%d" % len(request.body)}
    head += b"".join(b"%b: %b\r\n" % header for header in headers.items())
    wire = head + b"\r\n" + request.body
    return await moved_inline(HttpServer(engine, options).connect(), lambda _: wire)


@pytest.mark.parametrize(
    ("request_", "hops"),
    [
        (json_request(), JSON_HOPS),
        (binary_request(), BINARY_HOPS),
        (trtis_request(), TRTIS_HOPS),
    ],
)
def test_a_request_takes_these_hops_and_no_others(repository, request_, hops):
    async def go():
        engine = Engine()
        await engine.load_all([repository])
        found = await answered_inline(engine, request_)
        await engine.close(30)
        return found

    answer, seen = asyncio.run(go())
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ")
    total = 2 * VALUES
    assert (total.tobytes() in body) or json.loads(body)["outputs"][0]["data"] == total[0].tolist()
    assert seen == hops


def grpc_call(stream_id):
    """The frames of one call."""
    head = [
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", b"/inference.GRPCInferenceService/ModelInfer"),
        (b"content-type", b"application/grpc"),
    ]
    inputs = [Tensor(name, DataType.INT32, (1, 16), VALUES) for name in NAMES]
    message = b"".join(encode_message(encode_infer_request(InferRequest("addsub", inputs=inputs))))
    return encode_frame(HEADERS, END_HEADERS, stream_id, encode_fields(head)) + encode_frame(
        DATA, END_STREAM, stream_id, message
    )


async def called_inline(engine):
    """Call until the model has moved onto the event loop; return what was written, and the hops."""
    connection = Http2Connection(Http2Server(engine, grpc_options(ServerConfig())).endpoint)
    settings = PREFACE + encode_frame(SETTINGS, 0, 0) + encode_window_update(0, 2**30)
    return await moved_inline(connection, lambda number: grpc_call(2 * number + 1), first=settings)


def test_a_grpc_call_takes_these_hops_and_no_others(repository):
    async def go():
        engine = Engine()
        await engine.load_all([repository])
        found = await called_inline(engine)
        await engine.close(30)
        return found

    written, seen = asyncio.run(go())
    assert (2 * VALUES).tobytes() in written
    assert seen == GRPC_HOPS


@pytest.mark.parametrize(
    ("request_", "hops"),
    [
        ("V2 over HTTP, JSON", JSON_HOPS),
        ("V2 over HTTP, binary data", BINARY_HOPS),
        ("V2 over gRPC", GRPC_HOPS),
        ("the API of the TensorRT Inference Server", TRTIS_HOPS),
    ],
)
def test_the_tour_counts_right(request_, hops):
    assert f"| {request_} | {len(hops)} |" in TOUR
    assert f"Of these, {len(TO_THE_ENGINE_AND_BACK)} lie between" in TOUR
