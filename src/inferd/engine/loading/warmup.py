"""Warm-up: every instance answers the configuration's samples before its model is ready."""

from collections.abc import Sequence as Several
from pathlib import Path

from inferd.config.model import ModelConfig
from inferd.core.interfaces import DecoupledInstance, Instance
from inferd.core.request import InferRequest, Sequence
from inferd.errors import BackendFailed, InferdError, foreign_text
from inferd.repository.warmup import Sample, warmup_samples
from inferd.schedulers.sequence_parts.controls import Controls
from inferd.schedulers.sequence_parts.states import States


def samples_of(folder: Path, config: ModelConfig) -> list[Sample]:
    """Return the samples of the model in `folder`, with all inputs that its instances expect.

    For a sequence model, each sample is a sequence of one request: controls and states that it does
    not name are what the scheduler would give that request. Raises InvalidConfig.
    """
    samples = warmup_samples(folder, config)
    if not samples or config.sequence_batching is None:
        return samples
    controls = Controls(config)
    # Any id will do, of the type that the control wants.
    only = Sequence(controls.id_of(1), start=True, end=True)
    given = [*controls.of(only), *States(config, folder).initial]
    for request in (request for sample in samples for request in sample.requests):
        named = {tensor.name for tensor in request.inputs}
        request.inputs += [tensor for tensor in given if tensor.name not in named]
    return samples


def warm_up(config: ModelConfig, instances: Several[Instance], samples: Several[Sample]) -> None:
    """Run all `samples` on each of `instances`. Raises BackendFailed when one fails."""
    # All instances, because each allocates and compiles for itself.
    for sample in samples:
        for instance in instances:
            for _ in range(sample.count):
                try:
                    _run(config, instance, sample.requests)
                except Exception as error:
                    why = error.message if isinstance(error, InferdError) else foreign_text(error)
                    msg = f"model '{config.name}' fails on its model_warmup '{sample.name}': {why}"
                    raise BackendFailed(msg) from error


def _run(config: ModelConfig, instance: Instance, requests: Several[InferRequest]) -> None:
    sequence = config.sequence_batching
    has_rounds = sequence is not None and sequence.iterative_sequence
    if config.decoupled and not has_rounds and isinstance(instance, DecoupledInstance):
        for request in requests:
            for one in instance.stream(request):
                if one.error is not None:
                    raise one.error
        return
    answers = instance.execute(requests)
    if len(answers) != len(requests):
        msg = f"{len(answers)} answers to {len(requests)} requests"
        raise BackendFailed(msg)
    for answer in answers:
        if isinstance(answer, InferdError):
            raise answer
