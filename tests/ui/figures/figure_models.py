"""Models whose requests happen only in their counts, for tests of what is seen of them."""

from fields import with_fields

from inferd.config.model import ModelConfig
from inferd.core.request import InferRequest
from inferd.engine.serving.served import Served
from inferd.errors import BackendFailed, Unavailable
from inferd.observe.stats import Counts

NOW = 1_800_000_000
MS = 1_000_000


class Clock:
    """Seconds since 1970, which pass when somebody says so."""

    def __init__(self, now=NOW):
        self.now = now

    def __call__(self):
        return self.now


class Idle:
    """A scheduler with nothing to do, but so many requests that wait."""

    pending_count = 0


def served(name="m", version=1, **config):
    """Return a version that serves, with counts of its own."""
    return Served(ModelConfig(name, **config), version, "identity", Idle(), Counts(lambda: 10**10))


def answered(one, count=1, ms=1, **more):
    """Have requests to a version be answered, each after so long."""
    for _ in range(count):
        one.counts.add_success(
            with_fields(
                InferRequest(one.name),
                queued_ns=10**9,
                started_ns=10**9 + MS // 4,
                computing_ns=10**9 + MS // 2,
                computed_ns=10**9 + ms * MS - MS // 8,
                ended_ns=10**9 + ms * MS,
                **more,
            )
        )


def failed(one, text="it broke", **more):
    """Have a request to a version fail in the model."""
    request = with_fields(InferRequest(one.name), started_ns=10**9, ended_ns=10**9 + MS, **more)
    one.counts.add_failure(request, BackendFailed(text))


def refused(one):
    """Have a request be turned away."""
    one.counts.add_failure(InferRequest(one.name), Unavailable("full"))
