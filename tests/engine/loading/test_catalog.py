"""Which versions there are, and which of them answer."""

import pytest

from inferd.config.model import ModelConfig
from inferd.core.metadata import IndexEntry, ModelState
from inferd.core.rows import Joining
from inferd.engine.loading.catalog import NO_VERSION, Catalog
from inferd.engine.serving.served import Served
from inferd.errors import ModelNotFound


class NoScheduler:
    """Runs nothing."""


def served(version, name="m", **parameters):
    return Served(ModelConfig(name, parameters=parameters), version, "a platform", NoScheduler())


def test_several_versions_begin_to_answer_at_the_same_moment():
    catalog = Catalog()
    catalog.add(served(1), served(10), served(9))
    assert list(catalog.models["m"].ready) == ["1", "9", "10"]
    assert catalog.models["m"].default.version == "10"


def test_a_model_whose_versions_are_known_loses_the_row_without_one():
    catalog = Catalog()
    catalog.set_state("m", NO_VERSION, ModelState.UNAVAILABLE, "no config")
    assert list(catalog.index()) == [IndexEntry("m", "", ModelState.UNAVAILABLE, "no config")]
    catalog.add(served(1))
    assert list(catalog.index()) == [IndexEntry("m", "1", ModelState.READY)]


def test_what_a_model_ran_with_is_known_until_something_else_was_read():
    catalog, read = Catalog(), ModelConfig("m", backend="read")
    catalog.describe("m", read)
    assert not catalog.models
    catalog.set_state("m", 1, ModelState.LOADING)
    catalog.describe("m", read)
    assert catalog.models["m"].config is read
    ran = served(1)
    catalog.add(ran)
    catalog.describe("m", read)
    assert catalog.models["m"].config is ran.config
    catalog.set_state("m", 1, ModelState.UNAVAILABLE, "unloaded")
    catalog.describe("m", None)
    assert catalog.models["m"].config is ran.config


def test_a_version_that_could_not_be_replaced_says_why_until_it_is():
    catalog = Catalog()
    catalog.add(served(1))
    catalog.note("m", 1, "no config")
    assert list(catalog.index()) == [IndexEntry("m", "1", ModelState.READY, "no config")]
    assert catalog.is_sound()
    catalog.add(served(1))
    assert list(catalog.index()) == [IndexEntry("m", "1", ModelState.READY)]


def test_the_row_of_a_version_says_why_its_requests_are_never_joined():
    catalog, alone, joined, fixed = Catalog(), served(1), served(2), served(3)
    alone.joining = Joining("alone", "CumSum 'c' adds up rows")
    joined.joining = Joining("joined", "its rows are independent")
    catalog.add(alone, joined, fixed)
    reasons = [row.reason for row in catalog.index()]
    assert reasons == ["its requests are not joined: CumSum 'c' adds up rows", "", ""]


def test_a_catalog_is_sound_when_what_is_not_ready_is_excused():
    catalog = Catalog()
    catalog.add(served(1))
    catalog.set_state("m", 2, ModelState.UNAVAILABLE, "broken", is_excused=True)
    assert catalog.is_sound()
    catalog.set_state("m", 2, ModelState.UNAVAILABLE, "broken")
    assert not catalog.is_sound()


def test_what_serves_is_told_of_all_models_of_one_or_of_one_version():
    catalog = Catalog()
    first, third, other = served(1), served(3), served(2, "a")
    catalog.add(third, first)
    catalog.add(other)
    catalog.set_state("m", 4, ModelState.UNAVAILABLE, "broken")
    assert catalog.served() == [other, first, third]
    assert catalog.served("m") == [first, third]
    assert catalog.served("m", "v3") == [third]
    for name, version in (("nope", ""), ("m", "9"), ("nope", "1")):
        with pytest.raises(ModelNotFound):
            catalog.served(name, version)


def test_a_version_may_have_a_name_beside_its_number():
    catalog = Catalog()
    named, other = served(1, inferd_version_name="v0.1.0"), served(2)
    catalog.add(named, other)
    for version in ("v0.1.0", "1", "v1"):
        assert catalog.find("m", version) is named
        assert catalog.is_ready("m", version)
    assert catalog.served("m", "v0.1.0") == [named]
    assert catalog.find("m", "") is other
    with pytest.raises(ModelNotFound, match=r"'v0\.1\.1': .*, known versions of model 'm': 1, 2"):
        catalog.find("m", "v0.1.1")


def test_clearing_returns_what_served():
    catalog = Catalog()
    one, other = served(1), served(2, "n")
    catalog.add(one)
    catalog.add(other)
    assert catalog.clear() == [one, other]
    assert catalog.names() == []
    assert catalog.models == {}


class Stuck:
    """The instances of a version that does not run."""

    unavailable_reason = "no weights; the next start is in 2 s"

    @property
    def remote(self):
        return [self]


def test_an_ensemble_is_ready_only_while_its_steps_can_run():
    step, inner, outer = served(1, "s"), served(1, "i"), served(1, "o")
    inner.steps, outer.steps = (step,), (inner,)
    catalog = Catalog()
    catalog.add(step)
    catalog.add(inner)
    catalog.add(outer)
    assert catalog.is_ready("o", "")
    step.instances = Stuck()
    assert [catalog.is_ready(name, "") for name in "sio"] == [False] * 3
    inside = f"model 's', which it calls, cannot run: {Stuck.unavailable_reason}"
    assert list(catalog.index()) == [
        IndexEntry("i", "1", ModelState.UNAVAILABLE, inside),
        IndexEntry(
            "o", "1", ModelState.UNAVAILABLE, f"model 'i', which it calls, cannot run: {inside}"
        ),
        IndexEntry("s", "1", ModelState.UNAVAILABLE, Stuck.unavailable_reason),
    ]
    step.instances = None
    assert catalog.is_ready("o", "")


def test_whoever_wants_to_know_is_told_of_each_version_that_begins_to_serve():
    catalog, heard = Catalog(), []
    catalog.on_add.append(heard.append)
    one, other = served(1), served(2)
    catalog.add(one, other)
    catalog.set_state("bad", 1, ModelState.UNAVAILABLE, "broken")
    assert heard == [one, other]
