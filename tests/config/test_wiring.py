"""What is told of an ensemble whose tensors are not tied together."""

import pytest

from inferd.config.model import (
    EnsembleStep,
    ModelConfig,
    ModelInput,
    ModelOutput,
)
from inferd.config.wiring import wiring_complaints
from inferd.tensor.dtype import DataType


def complaints(*links, takes=("X",), gives=("Y",)):
    """Return what is wrong with an ensemble whose steps read and write one tensor each."""
    steps = [EnsembleStep("m", -1, {"I": reads}, {"O": writes}) for reads, writes in links]
    config = ModelConfig(
        "e",
        input=tuple(ModelInput(name, DataType.FP32, (1,)) for name in takes),
        output=tuple(ModelOutput(name, DataType.FP32, (1,)) for name in gives),
    )
    return [one.text for one in wiring_complaints(config, steps)]


@pytest.mark.parametrize(
    "links", [[("X", "Y")], [("t", "Y"), ("X", "t")], [("X", "t"), ("t", "Y"), ("t", "Z")]]
)
def test_what_is_written_once_and_read_is_sound(links):
    assert complaints(*links, gives=("Y", "Z")[: len(links) - 1 or 1]) == []


@pytest.mark.parametrize(
    ("text", "links"),
    [
        (
            "tensor 'Y' is written twice: by step 0 (model 'm') output 'O' and by "
            "step 1 (model 'm') output 'O'",
            [("X", "Y"), ("X", "Y")],
        ),
        (
            "tensor 'X' is written twice: by the ensemble's input 'X' and by step 0 (model 'm') "
            "output 'O'",
            [("X", "X"), ("X", "Y")],
        ),
        ("no step writes tensor 't' → step 1 (model 'm') input 'I'", [("X", "Y"), ("t", "X")]),
        ("no step writes tensor 'Y' → the ensemble's output 'Y'", [("X", "t"), ("t", "X")]),
        ("nobody reads step 1 (model 'm') output 'O' → tensor 't'", [("X", "Y"), ("X", "t")]),
    ],
)
def test_what_is_not_tied_together_is_reported_with_its_way(text, links):
    assert text in complaints(*links)


def test_an_input_nobody_reads_is_reported():
    reported = complaints(("X", "Y"), takes=("X", "W"))
    assert reported == ["nobody reads the ensemble's input 'W' → tensor 'W'"]


def test_an_ensemble_without_steps_leaves_its_tensors_untied():
    config = ModelConfig("e", output=(ModelOutput("Y", DataType.FP32, (1,)),))
    reported = [one.text for one in wiring_complaints(config, ())]
    assert reported == ["no step writes tensor 'Y' → the ensemble's output 'Y'"]
