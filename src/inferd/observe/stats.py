"""Counts: the statistics of one loaded model version, kept as plain integers.

A request carries its own times: `queued_ns` is set by the scheduler that queues it, `started_ns`,
`ended_ns` and `answered_ns` by the Execution that runs it, `computing_ns` and `computed_ns` by
backends that can tell their own work on inputs and outputs from the framework's. The engine, which
every request passes through, counts it with one call: add_success or add_failure.

Most requests run alone in their execution, and that one call counts both. Requests that share an
execution are marked `shared`, and the Execution that ran them counts it with add_shared_execution.
So lone and shared requests have integers of their own, added up only when statistics are read. A
request answered from the response cache is marked `shared`, too; it was never started itself.

A duration is counted in the histogram bucket of its bit length: bucket n holds those from 2^(n-1)
to below 2^n ns. Those of whole requests have eight buckets where others have one, so that a
percentile is known to a sixteenth; `powers_of_two` adds those that belong together.

Everything here runs on the event loop, so nothing is locked.
"""

import asyncio
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Literal, Protocol, TypeVar

from inferd.compiled import mypyc_attr
from inferd.errors import Cancelled, Unavailable
from inferd.observe.statistics import (
    BatchStatistics,
    Duration,
    InferStatistics,
    ModelStatistics,
    ResponseStatistics,
)

BUCKETS = 65
"""One for each bit length of a duration in ns, up to 2^64 ns (584 years)."""

# Eight buckets for each power of two: a sixteenth of error, for one shift more than the bit length
# costs.
FINE_BITS: Final = 3
FINE_BUCKETS = (BUCKETS - FINE_BITS) << FINE_BITS
"""The buckets of durations of whole requests; below 16 ns each holds one number."""

NEVER_NS: Final = (1 << 62) - 1
"""Longer than any request takes, and still an unboxed integer in compiled code."""

MAX_RESPONSE_ROWS = 1000
"""The most rows for answers of a stream; later answers are counted in the last row."""

MAX_BATCH_ROWS = 1000
"""The most rows for different batch sizes; further sizes share the row of size 0."""

REJECTED, CANCELED, BACKEND, OTHER = FAILURE_REASONS = ("REJECTED", "CANCELED", "BACKEND", "OTHER")
"""Why requests fail: too long in the queue, cancelled by the client, model failure, other."""

Outcome = Literal["success", "fail", "empty_response", "cancel"]
Row = TypeVar("Row")


class Timed(Protocol):
    """The parts of a request that are counted: its batch size and its times.

    Times are read from time.perf_counter_ns, and 0 if the request did not get that far. `shared`:
    the execution is counted separately, or the answer came from the response cache. `ran_again`:
    it ran once more by itself, because an execution with others failed.
    """

    batch_size: int
    queued_ns: int
    started_ns: int
    computing_ns: int
    computed_ns: int
    ended_ns: int
    answered_ns: int
    shared: bool
    ran_again: bool


class Quantiles(Protocol):
    """Durations of the last minute."""

    def quantiles(self, levels: Sequence[float]) -> list[float]:
        """Return the quantiles at these levels, in ns; NaN when there were no durations."""
        ...


class Phases:
    """A count of runs and the sum of each phase; shared executions have no queue or handover."""

    def __init__(self) -> None:
        self.count = 0
        self.queue_ns = 0
        self.input_ns = 0
        self.infer_ns = 0
        self.output_ns = 0
        self.handover_ns = 0


class Histogram:
    """Counts values: counts[i] has those above bounds[i - 1], up to and including bounds[i]."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        # One more than bounds, for what is above all of them.
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        """Count `value`."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value


# SummaryCounts is interpreted: it is used only where summaries are asked for.
@mypyc_attr(allow_interpreted_subclasses=True)
class Counts:
    """The integers of one model version; `clock` is the one that its requests' times come from.

    `born` is the number of the change that loaded the version, 0 if it was not one of several
    processes.
    `alone` and `shared` are executions by batch size, `shared_requests` the requests in the shared
    ones, by theirs. Their `handover_ns` is the time the event loop took to get the answers of
    executions in threads, and that of misses in the response cache. `failed` are the executions
    that failed, alone or shared. `other_inference_count` has the batch sizes in rows 0. Histograms
    count successful requests; one that had no queue is in none of `queue_histogram`'s buckets.
    `refused_count` counts requests turned away before a queue or an instance had them, which are no
    failures of the model. `rerun_count` counts those that `ran_again`, `comparison_count` the
    joined answers that were compared with answers computed alone, `disagreement_count` those that
    differed. `first_responses`, for decoupled models, counts the milliseconds to the first answer;
    for others, too, if it `times_answers`. What fails in an ensemble, fails in a step: its own
    reason is OTHER (Triton). `summaries` are of the durations that `histograms` have, and
    `cache_summaries` of hits and misses, where they are wanted.
    `request_histogram` has FINE_BUCKETS. `on_slow` is told of each answered request that took more
    than `slow_ns`, and how long it took; `on_failure` of each that failed, with the error and the
    one of FAILURE_REASONS. Neither may raise.
    """

    def __init__(self, clock: Callable[[], int] = time.perf_counter_ns) -> None:
        self.clock = clock
        self.born = 0
        # Times come from the monotonic clock; this turns them into dates, without a second clock in
        # each request.
        self._epoch_ns = time.time_ns() - clock()
        self._last_ns = 0
        self.alone: dict[int, Phases] = {}
        self.shared: dict[int, Phases] = {}
        self.shared_requests: dict[int, Phases] = {}
        self.other_inference_count = 0
        self.failed: dict[int, Phases] = {}
        self.failures: dict[int, Duration] = {}
        # All reasons from the start, so each counter begins at 0.
        self.fail_counts = dict.fromkeys(FAILURE_REASONS, 0)
        self.refused_count = self.rerun_count = 0
        self.comparison_count = self.disagreement_count = 0
        self.cache_hits: dict[int, Duration] = {}
        self.cache_miss = Duration()
        self.responses: list[ResponseStatistics] = []
        self.first_responses: Histogram | None = None
        self.times_answers = self.is_ensemble = False
        self.success_count = 0
        self.request_histogram = [0] * FINE_BUCKETS
        self.queue_histogram = [0] * BUCKETS
        self.input_histogram = [0] * BUCKETS
        self.infer_histogram = [0] * BUCKETS
        self.output_histogram = [0] * BUCKETS
        self.summaries: Sequence[Quantiles] = ()
        self.cache_summaries: Sequence[Quantiles] = ()
        # Never reached unless somebody looks: one comparison tells that there is nobody.
        self.slow_ns = NEVER_NS
        self.on_slow: Callable[[Timed, int], None] | None = None
        self.on_failure: Callable[[Timed, BaseException, str], None] | None = None

    def add_success(self, request: Timed) -> None:
        """Count a request that was answered, and its execution unless that was shared."""
        # Into local names, since each field is read several times and this runs for every request.
        started_ns = request.started_ns
        # A backend that cannot tell its own work from the framework's has neither stamp: then all
        # is the framework's.
        computing_ns = request.computing_ns or started_ns
        ended_ns = request.ended_ns
        computed_ns = request.computed_ns or ended_ns
        batch_size = request.batch_size
        rows = self.alone
        if request.shared:
            # Marked as shared and never started: answered from the cache.
            if not started_ns:
                self._add_cache_hit(request)
                return
            rows = self.shared_requests
        # A new size is rare, so making its row is in a function of its own.
        phases = rows.get(batch_size) or self._new_row(rows, batch_size)
        phases.count += 1
        phases.input_ns += (took_ns := computing_ns - started_ns)
        # The number of the bucket in one call of C, without a search.
        self.input_histogram[took_ns.bit_length()] += 1
        phases.infer_ns += (took_ns := computed_ns - computing_ns)
        self.infer_histogram[took_ns.bit_length()] += 1
        phases.output_ns += (took_ns := ended_ns - computed_ns)
        self.output_histogram[took_ns.bit_length()] += 1
        self._last_ns = started_ns
        # Models without a queue have no stamp: they wait for nothing.
        if queued_ns := request.queued_ns:
            phases.queue_ns += (took_ns := started_ns - queued_ns)
            self.queue_histogram[took_ns.bit_length()] += 1
            started_ns = queued_ns
        if answered_ns := request.answered_ns:
            phases.handover_ns += answered_ns - ended_ns
            ended_ns = answered_ns
        took_ns = max(0, ended_ns - started_ns)  # whatever a backend says: it must be counted
        shift = max(0, took_ns.bit_length() - FINE_BITS - 1)  # as in fine_bucket
        self.request_histogram[(shift << FINE_BITS) + (took_ns >> shift)] += 1
        self.success_count += 1
        if took_ns > self.slow_ns and self.on_slow is not None:
            self.on_slow(request, took_ns)
        # For all others the histogram is that of decoupled models, counted by AnswerCount.
        if self.times_answers and (histogram := self.first_responses) is not None:
            histogram.add(took_ns / 1e6)

    def _add_cache_hit(self, request: Timed) -> None:
        took_ns = request.ended_ns - request.queued_ns
        _row(self.cache_hits, request.batch_size, Duration).add(took_ns)
        self.request_histogram[fine_bucket(took_ns)] += 1
        self.success_count += 1
        if took_ns > self.slow_ns and self.on_slow is not None:
            self.on_slow(request, took_ns)

    def add_cache_miss(self, took_ns: int) -> None:
        """Note that an answer was not in the cache; `took_ns` for looking, and for keeping it.

        In the time of the request, if it succeeds, that is as part of its `answered_ns`.
        """
        self.cache_miss.add(took_ns)

    def add_failure(self, request: Timed, error: BaseException) -> None:
        """Count a request that ended with `error`, and its execution unless that was shared."""
        began_ns = request.queued_ns or request.started_ns
        if not began_ns:
            # Neither queued nor started: refused for want of room if it says so, otherwise it was
            # not valid.
            self.refused_count += isinstance(error, Unavailable)
            return
        _row(self.failures, request.batch_size, Duration).add(self.clock() - began_ns)
        reason = self._reason(request, error)
        self.fail_counts[reason] += 1
        # A shared execution that failed has been counted by add_shared_execution.
        if request.started_ns and not request.shared:
            self._add_execution(self.failed, request, request.batch_size)
        if self.on_failure is not None:
            self.on_failure(request, error, reason)

    def _reason(self, request: Timed, error: BaseException) -> str:
        if _is_cancel(error):
            return CANCELED
        if self.is_ensemble:
            return OTHER
        if request.started_ns:
            return BACKEND
        return REJECTED if isinstance(error, Unavailable) else OTHER

    def add_outcome(self, request: Timed, failure: BaseException | None) -> None:
        """Count a request whose answers are complete; `failure` is the error among them, if any."""
        if failure is None:
            self.add_success(request)
        else:
            self.add_failure(request, failure)

    def add_shared_execution(
        self, ran: Timed, served: Sequence[Timed], *, failed: bool = False
    ) -> None:
        """Count one execution of several requests, and copy its times to all of them.

        `ran` is the request that the Execution ran: one joined from `served`, or the first of them.
        To be called before the answers are handed out.
        """
        batch_size = 0
        for request in served:
            request.started_ns = ran.started_ns
            request.computing_ns = ran.computing_ns
            request.computed_ns = ran.computed_ns
            request.ended_ns = ran.ended_ns
            request.answered_ns = ran.answered_ns
            request.shared = True
            batch_size += request.batch_size
        if ran.ran_again:
            self.rerun_count += len(served)
        self._add_execution(self.failed if failed else self.shared, ran, batch_size)

    def add_left_execution(self, ran: Timed) -> None:
        """Count the execution of a request that has been counted already, before it was known."""
        self._add_execution(self.failed, ran, ran.batch_size)

    def _add_execution(self, rows: dict[int, Phases], ran: Timed, batch_size: int) -> None:
        """Count an execution of its own; one that nobody waits for any more lasts until now."""
        self._last_ns = started_ns = ran.started_ns
        ended_ns = ran.ended_ns or self.clock()
        computing_ns = ran.computing_ns or started_ns
        computed_ns = ran.computed_ns or ended_ns
        phases = _row(rows, batch_size, Phases)
        phases.count += 1
        phases.input_ns += computing_ns - started_ns
        phases.infer_ns += computed_ns - computing_ns
        phases.output_ns += ended_ns - computed_ns

    def add_response(self, index: int, outcome: Outcome, infer_ns: int, output_ns: int) -> None:
        """Count the outcome of answer `index` (from 0) of a decoupled model's stream."""
        # Streams may be endless; see MAX_RESPONSE_ROWS.
        index = min(index, MAX_RESPONSE_ROWS - 1)
        while len(self.responses) <= index:
            self.responses.append(ResponseStatistics())
        row = self.responses[index]
        row.compute_infer.add(infer_ns)
        row.compute_output.add(output_ns)
        ended: Duration = getattr(row, outcome)
        ended.add(infer_ns + output_ns)

    def _new_row(self, rows: dict[int, Phases], batch_size: int) -> Phases:
        """Return a new row for a batch size, or row 0 if there are MAX_BATCH_ROWS already."""
        phases = _row(rows, batch_size, Phases)
        # `_row` has given row 0, which does not tell how many inferences its requests were.
        if batch_size not in rows:
            self.other_inference_count += batch_size
        return phases

    def progress(self) -> int:
        """Return a number that is another one once more has been counted; it takes 1 to 2 µs."""
        return (
            self.success_count
            + sum(self.fail_counts.values())
            + sum([row.compute_infer.count for row in self.responses])
            + self.cache_miss.count
            + self.refused_count
            + self.rerun_count
            + self.comparison_count
            + self.disagreement_count
        )

    @property
    def last_ns(self) -> int:
        """When the last execution began, in ns since 1970; 0 before the first."""
        return self._epoch_ns + self._last_ns if self._last_ns else 0

    def ran_at(self, last_ns: int) -> None:
        """Have the last execution begun at `last_ns` since 1970."""
        self._epoch_ns, self._last_ns = 0, last_ns

    def statistics(self, name: str, version: str) -> ModelStatistics:
        """Return everything in the form of the Statistics extension."""
        counted = [*self.alone.items(), *self.shared_requests.items()]
        executions = [*self.alone.values(), *self.shared.values(), *self.failed.values()]
        return ModelStatistics(
            name,
            version,
            self.last_ns // 1_000_000,
            self.other_inference_count + sum(size * phases.count for size, phases in counted),
            # Requests in shared executions are not executions of their own.
            sum(phases.count for phases in executions),
            self._request_statistics(
                [phases for _, phases in counted],
                self.failures.values(),
                self.cache_hits.values(),
                self.cache_miss,
            ),
            {str(index): row for index, row in enumerate(self.responses)},
            [
                BatchStatistics(size, *_durations(self._executions_of(size)))
                for size in sorted(self.alone.keys() | self.shared.keys() | self.failed.keys())
            ],
            [],
        )

    def by_batch_size(self) -> dict[int, InferStatistics]:
        """Return the request statistics by batch size; 0 stands for all sizes without a row.

        Cache misses have no batch size, and are left out.
        """
        kinds = (self.alone, self.shared_requests, self.failures, self.cache_hits)
        sizes = {size for rows in kinds for size in rows}
        return {
            size: self._request_statistics(
                [rows[size] for rows in (self.alone, self.shared_requests) if size in rows],
                [self.failures[size]] if size in self.failures else [],
                [self.cache_hits[size]] if size in self.cache_hits else [],
                Duration(),
            )
            for size in sorted(sizes)
        }

    def _request_statistics(
        self,
        requests: Sequence[Phases],
        failures: Iterable[Duration],
        hits: Iterable[Duration],
        miss: Duration,
    ) -> InferStatistics:
        # As in Triton, a hit counts as a success and in the queue, but as no computation.
        cache_hit = _total(hits)
        count = sum(phases.count for phases in requests) + cache_hit.count
        queue_ns = sum(phases.queue_ns for phases in requests)
        compute_input, compute_infer, compute_output = _durations(requests)
        success_ns = queue_ns + sum(phases.handover_ns for phases in requests)
        success_ns += compute_input.ns + compute_infer.ns + compute_output.ns
        success_ns += cache_hit.ns
        return InferStatistics(
            success=Duration(count, success_ns),
            fail=_total(failures),
            queue=Duration(count, queue_ns),
            compute_input=compute_input,
            compute_infer=compute_infer,
            compute_output=compute_output,
            cache_hit=cache_hit,
            cache_miss=miss,
        )

    def histograms(self) -> list[tuple[list[int], int]]:
        """Return the buckets and the sum in ns of request, queue, input, infer and output."""
        stats = self.statistics("", "").inference_stats
        queue = self.queue_histogram.copy()
        # Counted as 0 ns, so that all histograms have the same count; a request adds to no bucket
        # for it.
        queue[0] += stats.queue.count - sum(queue)  # those that were not queued
        return [
            (powers_of_two(self.request_histogram), stats.success.ns),
            (queue, stats.queue.ns),
            (self.input_histogram.copy(), stats.compute_input.ns),
            (self.infer_histogram.copy(), stats.compute_infer.ns),
            (self.output_histogram.copy(), stats.compute_output.ns),
        ]

    def _executions_of(self, batch_size: int) -> list[Phases]:
        kinds = (self.alone, self.shared, self.failed)
        return [some[batch_size] for some in kinds if batch_size in some]


class AnswerCount:
    """Counts the answers of one request to a decoupled model, as they arrive and are taken."""

    def __init__(self, counts: Counts, request: Timed) -> None:
        self._counts = counts
        self._request = request
        self._clock = counts.clock
        self._index = 0
        self._arrived_ns = 0
        self._went_ns = 0

    def come(self) -> None:
        """Note that an answer has arrived."""
        self._arrived_ns = self._clock()
        if self._index == 0 and (histogram := self._counts.first_responses):
            # With the wait in the queue: the time that a client sees.
            began_ns = self._request.queued_ns or self._request.started_ns
            histogram.add((self._arrived_ns - began_ns) / 1e6)

    def gone(self, *, is_empty: bool, error: BaseException | None = None) -> None:
        """Note that the reader took the answer, or its `error`, and asks for the next one."""
        if error is not None:
            self.fail(error)
        else:
            self._add("empty_response" if is_empty else "success")

    def fail(self, error: BaseException) -> None:
        """Note that `error` came instead of the next answer, or of the one not yet taken."""
        # Before its start a request has no answers: its failure is counted as that of the request.
        if self._request.started_ns:
            self._add("cancel" if _is_cancel(error) else "fail")

    def end(self) -> None:
        """Note that no more answers come; if none came at all, that is an empty response."""
        if self._index == 0:
            self._add("empty_response")

    def _add(self, outcome: Outcome) -> None:
        now_ns = self._clock()
        arrived_ns = self._arrived_ns or now_ns
        began_ns = self._went_ns or self._request.started_ns
        self._counts.add_response(self._index, outcome, arrived_ns - began_ns, now_ns - arrived_ns)
        self._index += 1
        self._arrived_ns = 0
        self._went_ns = now_ns


def fine_bucket(ns: int) -> int:
    """Return the bucket of `request_histogram` in which a duration is counted."""
    shift = max(0, ns.bit_length() - FINE_BITS - 1)
    return (shift << FINE_BITS) + (ns >> shift)


def fine_bound(bucket: int) -> int:
    """Return the shortest duration, in ns, that is counted in a bucket of `request_histogram`."""
    shift = max(0, (bucket >> FINE_BITS) - 1)
    return (bucket - (shift << FINE_BITS)) << shift


def powers_of_two(fine: Sequence[int]) -> list[int]:
    """Return BUCKETS counts by bit length for the FINE_BUCKETS of `request_histogram`."""
    # Below 16 ns each bucket holds one number, so the first powers of two are fewer buckets.
    few = [*fine[:2], sum(fine[2:4]), sum(fine[4:8])]
    return few + [sum(fine[start : start + 8]) for start in range(8, FINE_BUCKETS, 8)]


def _row(rows: dict[int, Row], batch_size: int, make: Callable[[], Row]) -> Row:
    """Return the row for `batch_size`, made if need be; row 0 once there are too many."""
    if batch_size not in rows and len(rows) >= MAX_BATCH_ROWS:
        batch_size = 0
    return rows.setdefault(batch_size, make())


def _total(durations: Iterable[Duration]) -> Duration:
    total = Duration()
    for duration in durations:
        total.count += duration.count
        total.ns += duration.ns
    return total


def _durations(all_phases: Sequence[Phases]) -> tuple[Duration, Duration, Duration]:
    """Return the sums of the input, infer and output phases."""
    count = sum(phases.count for phases in all_phases)
    return (
        Duration(count, sum(phases.input_ns for phases in all_phases)),
        Duration(count, sum(phases.infer_ns for phases in all_phases)),
        Duration(count, sum(phases.output_ns for phases in all_phases)),
    )


def _is_cancel(error: BaseException) -> bool:
    # The reader of a stream has left.
    return isinstance(error, asyncio.CancelledError | GeneratorExit | Cancelled)
