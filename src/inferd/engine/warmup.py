"""Warming up: every instance answers the configuration's samples before its model is ready."""

from collections.abc import Sequence

from inferd.config.model import ModelConfig
from inferd.core.interfaces import DecoupledInstance, Instance
from inferd.core.request import InferRequest
from inferd.errors import BackendFailed, InferdError, foreign_text
from inferd.repository.warmup import Sample


def warm_up(config: ModelConfig, instances: Sequence[Instance], samples: Sequence[Sample]) -> None:
    """Run all `samples` on each of `instances`. Raises BackendFailed when one of them fails."""
    for sample in samples:
        for instance in instances:
            for _ in range(sample.count):
                try:
                    _run(config, instance, sample.requests)
                except Exception as error:
                    told = error.message if isinstance(error, InferdError) else foreign_text(error)
                    msg = f"model '{config.name}' fails on its model_warmup '{sample.name}': {told}"
                    raise BackendFailed(msg) from error


def _run(config: ModelConfig, instance: Instance, requests: Sequence[InferRequest]) -> None:
    sequence = config.sequence_batching
    has_rounds = sequence is not None and sequence.iterative_sequence
    if config.decoupled and not has_rounds and isinstance(instance, DecoupledInstance):
        for request in requests:
            for _ in instance.stream(request):
                pass
        return
    answers = instance.execute(requests)
    if len(answers) != len(requests):
        msg = f"{len(answers)} answers to {len(requests)} requests"
        raise BackendFailed(msg)
    for answer in answers:
        if isinstance(answer, InferdError):
            raise answer
