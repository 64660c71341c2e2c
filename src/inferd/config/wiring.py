"""Checks how the tensors of an ensemble are connected, as far as that needs no look at its models.

A tensor is written once, by a client or by an output of a step, and read by any number of steps;
one that is never written or never read is a mistake (Triton, Ensemble Models).
"""

from collections.abc import Iterator, Sequence

from inferd.config.model import EnsembleStep, ModelConfig
from inferd.config.rules.complaint import Complaint
from inferd.errors import FieldPath

_Link = tuple[str, str, FieldPath]
"""A tensor, the place that reads or writes it in words, and the path of the field that says so."""

_STEPS = ("ensemble_scheduling", "step")


def wiring_complaints(config: ModelConfig, steps: Sequence[EnsembleStep]) -> Iterator[Complaint]:
    """Yield what is wrong with the maps of an ensemble's `steps`, with the path of the data."""
    writers: dict[str, tuple[str, FieldPath]] = {}
    for tensor, place, path in _written(config, steps):
        if tensor in writers:
            before, _ = writers[tensor]
            text = f"tensor '{tensor}' is written twice: by {before} and by {place}"
            yield Complaint(text, path)
        # The last one counts from here on, so that a third writer is told beside its neighbour.
        writers[tensor] = place, path
    read = set()
    # All steps are written first: steps may stand in any order, the data's flow decides.
    for tensor, place, path in _read(config, steps):
        if tensor not in writers:
            yield Complaint(f"no step writes tensor '{tensor}' → {place}", path)
        read.add(tensor)
    for tensor, (place, path) in writers.items():
        if tensor not in read:
            yield Complaint(f"nobody reads {place} → tensor '{tensor}'", path)


def _written(config: ModelConfig, steps: Sequence[EnsembleStep]) -> Iterator[_Link]:
    """Yield each tensor that is written, with the place that writes it."""
    for number, given in enumerate(config.input):
        yield given.name, f"the ensemble's input '{given.name}'", ("input", number)
    for number, step in enumerate(steps):
        for inner, outer in step.output_map.items():
            place = f"step {number} (model '{step.model_name}') output '{inner}'"
            yield outer, place, (*_STEPS, number, "output_map", inner)


def _read(config: ModelConfig, steps: Sequence[EnsembleStep]) -> Iterator[_Link]:
    """Yield each tensor that is read, with the place that reads it."""
    for number, step in enumerate(steps):
        for inner, outer in step.input_map.items():
            place = f"step {number} (model '{step.model_name}') input '{inner}'"
            yield outer, place, (*_STEPS, number, "input_map", inner)
    for number, wanted in enumerate(config.output):
        yield wanted.name, f"the ensemble's output '{wanted.name}'", ("output", number)
