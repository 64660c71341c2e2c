"""The transport's part of a trace: the header it comes from, and when its answer was sent."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from inferd.observe.tracing import trace as times
from inferd.observe.tracing.trace import Trace
from inferd.observe.tracing.tracer import Tracer

TRACEPARENT = "traceparent"
"""The header or metadata key with the context of a client's trace (W3C Trace Context)."""

OVER_HTTP = (times.HTTP_SEND_START, times.HTTP_SEND_END)
OVER_GRPC = (times.GRPC_SEND_START, times.GRPC_SEND_END)
"""When sending an answer begins and ends."""


@contextmanager
def until_sent(tracer: Tracer, trace: Trace, sending: tuple[str, str]) -> Iterator[None]:
    """Note in `trace` how the body of the `with` ends, and finish it when the answer is sent.

    `sending` is OVER_HTTP or OVER_GRPC. A cancellation is noted as well.
    """
    start, end = sending
    try:
        yield
    except BaseException as error:
        trace.fail(error)
        raise
    finally:
        trace.stamp(start)
        _finish_when_sent(tracer, trace, end)


def _finish_when_sent(tracer: Tracer, trace: Trace, name: str) -> None:
    """Stamp the timestamp `name` and finish `trace`, once the answer has been handed to the socket.

    A transport writes an answer at the end of the loop iteration in which it was made, or in one it
    schedules then: so the second iteration from now comes after the write.
    """
    loop = asyncio.get_running_loop()
    loop.call_soon(loop.call_soon, _finish, tracer, trace, name)


def _finish(tracer: Tracer, trace: Trace, name: str) -> None:
    trace.stamp(name)
    tracer.finish(trace)
