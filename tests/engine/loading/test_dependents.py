"""Which ensembles need which models."""

import pytest

from inferd.config.model import EnsembleScheduling, EnsembleStep, ModelConfig
from inferd.engine.loading.ensemble import MAX_NESTING, Dependents, check_chain, needs_of
from inferd.errors import LoadFailed


def test_a_model_needs_the_models_its_steps_call_each_once():
    steps = tuple(EnsembleStep(name) for name in ("b", "a", "b"))
    assert needs_of(ModelConfig("e", ensemble_scheduling=EnsembleScheduling(steps))) == ("b", "a")
    assert needs_of(ModelConfig("m")) == ()
    assert needs_of(None) == ()


def test_who_leaves_tells_whom_nobody_needs_now():
    dependents = Dependents()
    dependents.want("e", ("a", "b", "c"))
    dependents.want("f", ("b",))
    dependents.ask("c")
    assert dependents.of("b") == ["e", "f"]
    assert dependents.leave("e") == ["a"]
    assert dependents.of("a") == []
    assert dependents.leave("f") == ["b"]
    assert dependents.leave("c") == []
    assert dependents.leave("nobody") == []


def test_needs_may_change():
    dependents = Dependents()
    dependents.want("e", ("a",))
    dependents.want("e", ("b",))
    assert (dependents.of("a"), dependents.of("b")) == ([], ["e"])
    dependents.want("e", ())
    assert dependents.of("b") == []


def test_a_chain_that_is_too_long_is_refused():
    chain = tuple(f"e{number}" for number in range(MAX_NESTING))
    check_chain(chain, "m")
    with pytest.raises(LoadFailed, match="'e0' is more than 32 ensembles inside each other"):
        check_chain((*chain, "e"), "m")


def test_a_chain_that_closes_is_refused():
    check_chain(("a", "b"), "c")
    with pytest.raises(LoadFailed, match="ensemble 'b' calls itself: b → c → b"):
        check_chain(("a", "b", "c"), "b")


def nested(count):
    """Ensembles e0 to e`count - 1`, each calling the next."""
    dependents = Dependents()
    for number in range(count):
        dependents.want(f"e{number}", (f"e{number + 1}",))
    return dependents


def test_who_would_call_itself_by_way_of_others_is_told_the_way():
    dependents = nested(3)
    dependents.check("e3", ("m",))
    with pytest.raises(LoadFailed, match="calls itself: e"):
        dependents.check("e3", ("m", "e0"))
    with pytest.raises(LoadFailed, match="'m' calls itself: m → m"):
        dependents.check("m", ("m",))


def test_ensembles_above_and_below_count_as_inside_each_other():
    most = nested(MAX_NESTING)  # the last one calls e32, no ensemble so far
    most.check("e32", ())
    message = "'e0' is more than 32 ensembles inside each other"
    with pytest.raises(LoadFailed, match=message):
        most.check("e32", ("m",))
    with pytest.raises(LoadFailed, match="'top' is more than 32 ensembles inside each other"):
        most.check("top", ("e0",))


def test_many_ways_to_the_same_models_are_checked_in_no_time():
    dependents = Dependents()
    for number in range(MAX_NESTING - 1):
        for side in "ab":
            dependents.want(f"{side}{number}", (f"a{number + 1}", f"b{number + 1}"))
    dependents.check("top", ("a0", "b0"))
