"""SpanSender: sends traces to an OpenTelemetry collector."""

import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from inferd.config.options.trace import CollectorSettings
from inferd.errors import InvalidConfig
from inferd.observe.tracing.backlog import Backlog
from inferd.observe.tracing.trace import Trace

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider


class SpanSender(Backlog):
    """Turns finished traces into spans in one thread; OpenTelemetry sends them in another.

    Both queues are bounded: that of traces by the Backlog, that of spans by OpenTelemetry. So a
    slow or missing collector costs traces, and nothing else. `service` is the server's name.
    """

    def __init__(self, collector: CollectorSettings, service: str) -> None:
        super().__init__(self._write)
        self._collector = collector
        self._service = service
        self._provider: TracerProvider | None = None

    def open(self) -> None:
        """See Backlog.open."""
        try:
            from inferd.observe.tracing import otel
        except ImportError as error:
            msg = "--trace-config mode=opentelemetry needs a package: pip install 'inferd[otel]'"
            raise InvalidConfig(msg) from error
        try:
            self._provider = otel.open_provider(self._collector, self._service)
        except ValueError as error:
            raise InvalidConfig(f"--trace-config opentelemetry,...: {error}") from error
        # Kept, since the module must not be imported by servers without OpenTelemetry.
        self._record = otel.record
        self._tracer = self._provider.get_tracer("inferd")

    def close(self, timeout_s: float) -> None:
        """See Backlog.close."""
        if self._provider is None:
            return
        started_s = time.monotonic()
        super().close(timeout_s)
        # OpenTelemetry's shutdown may block for longer than `timeout_s`.
        ending = threading.Thread(target=self._provider.shutdown, name="inferd-spans", daemon=True)
        ending.start()
        ending.join(max(0.0, timeout_s - (time.monotonic() - started_s)))

    def _write(self, traces: Sequence[Trace]) -> None:
        # Read anew each time: the clock of dates is corrected while a server runs.
        epoch_ns = time.time_ns() - time.perf_counter_ns()
        for trace in traces:
            self._record(self._tracer, trace, epoch_ns)
