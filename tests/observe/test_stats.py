import asyncio
import time

import pytest
from fields import with_fields

from inferd.core.request import InferRequest
from inferd.errors import BackendFailed, Cancelled, InvalidRequest, Unavailable
from inferd.observe.statistics import Duration
from inferd.observe.stats import (
    FINE_BUCKETS,
    MAX_BATCH_ROWS,
    MAX_RESPONSE_ROWS,
    NEVER_NS,
    AnswerCount,
    Counts,
    fine_bound,
    fine_bucket,
    powers_of_two,
)


class Clock:
    """Nanoseconds that pass when somebody says so."""

    def __init__(self):
        self.now_ns = 1000

    def __call__(self):
        return self.now_ns


def request(queued=0, started=0, computing=0, computed=0, ended=0, batch_size=1):
    return with_fields(
        InferRequest("m", batch_size=batch_size),
        queued_ns=queued,
        started_ns=started,
        computing_ns=computing,
        computed_ns=computed,
        ended_ns=ended,
    )


ALONE = (0, 1000, 1100, 1900, 2000)
QUEUED = (500, *ALONE[1:])


def reported(counts):
    return counts.statistics("m", "1")


def test_a_request_whose_times_cannot_be_is_counted_all_the_same():
    counts = Counts()
    counts.add_success(request(started=10**18, ended=1))
    assert counts.request_histogram[0] == counts.success_count == 1


# --- answers from the cache ---


def test_an_answer_from_the_cache_is_a_success_that_ran_nothing():
    counts = Counts()
    found = request(queued=500, ended=900, batch_size=3)
    found.shared = True
    counts.add_success(found)
    missed = request(*ALONE, batch_size=3)
    missed.answered_ns = missed.ended_ns + 70
    counts.add_success(missed)
    counts.add_cache_miss(70)
    row = reported(counts)
    stats = row.inference_stats
    assert (row.inference_count, row.execution_count) == (3, 1)
    assert (stats.cache_hit, stats.cache_miss) == (Duration(1, 400), Duration(1, 70))
    assert stats.success == Duration(2, 1000 + 400 + 70)
    assert stats.queue == Duration(2, 0)
    assert stats.compute_infer.count == 1
    histogram, ns = counts.histograms()[0]
    assert (sum(histogram), histogram[(400).bit_length()], ns) == (2, 1, 1470)
    assert sum(counts.histograms()[1][0]) == 2


def test_a_hit_is_no_last_inference():
    counts = Counts()
    found = request(queued=500, ended=900)
    found.shared = True
    counts.add_success(found)
    assert reported(counts).last_inference == 0


# --- requests that ran alone ---


def test_a_block_begins_with_nothing():
    found = reported(Counts())
    assert (found.name, found.version) == ("m", "1")
    assert (found.last_inference, found.inference_count, found.execution_count) == (0, 0, 0)
    assert found.inference_stats.success == found.inference_stats.queue == Duration(0, 0)
    assert (found.batch_stats, found.response_stats, found.memory_usage) == ([], {}, [])


def test_a_request_alone_is_one_success_and_one_execution():
    counts = Counts()
    counts.add_success(request(*ALONE, batch_size=3))
    found = reported(counts)
    assert (found.inference_count, found.execution_count) == (3, 1)
    stats = found.inference_stats
    assert stats.success == Duration(1, 1000)
    assert stats.queue == Duration(1, 0)
    assert stats.compute_input == Duration(1, 100)
    assert stats.compute_infer == Duration(1, 800)
    assert stats.compute_output == Duration(1, 100)
    assert stats.fail == stats.cache_hit == stats.cache_miss == Duration(0, 0)
    [row] = found.batch_stats
    assert row.batch_size == 3
    assert row.compute_infer == Duration(1, 800)


def test_the_time_in_the_queue_is_part_of_the_request():
    counts = Counts()
    counts.add_success(request(*QUEUED))
    stats = reported(counts).inference_stats
    assert stats.queue == Duration(1, 500)
    assert stats.success == Duration(1, 1500)


def test_the_way_back_from_a_thread_is_part_of_the_request_alone():
    counts = Counts()
    given = request(*QUEUED)
    given.answered_ns = 2600
    counts.add_success(given)
    stats = reported(counts).inference_stats
    assert stats.success == Duration(1, 2100)
    assert stats.compute_output == Duration(1, 100)
    assert counts.histograms()[0][0][12] == 1  # 2048 ns and more


def test_a_backend_that_tells_no_phases_has_all_its_time_in_infer():
    counts = Counts()
    counts.add_success(request(started=1000, ended=1700))
    stats = reported(counts).inference_stats
    assert stats.compute_input == stats.compute_output == Duration(1, 0)
    assert stats.compute_infer == Duration(1, 700)


def test_batch_sizes_have_a_row_each_in_order():
    counts = Counts()
    for batch_size in (8, 1, 8):
        counts.add_success(request(*ALONE, batch_size=batch_size))
    rows = reported(counts).batch_stats
    assert [(row.batch_size, row.compute_input.count) for row in rows] == [(1, 1), (8, 2)]


def test_the_last_inference_is_in_milliseconds_since_1970():
    clock = Clock()
    before_ms = time.time_ns() // 1_000_000
    counts = Counts(clock)
    after_ms = time.time_ns() // 1_000_000
    started_ns = clock.now_ns + 5_000_000
    counts.add_success(request(started=started_ns, ended=started_ns + 1))
    assert before_ms + 5 <= reported(counts).last_inference <= after_ms + 5


def test_a_duration_counts_in_the_bucket_of_its_bit_length():
    counts = Counts()
    counts.add_success(request(*QUEUED))
    places = [
        [bucket for bucket, count in enumerate(histogram) if count]
        for histogram in (
            counts.queue_histogram,
            counts.input_histogram,
            counts.infer_histogram,
            counts.output_histogram,
            counts.histograms()[0][0],
        )
    ]
    assert places == [[9], [7], [10], [7], [11]]  # 500, 100, 800, 100 and 1500 ns


DURATIONS = [*range(70), 1000, 4095, 4096, 10**6 + 1, 10**9, 2**62 - 1, 2**63, 2**64 - 1]


@pytest.mark.parametrize("ns", DURATIONS)
def test_a_whole_request_counts_in_one_of_eight_buckets_of_its_bit_length(ns):
    bucket = fine_bucket(ns)
    assert fine_bound(bucket) <= ns < fine_bound(bucket + 1)
    width = fine_bound(bucket + 1) - fine_bound(bucket)
    assert width == 1 or width <= ns / 8
    fine = [0] * FINE_BUCKETS
    fine[bucket] = 1
    assert powers_of_two(fine).index(1) == ns.bit_length()


@pytest.mark.parametrize("ns", [1, 15, 16, 1500, 10**9])
@pytest.mark.parametrize("is_hit", [False, True])
def test_hits_and_runs_count_in_the_same_buckets(ns, is_hit):
    counts = Counts()
    counts.add_success(_taking(ns, is_hit=is_hit))
    assert counts.request_histogram[fine_bucket(ns)] == counts.success_count == 1
    assert sum(counts.request_histogram) == 1


def _taking(ns, *, is_hit=False):
    """Return a request that took so long, a hit of the cache or one that ran."""
    made = request(queued=1000, ended=1000 + ns, started=0 if is_hit else 1000)
    made.shared = is_hit
    return made


# --- those who are told at once ---


@pytest.mark.parametrize("is_hit", [False, True])
def test_requests_that_took_longer_than_the_limit_are_told_of(is_hit):
    told, counts = [], Counts()
    assert counts.slow_ns == NEVER_NS
    counts.add_success(_taking(10**12, is_hit=is_hit))  # nobody listens
    counts.on_slow = lambda request, took_ns: told.append((request, took_ns))
    counts.slow_ns = 5000
    counts.add_success(_taking(5000, is_hit=is_hit))
    slow = _taking(5001, is_hit=is_hit)
    counts.add_success(slow)
    assert told == [(slow, 5001)]


def test_failures_are_told_of_with_their_reason_and_refused_requests_are_not():
    told, counts = [], Counts()
    counts.add_failure(request(started=500), BackendFailed("nobody listens"))
    counts.on_failure = lambda *what: told.append(what)
    failed, error = request(started=500), BackendFailed("it broke")
    counts.add_failure(request(), Unavailable("the queue is full"))
    counts.add_failure(failed, error)
    assert told == [(failed, error, "BACKEND")]


# --- requests that shared an execution ---


def test_requests_that_shared_an_execution_count_it_once_and_its_time_each():
    counts = Counts()
    ran = request(*ALONE)
    members = [request(queued=400, batch_size=1), request(queued=900, batch_size=2)]
    counts.add_shared_execution(ran, members)
    for member in members:
        counts.add_success(member)
    found = reported(counts)
    assert (found.inference_count, found.execution_count) == (3, 1)
    stats = found.inference_stats
    assert stats.queue == Duration(2, 600 + 100)
    assert stats.compute_infer == Duration(2, 1600)
    assert stats.success == Duration(2, 1600 + 1100)
    [row] = found.batch_stats
    assert (row.batch_size, row.compute_infer) == (3, Duration(1, 800))


def test_requests_that_ran_again_by_themselves_are_counted():
    counts, ran = Counts(), request(*ALONE)
    counts.add_shared_execution(ran, [ran, request()])
    assert counts.rerun_count == 0
    ran.ran_again = True
    counts.add_shared_execution(ran, [ran, request(), request()])
    assert counts.rerun_count == 3


def test_one_batch_size_has_one_row_whether_shared_or_not():
    counts = Counts()
    counts.add_success(request(*ALONE, batch_size=2))
    counts.add_shared_execution(request(*ALONE), [request(), request()])
    [row] = reported(counts).batch_stats
    assert (row.batch_size, row.compute_input) == (2, Duration(2, 200))


def test_a_shared_execution_that_failed_counts_once_and_fails_each():
    counts = Counts()
    members = [request(queued=400), request(queued=900)]
    counts.add_shared_execution(request(*ALONE), members, failed=True)
    for member in members:
        counts.add_failure(member, BackendFailed("no"))
    found = reported(counts)
    assert (found.inference_count, found.execution_count) == (0, 1)
    assert found.inference_stats.fail.count == 2
    [row] = found.batch_stats
    assert (row.batch_size, row.compute_infer) == (2, Duration(1, 800))


def test_the_executions_of_all_batch_sizes_are_all_executions_failed_or_not():
    counts = Counts(clock=lambda: 3000)
    counts.add_success(request(*ALONE, batch_size=2))
    counts.add_failure(request(*ALONE, batch_size=2), BackendFailed("no"))
    for failed in (False, True):
        counts.add_shared_execution(request(*ALONE), [request(), request()], failed=failed)
    found = reported(counts)
    [row] = found.batch_stats
    assert (row.batch_size, row.compute_infer) == (2, Duration(4, 3200))
    assert found.execution_count == 4


def test_more_batch_sizes_than_anybody_has_are_counted_together():
    counts = Counts()
    sizes = range(1, MAX_BATCH_ROWS + 4)
    for batch_size in sizes:
        counts.add_success(request(*ALONE, batch_size=batch_size))
    for batch_size in sizes:
        counts.add_shared_execution(request(*ALONE), [request(batch_size=batch_size)])
    found = reported(counts)
    assert found.inference_count == sum(sizes)
    assert found.execution_count == 2 * len(sizes)
    assert len(found.batch_stats) == MAX_BATCH_ROWS + 1
    assert (found.batch_stats[0].batch_size, found.batch_stats[0].compute_infer.count) == (0, 6)


# --- failures ---


def test_a_request_that_failed_in_the_model_counts_its_execution_but_no_inference():
    clock = Clock()
    counts = Counts(clock)
    clock.now_ns = 2000
    counts.add_failure(request(started=1500, batch_size=3), BackendFailed("no"))
    found = reported(counts)
    assert (found.inference_count, found.execution_count) == (0, 1)
    assert found.inference_stats.fail == Duration(1, 500)
    assert found.inference_stats.success == Duration(0, 0)
    [row] = found.batch_stats
    assert (row.batch_size, row.compute_infer) == (3, Duration(1, 500))
    assert found.last_inference > 0


@pytest.mark.parametrize(
    ("given", "error", "reason"),
    [
        (request(queued=500), Unavailable("timeout"), "REJECTED"),
        (request(queued=500), asyncio.CancelledError(), "CANCELED"),
        (request(queued=500), ValueError("a bug"), "OTHER"),
        (request(started=500), BackendFailed("no"), "BACKEND"),
        (request(started=500), InvalidRequest("the model's own check"), "BACKEND"),
        (request(started=500), Unavailable("the model's own word"), "BACKEND"),
        (request(started=500), Cancelled("gone"), "CANCELED"),
        (request(started=500), GeneratorExit(), "CANCELED"),
    ],
)
def test_a_failure_has_a_reason(given, error, reason):
    counts = Counts()
    counts.add_failure(given, error)
    assert [name for name, count in counts.fail_counts.items() if count] == [reason]


def test_a_request_that_never_got_in_is_refused_and_no_failure():
    counts = Counts()
    counts.add_failure(request(), Unavailable("the queue is full"))
    counts.add_failure(request(), InvalidRequest("no sequence id"))
    assert counts.refused_count == 1
    assert reported(counts).inference_stats.fail == Duration(0, 0)


# --- answers of decoupled models ---


def test_answers_are_counted_by_their_place_in_the_stream():
    clock = Clock()
    counts = Counts(clock)
    answers = AnswerCount(counts, request(queued=100, started=1000))
    clock.now_ns = 1300
    answers.come()
    clock.now_ns = 1350
    answers.gone(is_empty=False)
    clock.now_ns = 1400
    answers.come()
    answers.gone(is_empty=True)
    rows = reported(counts).response_stats
    assert list(rows) == ["0", "1"]
    assert rows["0"].compute_infer == Duration(1, 300)
    assert rows["0"].compute_output == Duration(1, 50)
    assert rows["0"].success == Duration(1, 350)
    assert rows["0"].empty_response == Duration(0, 0)
    assert rows["1"].empty_response == Duration(1, 50)
    assert rows["1"].success == Duration(0, 0)


def test_a_stream_that_ends_without_any_answer_counts_as_an_empty_one():
    clock = Clock()
    counts = Counts(clock)
    answers = AnswerCount(counts, request(started=1000))
    clock.now_ns = 1300
    answers.end()
    rows = reported(counts).response_stats
    assert list(rows) == ["0"]
    assert rows["0"].compute_infer == rows["0"].empty_response == Duration(1, 300)
    assert rows["0"].success == Duration(0, 0)


def test_the_end_after_answers_counts_nothing():
    counts = Counts()
    answers = AnswerCount(counts, request(started=1000))
    answers.come()
    answers.gone(is_empty=False)
    answers.end()
    assert list(reported(counts).response_stats) == ["0"]


@pytest.mark.parametrize(
    ("error", "outcome"), [(BackendFailed("no"), "fail"), (GeneratorExit(), "cancel")]
)
def test_what_ends_a_stream_counts_in_the_place_of_the_answer_it_took(error, outcome):
    clock = Clock()
    counts = Counts(clock)
    answers = AnswerCount(counts, request(started=1000))
    answers.come()
    answers.gone(is_empty=False)
    clock.now_ns = 1200
    answers.fail(error)
    rows = reported(counts).response_stats
    assert getattr(rows["1"], outcome) == Duration(1, 200)
    assert rows["1"].success == Duration(0, 0)


def test_an_error_among_the_answers_counts_in_its_place_and_fails_the_request():
    clock = Clock()
    counts = Counts(clock)
    requested = request(started=1000)
    answers = AnswerCount(counts, requested)
    error = BackendFailed("one of two")
    clock.now_ns = 1200
    answers.come()
    answers.gone(is_empty=True, error=error)
    answers.come()
    answers.gone(is_empty=False)
    counts.add_outcome(requested, error)
    rows = reported(counts).response_stats
    assert (rows["0"].fail, rows["0"].empty_response) == (Duration(1, 200), Duration(0, 0))
    assert rows["1"].success.count == 1
    stats = reported(counts).inference_stats
    assert (stats.success.count, stats.fail.count) == (0, 1)


def test_a_stream_that_never_began_has_no_answers():
    counts = Counts()
    AnswerCount(counts, request()).fail(Unavailable("full"))
    assert reported(counts).response_stats == {}


def test_a_stream_without_end_fills_no_memory():
    counts = Counts()
    for index in range(MAX_RESPONSE_ROWS + 5):
        counts.add_response(index, "success", 1, 1)
    rows = reported(counts).response_stats
    assert len(rows) == MAX_RESPONSE_ROWS
    assert rows[str(MAX_RESPONSE_ROWS - 1)].success.count == 6


# --- by batch size ---


def test_each_batch_size_of_requests_is_distinguished():
    counts = Counts(clock=lambda: 3000)
    counts.add_success(request(*QUEUED, batch_size=1))
    counts.add_success(request(*ALONE, batch_size=4))
    joined = [request(*QUEUED, batch_size=1), request(*QUEUED, batch_size=2)]
    counts.add_shared_execution(request(*ALONE), joined)
    for one in joined:
        counts.add_success(one)
    counts.add_failure(request(*ALONE, batch_size=4), BackendFailed("no"))
    hit = request(queued=500, ended=900, batch_size=7)
    hit.shared = True
    counts.add_success(hit)
    found = counts.by_batch_size()
    assert list(found) == [1, 2, 4, 7]
    assert found[1].success == Duration(2, 3000)
    assert found[1].queue == Duration(2, 1000)
    assert found[2].compute_infer == Duration(1, 800)
    assert (found[4].success.count, found[4].fail) == (1, Duration(1, 2000))
    assert found[7].success == found[7].cache_hit == Duration(1, 400)
    whole = reported(counts).inference_stats
    assert whole.success.count == sum(one.success.count for one in found.values())
    assert whole.success.ns == sum(one.success.ns for one in found.values())
    assert reported(counts).inference_count == 1 + 4 + 1 + 2
