import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import inferd
from inferd.config.options.trace import CollectorSettings, TraceSettings
from inferd.observe.tracing.otel import open_provider, record
from inferd.observe.tracing.trace import Parent, Trace

EPOCH_NS = 1_700_000_000_000_000_000
ACTIVITIES = [
    "HTTP_RECV_START",
    "HTTP_RECV_END",
    "REQUEST_START",
    "QUEUE_START",
    "COMPUTE_START",
    "COMPUTE_INPUT_END",
    "COMPUTE_OUTPUT_START",
    "COMPUTE_END",
    "INFER_RESPONSE_COMPLETE",
    "REQUEST_END",
    "HTTP_SEND_START",
    "HTTP_SEND_END",
]


def trace_of(*names, parent=None, **fields):
    trace = Trace(1, "digits", TraceSettings(levels=("TIMESTAMPS",)), parent)
    for name in names or ACTIVITIES:
        trace.stamp(name, 10 * (1 + ACTIVITIES.index(name)))
    for name, value in fields.items():
        setattr(trace, name, value)
    return trace


def recorded(*traces):
    """Return the spans of `traces` by name."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    for trace in traces:
        record(provider.get_tracer("inferd"), trace, EPOCH_NS)
    return {span.name: span for span in exporter.get_finished_spans()}


def test_a_trace_is_three_spans_one_in_the_other_with_its_stamps_as_events():
    spans = recorded(trace_of())
    assert list(spans) == ["InferRequest", "digits", "compute"]
    root, model, compute = spans.values()
    assert root.parent is None
    assert model.parent == root.context
    assert compute.parent == model.context
    assert root.kind is SpanKind.SERVER
    found = [[event.name for event in span.events] for span in spans.values()]
    assert found == [
        [*ACTIVITIES[:2], "INFER_RESPONSE_COMPLETE", *ACTIVITIES[10:]],
        [*ACTIVITIES[2:4], "REQUEST_END"],
        ACTIVITIES[4:8],
    ]


def test_a_childs_spans_are_within_its_parents_model():
    trace = trace_of(error="internal")
    child = trace.child("step")
    inner = child.child("inner")
    for one in (child, inner):
        for name in ACTIVITIES[2:10]:
            one.stamp(name, 10 * (1 + ACTIVITIES.index(name)))
    spans = recorded(trace)
    assert sorted(spans) == ["InferRequest", "compute", "digits", "inner", "step"]
    assert spans["step"].parent == spans["digits"].context
    assert spans["inner"].parent == spans["step"].context
    assert spans["compute"].attributes["model_name"] == "inner"  # the last of three
    assert spans["compute"].parent == spans["inner"].context
    assert "error.type" not in spans["step"].attributes


def test_times_are_those_of_the_stamps_since_1970():
    root, model, compute = recorded(trace_of()).values()
    times = [
        (span.start_time - EPOCH_NS, span.end_time - EPOCH_NS) for span in (root, model, compute)
    ]
    assert times == [(10, 120), (30, 100), (50, 80)]
    assert [event.timestamp - EPOCH_NS for event in compute.events] == [50, 60, 70, 80]


def test_every_span_says_which_model_version_and_request():
    spans = recorded(trace_of(version="3", request_id="q"))
    expected = {"model_name": "digits", "model_version": 3, "request_id": "q"}
    assert [dict(span.attributes) for span in spans.values()] == [expected] * 3


@pytest.mark.parametrize(
    ("error", "status"),
    [
        ("", StatusCode.UNSET),
        ("internal", StatusCode.ERROR),
        ("unavailable", StatusCode.ERROR),
        ("invalid argument", StatusCode.UNSET),
        ("cancelled", StatusCode.UNSET),
    ],
)
def test_a_failure_is_an_error_of_the_server_when_it_is_its_fault(error, status):
    [root, *_] = recorded(trace_of(error=error)).values()
    assert root.status.status_code is status
    assert root.attributes.get("error.type") == (error or None)


def test_what_a_request_did_not_get_to_has_no_span():
    assert list(recorded(trace_of(*ACTIVITIES[:2], "REQUEST_START", "REQUEST_END"))) == [
        "InferRequest",
        "digits",
    ]
    assert list(recorded(trace_of(*ACTIVITIES[:2]))) == ["InferRequest"]
    empty = Trace(1, "m", TraceSettings())
    assert recorded(empty) == {}


def test_the_clients_span_is_the_parent():
    root, model, _ = recorded(trace_of(parent=Parent(0xABC, 0xDEF, True))).values()
    assert (root.parent.trace_id, root.parent.span_id, root.parent.is_remote) == (
        0xABC,
        0xDEF,
        True,
    )
    assert root.context.trace_id == model.context.trace_id == 0xABC


def test_what_the_client_does_not_record_is_not_recorded_here():
    assert recorded(trace_of(parent=Parent(0xABC, 0xDEF, False))) == {}


def test_text_that_is_no_unicode_does_not_spoil_a_batch():
    [root, *_] = recorded(trace_of(request_id="a\udcff")).values()
    assert root.attributes["request_id"] == "a\\udcff"


# --- the provider ---


@pytest.fixture
def attributes(monkeypatch):
    """attributes(settings, NAME=variable) is what the resource of such a server says."""

    def build(*pairs, **environ):
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        provider = open_provider(CollectorSettings(url="http://127.0.0.1:1/", resource=pairs), "me")
        provider.shutdown()
        return provider.resource.attributes

    return build


def test_a_server_says_its_name_and_version(attributes):
    found = attributes()
    assert (found["service.name"], found["service.version"]) == ("me", inferd.__version__)
    assert found["telemetry.sdk.language"] == "python"


def test_variables_go_before_the_name_and_the_options_before_these(attributes):
    found = attributes(("b", "option"), OTEL_RESOURCE_ATTRIBUTES="a=1,b=variable")
    assert (found["a"], found["b"], found["service.name"]) == ("1", "option", "me")
    assert attributes(OTEL_SERVICE_NAME="mine")["service.name"] == "mine"
    assert attributes(("service.name", "option"))["service.name"] == "option"


def test_queue_sizes_that_do_not_fit_are_refused(monkeypatch):
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "50")
    with pytest.raises(ValueError, match="max_export_batch_size"):
        open_provider(CollectorSettings(bsp_max_queue_size=10), "me")
