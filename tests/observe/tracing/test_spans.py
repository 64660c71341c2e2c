"""Traces sent to a real OTLP/HTTP receiver, to one that never answers, and to none."""

import logging
import socket
import sys
import threading
import time

import pytest

import inferd.observe.tracing
from inferd.config.options.trace import CollectorSettings, TraceSettings
from inferd.errors import InvalidConfig
from inferd.observe.tracing.spans import SpanSender
from inferd.observe.tracing.trace import Trace

PATIENCE_S = 30


@pytest.fixture
def silent():
    """The URL of a collector that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}/v1/traces"


def trace(number=1):
    trace = Trace(number, "m", TraceSettings(levels=("TIMESTAMPS",), mode="opentelemetry"))
    for activity in ("HTTP_RECV_START", "REQUEST_START", "REQUEST_END", "HTTP_SEND_END"):
        trace.stamp(activity)
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
    assert [span.name for span in collector.spans()] == ["InferRequest", "m"] * 3
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
    assert sorted(span.name for span in collector.spans()) == ["InferRequest"] * 3 + ["m"] * 3
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
    monkeypatch.delitem(sys.modules, "inferd.observe.tracing.otel", raising=False)
    monkeypatch.delattr(inferd.observe.tracing, "otel", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)  # stands for a missing one
    with pytest.raises(InvalidConfig, match=r"pip install 'inferd\[otel\]'"):
        opened()


def test_sizes_that_do_not_fit_are_refused(monkeypatch):
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "50")
    with pytest.raises(InvalidConfig, match=r"--trace-config opentelemetry.*max_export_batch_size"):
        opened(bsp_max_queue_size=10)


def test_one_that_was_never_opened_closes():
    SpanSender(CollectorSettings(), "me").close(PATIENCE_S)
