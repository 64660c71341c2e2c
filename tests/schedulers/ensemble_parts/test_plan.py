"""The order of an ensemble's steps, and what is told of one that cannot work."""

import pytest

from inferd.config.model import (
    EnsembleScheduling,
    EnsembleStep,
    ModelConfig,
    ModelInput,
    ModelOutput,
)
from inferd.core.request import WantedOutput
from inferd.errors import InvalidConfig
from inferd.schedulers.ensemble_parts.plan import EnsemblePlan
from inferd.tensor.dtype import DataType

FP32, INT32 = DataType.FP32, DataType.INT32


def model(name="m", *, takes=("I",), gives=("O",), of=FP32, dims=(2,), batch=0, **said):
    return ModelConfig(
        name,
        max_batch_size=batch,
        input=tuple(ModelInput(each, of, dims) for each in takes),
        output=tuple(ModelOutput(each, of, dims) for each in gives),
        **said,
    )


def plan(*steps, e=None):
    """Plan an ensemble; a step is its model, input map and output map."""
    e = e or model("e", takes=("X",), gives=("Y",))
    called = tuple(EnsembleStep(one.name, -1, takes, gives) for one, takes, gives in steps)
    config = ModelConfig(
        "e",
        input=e.input,
        output=e.output,
        max_batch_size=e.max_batch_size,
        ensemble_scheduling=EnsembleScheduling(called),
    )
    return EnsemblePlan(config, [one for one, _, _ in steps])


def link(reads, writes, called=None):
    """A step with one input and one output."""
    return called or model(), {"I": reads}, {"O": writes}


def complaint(*steps, e=None):
    with pytest.raises(InvalidConfig) as caught:
        plan(*steps, e=e)
    return caught.value.message.removeprefix("ensemble 'e': ")


def numbers(steps):
    return [step.number for step in steps]


def test_data_decides_the_order():
    assert numbers(plan(link("t", "u"), link("u", "Y"), link("X", "t")).steps) == [2, 0, 1]


def test_steps_that_each_read_from_the_one_before_are_a_chain():
    assert plan(link("X", "Y")).is_chain
    assert plan(link("t", "u"), link("u", "Y"), link("X", "t")).is_chain
    add = model(takes=("A", "B"))
    assert plan(link("X", "t"), (add, {"A": "X", "B": "t"}, {"O": "Y"})).is_chain
    two = model("e", takes=("X",), gives=("Y", "Z"))
    assert not plan(link("X", "Y"), link("X", "Z"), e=two).is_chain
    assert not plan(link("X", "t"), link("t", "Y"), link("t", "Z"), e=two).is_chain


def test_one_tensor_may_be_read_by_many():
    add = model(takes=("A", "B"), gives=("O", "unused"))
    found = plan(link("X", "t"), (add, {"A": "t", "B": "t"}, {"O": "Y"}))
    assert numbers(found.steps) == [0, 1]
    assert [one.name for one in found.steps[1].wanted] == ["O"]


def test_a_step_gets_its_inputs_in_its_models_order():
    names = ("B", "A", "D", "C")
    found = plan((model(takes=names), dict.fromkeys("ABCD", "X"), {"O": "Y"}))
    assert found.steps[0].inputs == tuple((name, "X") for name in names)


def test_only_the_steps_an_output_hangs_on_are_needed():
    e = model(takes=("X",), gives=("Y", "Z"))
    found = plan(link("X", "t"), link("t", "Y"), link("X", "Z"), e=e)
    assert numbers(found.needed([])) == [0, 2, 1]
    assert numbers(found.needed([WantedOutput("Y"), WantedOutput("Z")])) == [0, 2, 1]
    assert numbers(found.needed([WantedOutput("Y")])) == [0, 1]
    assert numbers(found.needed([WantedOutput("Z")])) == [2]


def test_version_numbers_are_kept_and_the_latest_is_none():
    config = ModelConfig(
        "e",
        input=(ModelInput("X", FP32, (2,)),),
        output=(ModelOutput("Y", FP32, (2,)),),
        ensemble_scheduling=EnsembleScheduling(
            (
                EnsembleStep("m", 3, {"I": "X"}, {"O": "t"}),
                EnsembleStep("m", -1, {"I": "t"}, {"O": "Y"}),
            )
        ),
    )
    assert [step.version for step in EnsemblePlan(config, [model(), model()]).steps] == ["3", ""]


@pytest.mark.parametrize("dims", [(2,), (3, 4)])
def test_a_tensor_whose_rank_nobody_knows_fits_until_it_runs(dims):
    e = model("e", takes=("X",), gives=("Y",), dims=dims)
    taken = ModelInput("I", FP32, (-1,), is_unranked=True)
    given = ModelOutput("O", FP32, (-1,), is_declared=True)
    unknown = ModelConfig("m", input=(taken,), output=(given,))
    assert numbers(plan(link("X", "t", unknown), link("t", "Y", unknown), e=e).steps) == [0, 1]


OPTIONAL = ModelConfig(
    "m",
    input=(ModelInput("I", FP32, (2,)), ModelInput("J", FP32, (2,), optional=True)),
    output=(ModelOutput("O", FP32, (2,)),),
)
TWO = ModelConfig("e", input=(*OPTIONAL.input,), output=(ModelOutput("Y", FP32, (2,)),))


def test_an_optional_input_need_not_be_mapped():
    assert numbers(plan((OPTIONAL, {"I": "X"}, {"O": "Y"})).steps) == [0]


def test_an_optional_tensor_may_be_read_by_an_optional_input():
    assert plan((OPTIONAL, {"I": "I", "J": "J"}, {"O": "Y"}), e=TWO).steps


COMPLAINTS = [
    (
        "step 0 (model 'm'), which is to read 'X', has no input 'Q'",
        [(model(), {"Q": "X"}, {"O": "Y"})],
    ),
    (
        "step 0 (model 'm'), which is to write 'Y', has no output 'Q'",
        [(model(), {"I": "X"}, {"Q": "Y"})],
    ),
    (
        "step 0 (model 'm') needs input 'B', its input_map has none",
        [(model(takes=("A", "B")), {"A": "X"}, {"O": "Y"})],
    ),
    (
        "datatypes differ: the ensemble's input 'X', FP32 [2] → tensor 'X' → "
        "step 0 (model 'n') input 'I', INT32 [2]",
        [link("X", "Y", model("n", of=INT32))],
    ),
    (
        "shapes do not fit: step 0 (model 'm') output 'O', FP32 [2] → tensor 't' → "
        "step 1 (model 'n') input 'I', FP32 [-1, 3]; the ensemble has no batch dim, "
        "its max_batch_size is 0",
        [link("X", "t"), link("t", "Y", model("n", batch=4, dims=(3,)))],
    ),
    (
        "shapes do not fit: the ensemble's input 'X', FP32 [2] → tensor 'X' → "
        "step 0 (model 'n') input 'I', FP32 [-1, -1, 2]; the ensemble has no batch dim, "
        "its max_batch_size is 0",
        [link("X", "Y", model("n", batch=4, dims=(-1, 2)))],
    ),
]


@pytest.mark.parametrize(("text", "steps"), COMPLAINTS)
def test_what_cannot_work_is_told_with_its_way(text, steps):
    assert complaint(*steps) == text


def test_a_required_input_may_read_what_is_optional():
    assert plan((OPTIONAL, {"I": "J", "J": "I"}, {"O": "Y"}), e=TWO).steps


def test_a_circle_is_drawn_in_the_direction_of_the_data():
    add = model("add", takes=("A", "B"))
    text = complaint(
        (add, {"A": "X", "B": "u"}, {"O": "t"}),
        link("t", "s", model("b")),
        link("s", "u", model("c")),
        link("u", "Y"),
    )
    assert text == (
        "its steps wait for each other: step 0 (model 'add') → 't' → step 1 (model 'b') → 's' → "
        "step 2 (model 'c') → 'u' → step 0 (model 'add')"
    )


def test_a_circle_that_others_wait_for_is_drawn_alone():
    add = model("add", takes=("A", "B"))
    steps = [link("t", "Y"), (add, {"A": "X", "B": "t"}, {"O": "t"})]
    assert complaint(*steps).endswith(": step 1 (model 'add') → 't' → step 1 (model 'add')")


# --- batches ---


def test_a_batch_dim_fits_a_variable_one():
    whole = model("whole", dims=(-1, 2))
    e = model(takes=("X",), gives=("Y",), batch=8)
    assert plan(link("X", "t", whole), link("t", "Y", model(batch=8)), e=e).steps


@pytest.mark.parametrize(
    ("batches", "adds"), [((0, 4, 0), [True, None, False]), ((4, 0, 4), [False, None, True])]
)
def test_tensors_fit_if_they_agree_but_for_the_batch_dim(batches, adds):
    own, first, last = batches
    e = model(takes=("X",), gives=("Y",), batch=own)
    found = plan(link("X", "t", model(batch=first)), link("t", "Y", model(batch=first)), e=e)
    one, two = found.steps
    ways = [one.batch_dims.get("I"), two.batch_dims.get("I"), found.output_batch_dims.get("Y")]
    assert [way and way.adds for way in ways] == adds
    assert not plan(link("X", "Y", model(batch=last)), e=e).steps[0].batch_dims


def test_an_ensemble_takes_no_larger_batches_than_its_steps():
    e = model(takes=("X",), gives=("Y",), batch=8)
    text = complaint(link("X", "Y", model(batch=4)), e=e)
    assert text == "max_batch_size is 8, but step 0 (model 'm') takes batches of at most 4"


def test_steps_see_the_ensembles_inputs_reshaped():
    e = ModelConfig(
        "e",
        input=(ModelInput("X", FP32, (4,), reshape=(2, 2)),),
        output=(ModelOutput("Y", FP32, (4,), reshape=(2, 2)),),
    )
    found = plan(link("X", "Y", model(dims=(2, 2))), e=e)
    assert found.input_reshapes == {"X": ((4,), (2, 2))}


# --- decoupled steps ---

STREAM = model("s", decoupled=True)


def test_steps_are_staged_by_the_decoupled_ones_before_them():
    add = model("add", takes=("A", "B"))
    found = plan(
        link("X", "t"),
        link("t", "u", STREAM),
        link("t", "v"),
        (add, {"A": "u", "B": "v"}, {"O": "w"}),
        link("w", "Y", STREAM),
    )
    stages = found.stages(found.steps)
    assert [numbers(stage.steps) for stage in stages] == [[0, 2], [3], []]
    assert [stage.decoupled and stage.decoupled.number for stage in stages] == [1, 4, None]


def test_so_many_decoupled_steps_may_come_after_each_other():
    def chain(count):
        names = ["X", *(f"t{number}" for number in range(count - 1)), "Y"]
        return [link(names[n], names[n + 1], STREAM) for n in range(count)]

    assert len(plan(*chain(16)).steps) == 16
    assert complaint(*chain(17)) == "more than 16 decoupled steps come after each other"


def test_answers_of_two_decoupled_steps_side_by_side_are_refused():
    add = model("add", takes=("A", "B"))
    text = complaint(
        link("X", "t", STREAM), link("X", "u", STREAM), (add, {"A": "t", "B": "u"}, {"O": "Y"})
    )
    assert text == (
        "step 2 (model 'add') is made from two decoupled models: step 0 (model 's') and "
        "step 1 (model 's'), whose answers do not belong together"
    )
    e = model(takes=("X",), gives=("Y", "Z"))
    text = complaint(link("X", "Y", STREAM), link("X", "Z", STREAM), e=e)
    assert text.startswith("the answer is made from two decoupled models")
