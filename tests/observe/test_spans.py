"""Traces sent to a real OTLP/HTTP receiver, to one that never answers, and to none."""

import logging
import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

import inferd.observe
from inferd.config.trace import CollectorSettings, TraceSettings
from inferd.errors import InvalidConfig
from inferd.observe.spans import SpanSender
from inferd.observe.trace import Trace

PATIENCE_S = 30


class Collector(ThreadingHTTPServer):
    """A receiver of OTLP over HTTP that keeps what it gets."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Receiver)
        self.requests = []

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}/v1/traces"

    def span_names(self):
        return [
            span.name
            for _, _, request in self.requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]


class _Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        request = ExportTraceServiceRequest.FromString(body)
        self.server.requests.append((self.path, self.headers, request))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def collector():
    server = Collector()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def silent():
    """The URL of a collector that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}/v1/traces"


def trace(number=1):
    trace = Trace(number, "m", TraceSettings(levels=("TIMESTAMPS",), mode="opentelemetry"))
    for moment in ("HTTP_RECV_START", "REQUEST_START", "REQUEST_END", "HTTP_SEND_END"):
        trace.stamp(moment)
    return trace


def opened(url=None, **settings):
    sender = SpanSender(CollectorSettings(url=url, **settings), "me")
    sender.open()
    return sender


def test_what_was_taken_has_been_sent_when_it_is_closed(collector):
    sender = opened(collector.url)
    for number in range(3):
        sender.take(trace(number))
    sender.close(PATIENCE_S)
    [(path, headers, request)] = collector.requests
    assert (path, headers["Content-Type"]) == ("/v1/traces", "application/x-protobuf")
    assert collector.span_names() == ["InferRequest", "m"] * 3
    [resource] = request.resource_spans
    said = {one.key: one.value.string_value for one in resource.resource.attributes}
    assert said["service.name"] == "me"
    now_ns = time.time_ns()
    started = resource.scope_spans[0].spans[0].start_time_unix_nano
    assert now_ns - 60_000_000_000 < started <= now_ns


def test_variables_say_where_to_and_how(collector, monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url.removesuffix("/v1/traces"))
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=secret")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
    sender = opened()
    sender.take(trace())
    sender.close(PATIENCE_S)
    [(path, headers, _)] = collector.requests
    assert (path, headers["x-key"]) == ("/v1/traces", "secret")


def test_spans_go_in_batches_of_the_size_that_was_said(collector):
    sender = opened(collector.url, bsp_max_export_batch_size=2, bsp_max_queue_size=100)
    for number in range(3):
        sender.take(trace(number))
    sender.close(PATIENCE_S)
    assert sorted(collector.span_names()) == ["InferRequest"] * 3 + ["m"] * 3
    assert len(collector.requests) >= 3


@pytest.mark.slow
def test_a_collector_that_never_answers_holds_up_nobody(silent, monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "4")
    sender = opened(silent, bsp_max_export_batch_size=2, bsp_max_queue_size=4)
    started_s = time.monotonic()
    for number in range(100):
        sender.take(trace(number))
    sender.close(0.1)
    assert time.monotonic() - started_s < 3
    for thread in threading.enumerate():  # what it left must not run on into other tests
        if thread.name.startswith(("Otel", "inferd-spans")):
            thread.join(PATIENCE_S)
            assert not thread.is_alive()


def test_a_collector_that_is_not_there_is_said_in_the_log(caplog, monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.1")
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/v1/traces"
    sender = opened(url)
    sender.take(trace())
    with caplog.at_level(logging.WARNING, "opentelemetry"):
        sender.close(PATIENCE_S)
    assert "spans batch" in caplog.text


def test_without_the_packages_the_extra_is_named(monkeypatch):
    monkeypatch.delitem(sys.modules, "inferd.observe.otel", raising=False)
    monkeypatch.delattr(inferd.observe, "otel", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)  # stands for a missing one
    with pytest.raises(InvalidConfig, match=r"pip install 'inferd\[otel\]'"):
        opened()


def test_sizes_that_do_not_fit_are_refused(monkeypatch):
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "50")
    with pytest.raises(InvalidConfig, match=r"--trace-config opentelemetry.*max_export_batch_size"):
        opened(bsp_max_queue_size=10)


def test_one_that_was_never_opened_closes():
    SpanSender(CollectorSettings(), "me").close(PATIENCE_S)
