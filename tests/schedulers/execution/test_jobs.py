"""The lines of jobs; what jobs do in threads is told in test_execution."""

import asyncio
import threading

import pytest

from inferd.core.request import InferRequest
from inferd.schedulers.execution.job import Job
from inferd.schedulers.execution.jobs import JobQueue

PATIENCE_S = 30


@pytest.fixture
def job_of():
    loop = asyncio.new_event_loop()
    yield lambda name: Job((InferRequest("m", id=name),), loop)
    loop.close()


def taken(jobs):
    """Take all jobs; return their names."""
    names = []
    while (job := jobs.take()) is not None:
        names.append(job.requests[0].id)
    return names


def test_jobs_are_taken_in_their_order(job_of):
    jobs = JobQueue()
    for name in "abc":
        jobs.put(job_of(name))
    assert len(jobs) == 3
    assert taken(jobs) == ["a", "b", "c"]


def test_what_is_delayed_comes_after_all_others_even_later_ones(job_of):
    jobs, first, second = JobQueue(), job_of("a"), job_of("b")
    jobs.put(first)
    jobs.put(second)
    jobs.delay(first)
    jobs.put(job_of("c"))
    assert len(jobs) == 3
    assert taken(jobs) == ["b", "c", "a"]
    jobs.delay(second)  # it has been taken
    assert len(jobs) == 0


def test_levels_are_served_one_after_the_other_each_with_its_delayed_jobs(job_of):
    jobs = JobQueue()
    waiting = {name: job_of(name) for name in ("2a", "1a", "9a", "2b", "1b")}
    for name, job in waiting.items():
        job.level = int(name[0])
        jobs.put(job)
    jobs.delay(waiting["1a"])
    jobs.remove(waiting["9a"])
    assert (len(jobs), jobs.count(1), jobs.count(9), jobs.count(7)) == (4, 2, 0, 0)
    assert taken(jobs) == ["1b", "1a", "2a", "2b"]


def test_levels_without_jobs_take_no_memory(job_of):
    jobs = JobQueue()
    for level in range(1000):
        job = job_of("a")
        job.level = level
        jobs.put(job)
        assert jobs.take() is job
    assert len(jobs._levels) < 3


@pytest.mark.parametrize("is_delayed", [False, True])
def test_a_job_that_leaves_is_gone_and_leaves_once(job_of, is_delayed):
    jobs, job = JobQueue(), job_of("a")
    jobs.put(job)
    if is_delayed:
        jobs.delay(job)
    assert jobs.remove(job)
    assert not jobs.remove(job)
    assert jobs.take() is None and len(jobs) == 0


def test_a_thread_that_was_told_of_a_job_that_left_finds_nothing(job_of):
    jobs, job = JobQueue(), job_of("a")
    jobs.put(job)
    assert jobs.wait()
    assert jobs.remove(job)
    assert jobs.take() is None
    jobs.put(job_of("b"))
    assert jobs.wait()
    assert taken(jobs) == ["b"]


def test_threads_end_when_told_though_jobs_left_meanwhile(job_of):
    jobs, job = JobQueue(), job_of("a")
    jobs.put(job)
    assert jobs.wait()
    jobs.end()
    jobs.remove(job)  # its signal is with the thread: the one that is there must stay
    assert not jobs.wait()


def test_a_thread_that_has_more_to_do_hears_of_it_and_of_its_end_later(job_of):
    jobs = JobQueue()
    assert not jobs.has_more()
    jobs.put(job_of("a"))
    jobs.end()
    assert jobs.has_more()
    assert taken(jobs) == ["a"]
    assert not jobs.has_more()
    assert not jobs.wait()  # the end is still to come


def test_ten_thousand_jobs_that_came_and_left_leave_nothing(job_of):
    jobs = JobQueue()
    for _ in range(10_000):
        job = job_of("a")
        jobs.put(job)
        jobs.remove(job)
    assert len(jobs) == 0 and jobs._signals.qsize() == 0


@pytest.mark.slow
def test_every_job_is_taken_once_or_leaves_whatever_threads_do(job_of):
    jobs, seen = JobQueue(), []

    def work():
        while jobs.wait():
            if (job := jobs.take()) is not None:
                seen.append(job)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    put, left = [], []
    for number in range(20_000):
        put.append(job_of(""))
        jobs.put(put[-1])
        if number % 3 == 0 and jobs.remove(put[-2 if number > 2 else -1]):
            left.append(put[-2 if number > 2 else -1])
    for _ in threads:
        jobs.end()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert sorted(map(id, seen + left)) == sorted(map(id, put))
