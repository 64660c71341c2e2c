"""Checks how the tensors of an ensemble are connected, as far as that needs no look at its models.

A tensor is written once, by a client or by an output of a step, and read by any number of steps;
one that is never written or never read is a mistake (Triton, Ensemble Models).
"""

from collections.abc import Iterator, Sequence

from inferd.config.model import EnsembleStep, ModelConfig


def wiring_complaints(config: ModelConfig, steps: Sequence[EnsembleStep]) -> Iterator[str]:
    """Yield what is wrong with the maps of an ensemble's `steps`, with the path of the data."""
    writers: dict[str, str] = {}
    for tensor, place in _written(config, steps):
        if tensor in writers:
            yield f"tensor '{tensor}' is written twice: by {writers[tensor]} and by {place}"
        writers[tensor] = place
    read = set()
    for tensor, place in _read(config, steps):
        if tensor not in writers:
            yield f"no step writes tensor '{tensor}' → {place}"
        read.add(tensor)
    for tensor, place in writers.items():
        if tensor not in read:
            yield f"nobody reads {place} → tensor '{tensor}'"


def _written(config: ModelConfig, steps: Sequence[EnsembleStep]) -> Iterator[tuple[str, str]]:
    """Yield each tensor that is written, with the place that writes it."""
    for given in config.input:
        yield given.name, f"the ensemble's input '{given.name}'"
    for number, step in enumerate(steps):
        for inner, outer in step.output_map.items():
            yield outer, f"step {number} (model '{step.model_name}') output '{inner}'"


def _read(config: ModelConfig, steps: Sequence[EnsembleStep]) -> Iterator[tuple[str, str]]:
    """Yield each tensor that is read, with the place that reads it."""
    for number, step in enumerate(steps):
        for inner, outer in step.input_map.items():
            yield outer, f"step {number} (model '{step.model_name}') input '{inner}'"
    for wanted in config.output:
        yield wanted.name, f"the ensemble's output '{wanted.name}'"
