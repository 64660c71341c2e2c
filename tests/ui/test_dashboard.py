"""The dashboard over HTTP/2, on a port that gRPC and HTTP share."""

import asyncio
import struct
from contextlib import asynccontextmanager

import pytest
from http2_client import Client

from inferd.api.v2.calls import Apis
from inferd.config.server import ServerConfig
from inferd.http.h2.frames import (
    DATA,
    HEADERS,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    ErrorCode,
    encode_frame,
    encode_rst_stream,
)
from inferd.server.options import grpc_options, http_options
from inferd.transport.http2_server import Http2Server
from inferd.transport.http_server import HttpServer
from inferd.transport.one_port import share_port
from inferd.ui.dashboard import Dashboard
from inferd.ui.hosts import Hosts
from inferd.ui.tokens import own_tokens

HOST = (b":authority", b"localhost:8000")


@pytest.fixture
def sharing(models, hub, page):
    """`async with sharing() as client` runs a server with a dashboard on a shared port."""

    @asynccontextmanager
    async def share():
        engine, _ = models()
        dashboard = Dashboard(engine, hub, Hosts((), "box"), own_tokens(), folder=page)
        apis = Apis(mounts=(dashboard,))
        config = ServerConfig(http_port=1, grpc_port=1)
        http = HttpServer(engine, http_options(config, apis=apis))
        http2 = Http2Server(engine, grpc_options(config, apis=apis), http=http)
        share_port(http, http2)
        port = await http.start("127.0.0.1", 0)
        client = Client(*await asyncio.open_connection("127.0.0.1", port))
        client.send(PREFACE, encode_frame(SETTINGS, 0, 0))
        try:
            yield client
        finally:
            client.writer.close()
            dashboard.close()
            http.close()
            await http2.stop(0)

    return share


async def test_the_page_is_there_over_http2_too(sharing, page):
    async with sharing() as client:
        status, fields, body = await client.answer(client.ask(b"GET", b"/ui/", fields=[HOST]))
        assert (status, body) == (200, (page / "index.html").read_bytes())
        assert fields["x-frame-options"] == "DENY"
        again = client.ask(
            b"GET", b"/ui/", fields=[HOST, (b"if-none-match", fields["etag"].encode())]
        )
        status, fields, body = await client.answer(again)
        assert (status, body) == (304, b"") and fields["etag"]


@pytest.mark.parametrize(
    "fields",
    [
        [(b":authority", b"evil.example")],
        [(b":authority", b"evil.example"), (b"host", b"localhost")],
        [(b"host", b"localhost"), (b"host", b"localhost")],
        [(b"host", b"evil.example")],
        [],
    ],
)
async def test_the_host_of_a_request_is_its_authority(sharing, fields):
    async with sharing() as client:
        for target in (b"/ui/", b"/ui/about", b"/ui/events?topics=overview&once=1"):
            status, _, _ = await client.answer(client.ask(b"GET", target, fields=fields))
            assert status == 403
        for own in ([HOST, (b"host", b"evil.example")], [(b"host", b"localhost")]):
            status, _, _ = await client.answer(client.ask(b"GET", b"/ui/about", fields=own))
            assert status == 200


async def test_the_authority_of_each_request_of_a_connection_counts(sharing):
    async with sharing() as client:
        for name, wanted in ((b"localhost", 200), (b"evil.example", 403), (b"127.0.0.1", 200)):
            fields = [(b":authority", name), (b"x-same", b"same")]
            status, _, _ = await client.answer(client.ask(b"GET", b"/ui/about", fields=fields))
            assert status == wanted


async def test_events_come_as_data(sharing, seconds, hub):
    async with sharing() as client:
        stream = client.ask(b"GET", b"/ui/events?topics=overview", fields=[HOST])
        await client.frame(stream, HEADERS)
        for count in (1, 2, 3):
            _, _, payload = await client.frame(stream, DATA)
            assert payload == b'event: overview\ndata: {"overview":%d}\n\n' % count
            seconds.pass_one()
        client.send(encode_rst_stream(stream, ErrorCode.CANCEL))
        while hub._streams:  # noqa: ASYNC110  nothing else tells
            await asyncio.sleep(0)


@pytest.mark.parametrize("fields", [[], [(b"content-length", b"70000")]])
async def test_a_large_body_is_refused_over_http2_before_it_comes(sharing, fields):
    async with sharing() as client:
        asked = client.ask(b"POST", b"/ui/unlock", b"x" * 70000, pieces=7, fields=[HOST, *fields])
        client.send(encode_frame(SETTINGS, 0, 0, struct.pack(">HL", 4, 2**30)))
        kind, _, _ = await client.frame(asked, HEADERS, RST_STREAM)
        assert kind == HEADERS
        status, _, _ = await client.answer(client.ask(b"GET", b"/ui/about", fields=[HOST]))
        assert status == 200


async def test_there_is_nothing_of_it_over_grpc(models, hub):
    engine, _ = models()
    dashboard = Dashboard(engine, hub, Hosts(), None)
    assert dashboard.grpc(None, None) == {} and dashboard.groups == {}
