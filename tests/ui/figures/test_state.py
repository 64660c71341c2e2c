import pytest

from inferd.core.metadata import ModelState
from inferd.engine.engine import Engine
from inferd.engine.loading.load import LoadOptions
from inferd.ui.figures.board import state_of


def begun(**options):
    engine = Engine(load_options=LoadOptions(allow_empty=True, **options))
    engine.readiness.finish_loading()
    return engine


def test_a_server_that_loads_is_starting():
    assert state_of(Engine(), [], 0) == ("starting", "models are loading")


def test_a_server_that_serves_is_ready_and_overloaded_while_it_refuses():
    engine = begun()
    assert state_of(engine, [], 0) == ("ready", "")
    assert state_of(engine, [], 1) == ("overloaded", "1 request was refused in the last 5 s")
    assert state_of(engine, [], 9) == ("overloaded", "9 requests were refused in the last 5 s")


def test_a_server_that_ends_is_draining():
    engine = begun()
    engine.capacity.request_count = 3
    engine.drain()
    assert state_of(engine, [], 9)[0] == "draining"
    assert "3 inferences" in state_of(engine, [], 9)[1]


@pytest.mark.parametrize(
    ("failed", "why"),
    [
        ([("a", "1", "broken")], "'a' 1 is not ready"),
        ([("a", "", "broken"), ("b", "2", "")], "'a', 'b' 2 are not ready"),
        ([(f"m{number}", "1", "") for number in range(5)], "'m0' 1, 'm1' 1, 'm2' 1 and 2 more are"),
        ([], "a model cannot run at the moment"),
    ],
)
def test_a_server_with_failed_models_is_not_ready_and_names_them(failed, why):
    engine = begun()
    engine.catalog.set_state("a", 1, ModelState.UNAVAILABLE, "broken")
    state, reason = state_of(engine, failed, 0)
    assert state == "not ready"
    assert reason.startswith(why)


def test_a_server_that_could_not_start_or_has_nothing_is_not_ready():
    engine = begun()
    engine.readiness.fail()
    assert state_of(engine, [], 0)[0] == "not ready"
    engine = Engine()
    engine.readiness.finish_loading()
    assert state_of(engine, [], 0) == ("not ready", "there is no model")
