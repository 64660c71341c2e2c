"""A model is tuned on real servers, and its file written."""

import itertools

import numpy as np
import pytest

from inferd.config.pbtxt import parse_pbtxt
from inferd.errors import InvalidConfig, ModelNotFound
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor
from inferd.tune.goal import read_goal
from inferd.tune.measuring import TuneLoad
from inferd.tune.session import Session, TimeBudget, TuneTask


class Clock:
    """A clock that is turned by hand."""

    now = 100.0

    def __call__(self):
        return self.now


def measured(budget, clock, *durations):
    """Return how many measurements, of these seconds, fit."""
    for count, seconds in enumerate(durations):
        if not budget.fits:
            return count
        with budget.measuring():
            clock.now += seconds
    return len(durations)


def test_measurements_begin_while_one_as_long_as_the_longest_fits():
    clock = Clock()
    assert measured(TimeBudget(20, clock), clock, *[5] * 9) == 4
    assert measured(TimeBudget(20, clock), clock, 5, 8, *[1] * 9) == 2
    assert measured(TimeBudget(20, clock), clock, 5, 6, *[1] * 9) == 6


def test_the_first_fits_always():
    clock = Clock()
    budget = TimeBudget(10, clock)
    clock.now += 11
    assert measured(budget, clock, 1, 1) == 1


def test_without_a_limit_all_fit():
    clock = Clock()
    assert measured(TimeBudget(None, clock), clock, *itertools.repeat(1000, 50)) == 50


QUICK = TuneLoad(concurrency=4, seconds=0.5, warmup_s=0.1)


def session(repository, goal="", model="slow", **more):
    wanted = TuneTask(repository, model, read_goal(goal), QUICK, 2, **more)
    ones = np.ones((1, 2), np.float32)
    return Session(wanted, lambda _client: [Tensor.from_numpy("x", ones, DataType.FP32)])


def test_candidates_are_measured_and_the_best_is_written(repository):
    before = (repository / "slow/config.pbtxt").read_text()
    tuned = session(repository, most_trials=3)
    assert tuned.run() is False
    assert len(tuned.points) == 3, tuned.failures
    assert tuned.points[0].settings == {"instances": 1, "batch": 4, "delay_us": 0}
    assert all(one.cost.per_s > 0 and one.cost.memory_bytes > 1e6 for one in tuned.points)
    assert tuned.best in tuned.front
    tuned.write()
    text = (repository / "slow/config.pbtxt").read_text()
    assert text.startswith("# Found by inferd tune: instances ")
    written = parse_pbtxt(text, "config.pbtxt")
    assert written == tuned.configuration(tuned.best)
    assert written.parameters["execute_delay_ms"] == "20"
    assert (repository / "slow/config.pbtxt.old").read_text() == before
    assert "3 settings measured" in tuned.page()


def test_requests_that_the_server_does_not_join_are_not_batched_by_numbers(repository):
    """Numbers for dynamic_batching would have it join them, whatever its rows depend on."""
    file = repository / "slow/config.pbtxt"
    file.write_text(file.read_text().replace("dynamic_batching { }", ""))
    tuned = session(repository, most_trials=1)
    tuned.run()
    assert tuned.points[0].settings == {"instances": 1}
    assert not tuned.has_batches
    assert tuned.configuration(tuned.best).dynamic_batching is None


def test_a_search_ends_when_its_time_is_over_but_not_before_the_first_candidate(repository):
    tuned = session(repository, most_s=0.001)
    assert tuned.run() is False
    assert [one.settings["instances"] for one in tuned.points] == [1]


def test_a_model_that_is_not_there_is_told(repository):
    with pytest.raises(ModelNotFound, match="no model 'other'"):
        session(repository, model="other")


def test_a_file_that_is_wrong_is_told(repository):
    (repository / "slow/config.pbtxt").write_text("max_batch_size: x")
    with pytest.raises(InvalidConfig, match=r"config\.pbtxt:1:"):
        session(repository)


def test_the_quantile_that_is_limited_is_the_one_that_is_shown(repository):
    assert session(repository, "memory=1GB,p90=1s").quantile == "p90"
    assert session(repository, "memory=1GB").quantile == "p99"
