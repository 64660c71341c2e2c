"""What may happen to a model version, as its counts see it; the same again counts the same."""

from fields import with_fields

from inferd.core.request import InferRequest
from inferd.errors import BackendFailed, Cancelled, Unavailable
from inferd.observe.stats import AnswerCount, Histogram
from inferd.observe.summary import SummaryCounts

MS = 1_000_000


class Clock:
    """Nanoseconds that pass when somebody says so."""

    def __init__(self):
        self.now_ns = 0

    def __call__(self):
        return self.now_ns


def new_counts():
    """Return counts with everything that there may be in them, on a clock that begins in 1970."""
    counts = SummaryCounts()
    counts.clock = Clock()
    counts.ran_at(0)
    counts.first_responses = Histogram((2.0, 5.0))
    return counts


def request(at_ns, size, *, queued=True):
    """Return a request that was executed for some milliseconds, more for a larger batch."""
    return with_fields(
        InferRequest("m", batch_size=size),
        queued_ns=at_ns if queued else 0,
        started_ns=at_ns + 2 * MS,
        computing_ns=at_ns + 3 * MS,
        computed_ns=at_ns + (3 + size) * MS,
        ended_ns=at_ns + (4 + size) * MS,
    )


def alone(counts, at_ns, size):
    counts.add_success(request(at_ns, size))


def at_once(counts, at_ns, size):
    answered = request(at_ns, size, queued=False)
    answered.answered_ns = answered.ended_ns + 7 * MS
    counts.add_success(answered)


def joined(counts, at_ns, size):
    served = [request(at_ns, size), request(at_ns + MS, 1)]
    ran = request(at_ns, size)
    ran.ran_again = size == 3
    counts.add_shared_execution(ran, served)
    for one in served:
        counts.add_success(one)


def broken(counts, at_ns, size):
    counts.clock.now_ns = at_ns + 9 * MS
    counts.add_failure(request(at_ns, size), BackendFailed("it broke"))


def late(counts, at_ns, size):
    counts.clock.now_ns = at_ns + 9 * MS
    waiting = with_fields(InferRequest("m", batch_size=size), queued_ns=at_ns)
    counts.add_failure(waiting, Unavailable("too late") if size < 3 else Cancelled("gone"))


def refused(counts, at_ns, size):
    counts.add_failure(InferRequest("m", batch_size=size), Unavailable("full"))


def hit(counts, at_ns, size):
    found = with_fields(
        InferRequest("m", batch_size=size), queued_ns=at_ns, ended_ns=at_ns + size * MS
    )
    found.shared = True
    counts.add_success(found)


def missed(counts, at_ns, size):
    counts.add_cache_miss(size * MS)


def streamed(counts, at_ns, size):
    running = request(at_ns, size)
    answers = AnswerCount(counts, running)
    for number in range(size):
        counts.clock.now_ns = at_ns + (3 + number) * MS
        answers.come()
        answers.gone(is_empty=number % 2 == 1)
    answers.fail(BackendFailed("no more"))
    counts.add_success(running)


def compared(counts, at_ns, size):
    counts.comparison_count += size
    counts.disagreement_count += size == 2


EVENTS = (alone, at_once, joined, broken, late, refused, hit, missed, streamed, compared)
"""Each is called with the counts, the time in ns, and a batch size."""
