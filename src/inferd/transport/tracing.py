"""What transports note of a traced request: where it came from, and when its answer was sent."""

import asyncio
from collections.abc import Mapping

from inferd.observe.parent import read_parent
from inferd.observe.trace import Trace
from inferd.observe.tracer import Tracer
from inferd.transport.call import Call

TRACEPARENT = "traceparent"
"""The header, or key of metadata, with which clients say that they trace (W3C Trace Context)."""


def begin_http(tracer: Tracer, model: str, headers: Mapping[bytes, bytes]) -> Trace | None:
    """Return the trace of a request that is to be traced, None for the others."""
    if not tracer.follows_clients:
        return tracer.begin(model)
    traceparent = headers.get(TRACEPARENT.encode(), b"").decode("latin-1")
    return tracer.begin(model, read_parent(traceparent))


def begin_grpc(tracer: Tracer, model: str, call: Call) -> Trace | None:
    """Return the trace of a request that is to be traced, None for the others."""
    if not tracer.follows_clients:
        return tracer.begin(model)
    found = (str(value) for key, value in call.metadata if key == TRACEPARENT)
    return tracer.begin(model, read_parent(next(found, "")))


def finish_when_sent(tracer: Tracer, trace: Trace, moment: str) -> None:
    """Note `moment` and give `trace` away, once the answer has been handed to the socket.

    A transport writes an answer at the end of the turn in which it was made, or in the turn it asks
    for then: so the second turn from now comes after the writing.
    """
    loop = asyncio.get_running_loop()
    loop.call_soon(loop.call_soon, _finish, tracer, trace, moment)


def _finish(tracer: Tracer, trace: Trace, moment: str) -> None:
    trace.stamp(moment)
    tracer.finish(trace)
