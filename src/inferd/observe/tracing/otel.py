"""Traces for OpenTelemetry: makes spans with events of them, and sends them to a collector.

This module imports OpenTelemetry's packages, which are an optional extra: import it late.

A trace becomes three nested spans, as in Triton: InferRequest, one named after the model, and
compute. Timestamps become their events. The span of an ensemble contains those of its steps: one
named after the step's model, and compute in it.
"""

from collections.abc import Sequence

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    Tracer,
    set_span_in_context,
)

import inferd
from inferd.config.options.trace import CollectorSettings
from inferd.errors import Code
from inferd.observe.tracing import trace as activities
from inferd.observe.tracing.trace import Parent, Trace

# Which stamps are events of which span, as in Triton's spans.
_OF_REQUEST = (activities.REQUEST_START, activities.QUEUE_START, activities.REQUEST_END)
_OF_COMPUTE = (
    activities.COMPUTE_START,
    activities.COMPUTE_INPUT_END,
    activities.COMPUTE_OUTPUT_START,
    activities.COMPUTE_END,
)

_OUR_FAULT = (Code.INTERNAL.value, Code.UNAVAILABLE.value, Code.UNKNOWN.value)
"""Failures that set a span's status to error; an invalid request is no error of the server."""

Stamps = Sequence[tuple[str, int]]


def open_provider(collector: CollectorSettings, service: str) -> TracerProvider:
    """Return the provider, which sends spans in batches over OTLP/HTTP.

    `collector` takes precedence over the OTEL_... variables, and these over the default name
    `service`. Raises ValueError for settings that do not fit together.
    """
    usual = {"service.name": service, "service.version": inferd.__version__}
    # OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES.
    resource = Resource.create(usual).merge(OTELResourceDetector().detect())
    resource = resource.merge(Resource(dict(collector.resource)))
    processor = BatchSpanProcessor(
        OTLPSpanExporter(endpoint=collector.url),
        max_queue_size=collector.bsp_max_queue_size,
        schedule_delay_millis=collector.bsp_schedule_delay,
        max_export_batch_size=collector.bsp_max_export_batch_size,
    )
    # The server ends it, within its time limit; an exit hook could wait for a collector that hangs.
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(processor)
    return provider


def record(tracer: Tracer, trace: Trace, epoch_ns: int) -> None:
    """Make the spans of `trace`; `epoch_ns` is when its clock was 0, in ns since 1970."""
    stamps = _stamps(trace, epoch_ns)
    if not stamps:
        return
    others = [stamp for stamp in stamps if stamp[0] not in _OF_REQUEST + _OF_COMPUTE]
    ends = stamps[0][1], stamps[-1][1]
    context = _context_of(trace.parent)
    # So that a trace viewer shows an edge from the client's span to the server.
    context = _Maker(tracer, trace).make("InferRequest", context, others, ends, SpanKind.SERVER)
    _record_model(tracer, trace, epoch_ns, context)


def _record_model(tracer: Tracer, trace: Trace, epoch_ns: int, context: Context) -> None:
    """Make the span of the model, and in it those of compute and of its children."""
    stamps = _stamps(trace, epoch_ns)
    maker = _Maker(tracer, trace)
    if requesting := [stamp for stamp in stamps if stamp[0] in _OF_REQUEST]:
        ends = requesting[0][1], requesting[-1][1]
        context = maker.make(trace.model, context, requesting, ends)
    if computing := [stamp for stamp in stamps if stamp[0] in _OF_COMPUTE]:
        maker.make("compute", context, computing, (computing[0][1], computing[-1][1]))
    for child in trace.children:
        _record_model(tracer, child, epoch_ns, context)


def _stamps(trace: Trace, epoch_ns: int) -> Stamps:
    # Stamps are of a monotonic clock, spans want dates.
    return [(name, ns + epoch_ns) for name, ns in sorted(trace.stamps, key=lambda one: one[1])]


class _Maker:
    """Makes the spans of one trace, which share their attributes."""

    def __init__(self, tracer: Tracer, trace: Trace) -> None:
        self._tracer = tracer
        self._error = trace.error
        self._attributes: dict[str, str | int] = {"model_name": _clean(trace.model)}
        if trace.version.isdigit():
            self._attributes["model_version"] = int(trace.version)
        if trace.request_id:
            self._attributes["request_id"] = _clean(trace.request_id)
        if trace.error:
            self._attributes["error.type"] = trace.error

    def make(
        self,
        name: str,
        context: Context,
        events: Stamps,
        ends_ns: tuple[int, int],
        kind: SpanKind = SpanKind.INTERNAL,
    ) -> Context:
        """Make a span in `context`, and return the context for its child spans."""
        start_ns, end_ns = ends_ns
        span = self._tracer.start_span(
            _clean(name), context, kind, self._attributes, start_time=start_ns
        )
        for activity, ns in events:
            span.add_event(activity, timestamp=ns)
        if self._error in _OUR_FAULT:
            span.set_status(Status(StatusCode.ERROR, self._error))
        span.end(end_ns)
        return set_span_in_context(span, context)


def _context_of(parent: Parent | None) -> Context:
    if parent is None:
        # Empty, or a span that is current in this thread would become the parent.
        return Context()
    flags = TraceFlags(TraceFlags.SAMPLED if parent.is_sampled else TraceFlags.DEFAULT)
    context = SpanContext(parent.trace_id, parent.span_id, is_remote=True, trace_flags=flags)
    return set_span_in_context(NonRecordingSpan(context), Context())


def _clean(text: str) -> str:
    """Return `text` with lone surrogates escaped: one of them would cost a whole batch."""
    return text.encode(errors="backslashreplace").decode()
