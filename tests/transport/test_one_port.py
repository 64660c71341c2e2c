"""One port for HTTP/1.1, REST over HTTP/2 and gRPC, over real sockets with raw frames."""

import asyncio
import dataclasses
import json
import struct

import grpc.aio
import numpy as np
import pytest
from http2_client import Client
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc

from inferd.api.trtis.mount import TrtisMount
from inferd.api.v2.calls import Apis
from inferd.config.model import ModelConfig, ModelInput, ModelOutput
from inferd.config.server import ServerConfig
from inferd.core.request import InferResponse
from inferd.engine.engine import Engine
from inferd.engine.serving.served import Served
from inferd.errors import BackendFailed
from inferd.http.h2.frames import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    ErrorCode,
    encode_frame,
    encode_rst_stream,
    encode_window_update,
)
from inferd.http.h2.hpack import encode_fields
from inferd.server.options import grpc_options, http_options
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor
from inferd.transport.http2_server import Http2Server
from inferd.transport.http_server import HttpServer
from inferd.transport.one_port import share_port


class Held:
    """A scheduler that gives its input back when it is released."""

    def __init__(self):
        self.started = asyncio.Event()
        self.release = asyncio.Event()
        self.cancelled = asyncio.Event()

    async def run(self, request):
        self.started.set()
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        [tensor] = request.inputs
        output = Tensor("OUT", DataType.FP32, tensor.shape, tensor.data)
        return InferResponse("", "", outputs=[output], parameters=request.parameters)


class Counting:
    """A scheduler of a decoupled model: answers 0, 1, 2, ..., as many as the first input says.

    Each has 20,000 elements. `count` is how many it gave, `left` is set when its stream was closed.
    """

    def __init__(self):
        self.count = 0
        self.left = asyncio.Event()
        self.started = asyncio.Event()

    async def stream(self, request):
        try:
            for number in range(int(request.inputs[0].numpy()[0])):
                self.started.set()
                self.count += 1
                values = np.full(20_000, number, np.float32)
                output = Tensor.from_numpy("OUT", values, DataType.FP32)
                yield InferResponse("", "", outputs=[output], final=False)
            if len(request.inputs[0].numpy()) > 1:
                msg = "it broke"
                raise BackendFailed(msg)
        finally:
            self.left.set()


def one_port(test):
    """Give `test` a client, the port, and the scheduler behind model m."""

    async def run(options):
        held = Held()
        engine = Engine()
        tensor = ModelInput("IN", DataType.FP32, (-1,))
        config = ModelConfig(
            name="m", input=(tensor,), output=(ModelOutput("OUT", DataType.FP32, (-1,)),)
        )
        engine.catalog.add(Served(config, 1, "onnx_onnxv1", held))
        held.counting = Counting()
        many = dataclasses.replace(config, name="many", decoupled=True)
        engine.catalog.add(Served(many, 1, "onnx_onnxv1", held.counting))
        engine.readiness.finish_loading()
        config = ServerConfig(http_port=1, grpc_port=1, **options)
        engine.capacity.max_bytes = config.max_inflight_bytes
        engine.capacity.max_requests = config.max_inflight_requests
        http = HttpServer(
            engine, http_options(config, apis=Apis(mounts=(TrtisMount(engine, "me"),)))
        )
        http2 = Http2Server(
            engine,
            grpc_options(config),
            http=http,
        )
        share_port(http, http2)
        port = await http.start("127.0.0.1", 0)
        client = Client(*await asyncio.open_connection("127.0.0.1", port))
        client.send(PREFACE, encode_frame(SETTINGS, 0, 0), encode_window_update(0, 2**30))
        try:
            await asyncio.wait_for(test(client, port, held), 30)
        finally:
            client.writer.close()
            http.close()
            await http2.stop(0)

    return run


def run(test, **options):
    asyncio.run(one_port(test)(options))


def infer_body(values):
    tensor = {"name": "IN", "datatype": "FP32", "shape": [len(values)], "data": values}
    return json.dumps({"inputs": [tensor]}).encode()


def test_get_is_answered():
    async def test(client, port, held):
        status, fields, body = await client.answer(client.ask(b"GET", b"/v2"))
        assert status == 200 and json.loads(body)["name"] == "inferd"
        assert fields["content-type"] == "application/json"
        assert int(fields["content-length"]) == len(body)
        head = await client.answer(client.ask(b"HEAD", b"/v2/health/live"))
        assert head[0] == 200 and head[2] == b"" and int(head[1]["content-length"]) > 0

    run(test)


@pytest.mark.parametrize("count", [3, 20_000])
@pytest.mark.parametrize("pieces", [1, 7])
@pytest.mark.parametrize("is_declared", [True, False])
def test_inference_takes_bodies_of_any_size_in_any_pieces(count, pieces, is_declared):
    async def test(client, port, held):
        held.release.set()
        body = infer_body([0.5] * count)
        fields = [(b"content-length", b"%d" % len(body))] if is_declared else []
        asked = client.ask(b"POST", b"/v2/models/m/infer", body, pieces=pieces, fields=fields)
        client.send(encode_frame(SETTINGS, 0, 0, struct.pack(">HL", 4, 2**30)))
        status, _, answer = await client.answer(asked)
        assert status == 200 and json.loads(answer)["outputs"][0]["data"] == [0.5] * count

    run(test)


def test_headers_that_match_the_pattern_become_parameters():
    async def test(client, port, held):
        held.release.set()
        fields = [(b"x-user", b"Ann"), (b"y", b"1"), (b"x-user", b"Bob")]
        asked = client.ask(b"POST", b"/v2/models/m/infer", infer_body([1.0]), fields=fields)
        _, _, answer = await client.answer(asked)
        assert json.loads(answer)["parameters"] == {"x-user": "Ann, Bob"}

    run(test, http_header_forward_pattern="^X-")


def test_spaces_around_the_value_of_a_header_do_not_count_over_http2():
    async def test(client, _port, held):
        held.release.set()
        fields = [(b"content-type", b" application/json\t"), (b"x-user", b"  a b ")]
        for _ in range(2):
            asked = client.ask(b"POST", b"/v2/models/m/infer", infer_body([1.0]), fields=fields)
            _, _, answer = await client.answer(asked)
            assert json.loads(answer)["parameters"] == {"x-user": "a b"}

    run(test, http_header_forward_pattern="^X-")


def test_a_request_that_waits_holds_up_no_other():
    async def test(client, port, held):
        asked = client.ask(b"POST", b"/v2/models/m/infer", infer_body([1.0]))
        await held.started.wait()
        assert (await client.answer(client.ask(b"GET", b"/v2/health/live")))[0] == 200
        held.release.set()
        assert (await client.answer(asked))[0] == 200

    run(test)


def test_a_reset_cancels_the_request():
    async def test(client, port, held):
        asked = client.ask(b"POST", b"/v2/models/m/infer", infer_body([1.0]))
        await held.started.wait()
        client.send(encode_rst_stream(asked, ErrorCode.CANCEL))
        await held.cancelled.wait()

    run(test)


def test_a_client_that_waits_to_send_its_body_is_told_to_over_http2():
    async def test(client, _port, held):
        held.release.set()
        head = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/v2/models/m/infer")]
        block = encode_fields([*head, (b"expect", b"100-Continue")])
        client.send(encode_frame(HEADERS, END_HEADERS, 1, block))
        _, flags, payload = await client.frame(1, HEADERS)
        assert client.decoder.decode(payload) == [(":status", "100")]
        assert not flags & END_STREAM
        client.send(encode_frame(DATA, END_STREAM, 1, infer_body([1.0])))
        assert (await client.answer(1))[0] == 200

    run(test)


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ([(b"expect", b"miracles")], 417),
        ([(b"expect", b"")], 417),
        ([(b"expect", b"100-continue"), (b"content-length", b"101")], 413),
    ],
)
def test_what_cannot_be_met_is_refused_before_the_body_over_http2(fields, status):
    async def test(client, _port, _held):
        head = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/v2/models/m/infer")]
        client.send(encode_frame(HEADERS, END_HEADERS, 1, encode_fields([*head, *fields])))
        _, _, payload = await client.frame(1, HEADERS)
        assert dict(client.decoder.decode(payload))[":status"] == str(status)

    run(test, http_max_body_bytes=100)


# --- streams of events ---

STREAM = b"/v2/models/many/generate_stream"


def events_of(body):
    return [json.loads(event[6:]) for event in body.decode().split("\n\n")[:-1]]


def test_events_come_as_data_frames():
    async def test(client, port, held):
        asked = client.ask(b"POST", STREAM, b'{"IN":3}')
        client.send(encode_frame(SETTINGS, 0, 0, struct.pack(">HL", 4, 2**30)))
        status, fields, body = await client.answer(asked)
        assert status == 200
        assert fields == {
            "content-type": "text/event-stream; charset=utf-8",
            "cache-control": "no-store",
            "x-accel-buffering": "no",
        }
        assert [one["OUT"][0] for one in events_of(body)] == [0.0, 1.0, 2.0]
        empty = await client.answer(client.ask(b"POST", STREAM, b'{"IN":0}'))
        assert (empty[0], empty[2]) == (200, b"")

    run(test)


def test_a_failure_is_the_last_event():
    async def test(client, port, held):
        client.send(encode_frame(SETTINGS, 0, 0, struct.pack(">HL", 4, 2**30)))
        late = await client.answer(client.ask(b"POST", STREAM, b'{"IN":[1,0]}'))
        assert late[0] == 200 and events_of(late[2])[1] == {"error": "it broke"}
        first = await client.answer(client.ask(b"POST", STREAM, b'{"IN":[0,0]}'))
        assert first[0] == 500 and events_of(first[2]) == [{"error": "it broke"}]
        plain = await client.answer(client.ask(b"POST", STREAM, b"{"))
        assert plain[0] == 400 and plain[1]["content-type"] == "application/json"

    run(test)


def test_a_client_that_opens_no_window_holds_its_model_up_and_others_go_on():
    async def test(client, port, held):
        counting = held.counting
        asked = client.ask(b"POST", STREAM, b'{"IN":1000}')
        got = 0
        while got < 65535:  # the window every stream has at first
            _, _, payload = await client.frame(asked, DATA)
            got += len(payload)
        assert (await client.answer(client.ask(b"GET", b"/v2/health/live")))[0] == 200
        count = counting.count
        assert count <= 3
        assert (await client.answer(client.ask(b"GET", b"/v2/health/live")))[0] == 200
        assert counting.count == count
        client.send(encode_window_update(asked, 2**30))
        got = 0
        while got < 1_000_000:
            _, _, payload = await client.frame(asked, DATA)
            got += len(payload)
        assert counting.count > count
        client.send(encode_rst_stream(asked, ErrorCode.CANCEL))
        await counting.left.wait()

    run(test)


def test_who_opens_no_window_for_long_is_reset():
    async def test(client, port, held):
        asked = client.ask(b"POST", STREAM, b'{"IN":1000}')
        while True:
            kind, _, payload = await client.frame(asked, DATA, RST_STREAM)
            if kind == RST_STREAM:
                break
        assert payload == struct.pack(">L", 8)
        await held.counting.left.wait()

    run(test, grpc_write_timeout_secs=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("length", [(), ((b"content-length", b"100"),)])
def test_a_body_that_stops_coming_is_408(length):
    async def test(client, port, held):
        target = b"/v2/models/m/infer"
        head = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", target), *length]
        client.send(encode_frame(HEADERS, END_HEADERS, 1, encode_fields(head)))
        client.send(encode_frame(DATA, 0, 1, b"{"))
        client.next_id = 3
        status, _, body = await client.answer(1)
        assert status == 408 and b"too slowly: 1 bytes" in body
        assert (await client.answer(client.ask(b"GET", b"/v2/health/live")))[0] == 200

    run(test, http_body_timeout_secs=0.1)


@pytest.mark.parametrize("how", ["reset at once", "reset", "closed"])
def test_a_client_that_leaves_ends_its_models_stream(how):
    async def test(client, port, held):
        asked = client.ask(b"POST", STREAM, b'{"IN":1000}')
        if how != "reset at once":
            await client.frame(asked, DATA)
        if how == "closed":
            client.writer.transport.abort()
        else:
            client.send(encode_rst_stream(asked, ErrorCode.CANCEL))
            assert (await client.answer(client.ask(b"GET", b"/v2/health/live")))[0] == 200
        if how != "reset at once" or held.counting.started.is_set():
            await held.counting.left.wait()

    run(test)


def test_errors_have_their_status():
    async def test(client, port, held):
        assert (await client.answer(client.ask(b"GET", b"/nowhere")))[0] == 404
        status, fields, _ = await client.answer(client.ask(b"PUT", b"/v2"))
        assert (status, fields["allow"]) == (405, "GET, HEAD")
        too_long = [(b"x", b"y" * 300)] * 50
        assert (await client.answer(client.ask(b"GET", b"/v2", fields=too_long)))[0] == 431
        infer = b"/v2/models/m/infer"
        for length in (b"2000", b"9" * 30):
            declared = [(b"content-length", length)]
            asked = client.ask(b"POST", infer, b"x", fields=declared)
            assert (await client.answer(asked))[0] == 413
        assert (await client.answer(client.ask(b"POST", infer, bytes(2000))))[0] == 413

    run(test, http_max_body_bytes=1000, http_max_header_bytes=8192)


@pytest.mark.parametrize("body", [None, b""], ids=["in the head", "in an empty frame"])
@pytest.mark.parametrize("fields", [[], [(b"content-length", b"0")]])
def test_a_request_that_ends_without_a_body_is_400(body, fields):
    async def test(client, port, held):
        held.release.set()
        asked = client.ask(b"POST", b"/v2/models/m/infer", body, fields=fields)
        status, _, answer = await client.answer(asked)
        assert status == 400 and b"the request has no body" in answer

    run(test)


def test_browsers_are_told_though_the_call_is_not_open_to_everybody():
    async def test(client, port, held):
        origin = [(b"origin", b"https://page")]
        asked = [*origin, (b"access-control-request-method", b"POST")]
        infer, body = b"/v2/models/m/infer", infer_body([1.0])
        status, fields, _ = await client.answer(client.ask(b"OPTIONS", infer, fields=asked))
        assert (status, fields["access-control-allow-methods"]) == (200, "POST")
        assert fields["access-control-allow-origin"] == "https://page"
        for sent in (body, None):
            status, fields, _ = await client.answer(client.ask(b"POST", infer, sent, fields=asked))
            assert (status, fields["access-control-allow-origin"]) == (403, "https://page")

    options = {"http_cors_origin": ("https://page",)}
    run(test, http_restricted_api=("inference:admin-key=k",), **options)


def test_restricted_calls_want_their_header_before_any_body():
    async def test(client, port, held):
        held.release.set()
        infer, body = b"/v2/models/m/infer", infer_body([1.0])
        key = [(b"admin-key", b"k")]
        assert (await client.answer(client.ask(b"POST", infer, body)))[0] == 403
        assert (await client.answer(client.ask(b"POST", infer, body, fields=key)))[0] == 200
        assert (await client.answer(client.ask(b"POST", infer, body, fields=key * 2)))[0] == 403
        assert (await client.answer(client.ask(b"GET", b"/v2")))[0] == 200
        declared = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", infer)]
        declared.append((b"content-length", b"1000000"))
        stream_id, client.next_id = client.next_id, client.next_id + 2
        client.send(encode_frame(HEADERS, END_HEADERS, stream_id, encode_fields(declared)))
        assert (await client.answer(stream_id))[0] == 403

    run(test, http_restricted_api=("inference:admin-key=k",))


def test_a_refusal_that_waits_for_the_clients_window_is_sent_once():
    async def test(client, port, held):
        client.send(encode_frame(SETTINGS, 0, 0, struct.pack(">HL", 4, 0)))
        head = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/v2/models/m/infer")]
        head.append((b"content-length", b"4"))
        client.send(encode_frame(HEADERS, END_HEADERS, 1, encode_fields(head)))
        client.send(encode_frame(DATA, END_STREAM, 1, b"1234"), encode_window_update(1, 1000))
        client.next_id = 3
        status, _, body = await client.answer(1)
        assert status == 403 and json.loads(body)
        client.send(encode_frame(SETTINGS, 0, 0, struct.pack(">HL", 4, 1000)))
        assert (await client.answer(client.ask(b"GET", b"/v2")))[0] == 200

    run(test, http_restricted_api=("inference:admin-key=k",))


def test_browsers_are_told_over_http_2_too():
    async def test(client, port, held):
        origin = [(b"origin", b"https://page")]
        asked = [*origin, (b"access-control-request-method", b"POST")]
        infer = b"/v2/models/m/infer"
        status, fields, body = await client.answer(client.ask(b"OPTIONS", infer, fields=asked))
        assert (status, body) == (200, b"")
        assert fields["access-control-allow-methods"] == "POST"
        _, fields, _ = await client.answer(client.ask(b"GET", b"/v2", fields=origin))
        assert fields["access-control-allow-origin"] == "https://page"

    run(test, http_cors_origin=("https://page",))


def test_connect_is_not_supported():
    async def test(client, port, held):
        fields = encode_fields([(b":method", b"CONNECT"), (b":authority", b"h:1")])
        client.send(encode_frame(HEADERS, END_HEADERS | END_STREAM, 1, fields))
        assert (await client.answer(1))[0] == 501

    run(test)


@pytest.mark.parametrize("method", [b"FETCH", b"get"])
def test_an_unknown_method_is_501_as_over_http_1(method):
    async def test(client, port, held):
        for path in (b"/v2", b"/v2/nothing"):
            status, _, body = await client.answer(client.ask(method, path))
            assert status == 501
            assert json.loads(body) == {"error": f"there is no method {method.decode()} here"}

    run(test)


def test_a_large_body_is_refused_from_its_head_when_the_server_has_enough_to_do():
    async def test(client, port, held):
        waiting = client.ask(b"POST", b"/v2/models/m/infer", infer_body([1.0]))
        await held.started.wait()
        fields = [(b"content-length", b"100000")]
        asked = client.ask(b"POST", b"/v2/models/m/infer", b"{", fields=fields)  # and no more
        status, answered, _ = await client.answer(asked)
        assert status == 503 and answered["retry-after"] == "1"
        assert (await client.answer(client.ask(b"GET", b"/v2/health/live")))[0] == 200
        held.release.set()
        assert (await client.answer(waiting))[0] == 200

    run(test, max_inflight_requests=1)


def test_too_much_in_flight_is_unavailable():
    async def test(client, port, held):
        waiting = client.ask(b"POST", b"/v2/models/m/infer", infer_body([0.5] * 100))
        asked = client.ask(b"POST", b"/v2/models/m/infer", bytes(700))
        status, fields, _ = await client.answer(asked)
        assert status == 503 and fields["retry-after"] == "1"
        held.release.set()
        assert (await client.answer(waiting))[0] == 200

    run(test, max_inflight_bytes=1000)


@pytest.mark.parametrize("fields", [(), [(b"content-length", b"2000")]])
def test_more_than_may_ever_be_in_flight_is_too_large(fields):
    async def test(client, port, held):
        asked = client.ask(b"POST", b"/v2/models/m/infer", bytes(2000), pieces=2, fields=fields)
        status, answered, _ = await client.answer(asked)
        assert status == 413 and "retry-after" not in answered

    run(test, max_inflight_bytes=1000)


def test_a_refusal_is_in_the_words_of_the_api_that_is_asked():
    async def test(client, port, held):
        for path in (b"/api/infer/m", b"/api/none"):
            fields = [(b"content-length", b"2000")]
            asked = client.ask(b"POST", path, bytes(2000), fields=fields)
            status, answered, body = await client.answer(asked)
            assert (status, body) == (413, b"")
            assert answered["nv-status"].startswith("code: INVALID_ARG msg: ")
        too_long = [(b"x-%d" % index, b"y" * 300) for index in range(50)]
        status, answered, body = await client.answer(
            client.ask(b"POST", b"/api/infer/m", b"", fields=too_long)
        )
        assert (status, body) == (431, b"")
        assert answered["nv-status"].startswith("code: INVALID_ARG msg: ")

    run(test, max_inflight_bytes=1000, http_max_header_bytes=8192)


def test_a_head_may_be_longer_than_the_metadata_of_a_call():
    """An inference of the old API has its description in a header."""

    async def test(client, port, held):
        header = b'batch_size: 1 input { name: "IN" dims: 1 } output { name: "OUT" } id: 7'
        padded = header.replace(b" id", b" " * 14_000 + b" id")
        held.release.set()
        more = [(b"nv-inferrequest", padded), *[(b"x", b"y")] * 100]  # each field counts 32 more
        asked = client.ask(b"POST", b"/api/infer/m", bytes(4), fields=more)
        status, answered, _ = await client.answer(asked)
        assert status == 200 and "id: 7" in answered["nv-inferresponse"]
        infer = b"/inference.GRPCInferenceService/ModelInfer"
        kind = [(b"content-type", b"application/grpc"), (b"te", b"trailers")]
        status, answered, _ = await client.answer(
            client.ask(b"POST", infer, bytes(5), fields=kind + more)
        )
        resource_exhausted = "8"
        assert (status, answered["grpc-status"]) == (200, resource_exhausted)

    run(test)


def test_grpc_is_answered_beside_rest():
    async def test(client, port, held):
        held.release.set()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            assert (await stub.ServerLive(pb.ServerLiveRequest())).live
            tensor = {"name": "IN", "datatype": "FP32", "shape": [1]}
            request = pb.ModelInferRequest(
                model_name="m", inputs=[tensor], raw_input_contents=[b"1234"]
            )
            assert (await stub.ModelInfer(request)).raw_output_contents[0] == b"1234"
        call = [(b"content-type", b"application/grpc")]
        assert (await client.answer(client.ask(b"GET", b"/x", fields=call)))[0] == 405

    run(test)


@pytest.mark.parametrize(
    "pieces", [[b"GET /v2 HTTP/1.1\r\n\r\n"], [b"P", b"OST /v2 HTTP/1.1\r\n\r\n"]]
)
def test_http_1_is_answered(pieces):
    async def test(client, port, held):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await client.answer(client.ask(b"GET", b"/v2"))  # the server has had its time
        assert (await reader.readline()).startswith(b"HTTP/1.1 ")
        writer.close()

    run(test)


def test_a_preface_may_come_in_pieces():
    async def test(client, port, held):
        client = Client(*await asyncio.open_connection("127.0.0.1", port))
        for at in range(0, len(PREFACE), 5):
            client.send(PREFACE[at : at + 5])
            await client.writer.drain()
            await asyncio.sleep(0)
        client.send(encode_frame(SETTINGS, 0, 0))
        assert (await client.answer(client.ask(b"GET", b"/v2")))[0] == 200
        client.writer.close()

    run(test)
