"""Opening: puts the instances of a version onto GPUs and CPU cores, and warms them up."""

import logging
import threading
from collections.abc import Callable
from collections.abc import Sequence as Several
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple

from inferd.config.model import ModelConfig
from inferd.config.options.backends import GpuLimits, HostPolicies
from inferd.core.interfaces import Backend, DecoupledInstance, Instance, Opened, Placement
from inferd.core.request import InferRequest, Sequence
from inferd.engine.loading.scheduling import opened
from inferd.engine.serving.instances import kind_of
from inferd.errors import BackendFailed, InferdError, InvalidConfig, Unavailable, foreign_text
from inferd.repository.warmup import Sample, warmup_samples
from inferd.schedulers.execution.cores import cores_of, pinned
from inferd.schedulers.sequence_parts.tensors import Controls, States

log = logging.getLogger("inferd.engine")


class Machine(NamedTuple):
    """What instances can be placed on: GPUs, and CPU cores as `policies` choose them.

    `memory_use` returns the share of a GPU's memory that is in use, None when that is not known;
    when it is above the GPU's entry in `limits`, nothing is opened there. Up to `thread_count`
    instances of a version are opened at once.
    """

    policies: HostPolicies
    limits: GpuLimits
    memory_use: Callable[[int], float | None]
    thread_count: int = 1

    def check_room(self, config: ModelConfig, places: Several[Placement]) -> None:
        """Raise Unavailable when a GPU among `places` is too full for one more load."""
        # In a fixed order, so that two loads complain of the same GPU.
        for gpu in sorted({place.device_id for place in places if place.gpu} & self.limits.keys()):
            use, limit = self.memory_use(gpu), self.limits[gpu]
            if use is None:
                log.warning(
                    "model '%s': --model-load-gpu-limit has no effect, GPU %d does not tell how "
                    "much of its memory is in use",
                    config.name,
                    gpu,
                )
            elif use > limit:
                raise Unavailable(
                    f"model '{config.name}': of the memory of GPU {gpu} {use:.3f} is in use, "
                    f"--model-load-gpu-limit allows {limit:g} for a load"
                )

    def cores_of(self, config: ModelConfig, place: Placement) -> frozenset[int]:
        """Return the CPU cores an instance is pinned to; empty: any."""
        where = f"model '{config.name}', instance '{place.name}'"
        policy = self.policies.get(place.host_policy)
        if policy is not None:
            return cores_of(policy, where)
        # Only a policy that a group names; every instance has a default one.
        if any(place.host_policy == group.host_policy for group in config.instance_group):
            log.warning("%s: no --host-policy is called '%s'", where, place.host_policy)
        return frozenset()


def open_all(
    config: ModelConfig,
    backend: Backend,
    open_one: Callable[[Placement], Instance],
    samples: Several[Sample],
    machine: Machine,
    places: Several[Placement],
) -> list[Opened]:
    """Return an open instance of the model of `config` for each of `places` on `machine`.

    `open_one` loads one of them, which answers `samples` before it is used; several are
    loaded side by side, unless the backend opens in turn. When one fails, the others are closed.
    """
    # Before anything is opened: memory that a load takes cannot be had back in time.
    machine.check_room(config, places)
    all_cores = [machine.cores_of(config, place) for place in places]
    openers = [
        partial(_open_on, cores, open_one, place)
        for place, cores in zip(places, all_cores, strict=True)
    ]
    # Frameworks whose loading is not safe in several threads.
    thread_count = 1 if backend.traits.opens_in_turn else machine.thread_count
    instances = open_side_by_side(openers, thread_count)
    with ExitStack() as undo:
        for instance in instances:
            undo.callback(instance.close)
        if config.decoupled and not all(isinstance(i, DecoupledInstance) for i in instances):
            msg = f"model '{config.name}': backend '{config.backend}' runs no decoupled models"
            raise InvalidConfig(msg)
        pairs = [
            opened(config, backend, instance, cores)._replace(kind=kind_of(place))
            for instance, cores, place in zip(instances, all_cores, places, strict=True)
        ]
        # Warm-up runs what requests will run, joined where they are joined.
        together = [pair.together for pair in pairs]
        warm_up(config, instances if config.decoupled else together, samples)
        undo.pop_all()
    return pairs


def _open_on(
    cores: frozenset[int], open_one: Callable[[Placement], Instance], place: Placement
) -> Instance:
    # Threads that a framework starts while loading inherit the processors.
    with pinned(cores):
        return open_one(place)


def open_side_by_side(
    openers: Several[Callable[[], Instance]], thread_count: int
) -> list[Instance]:
    """Return what `openers` open, run by at most `thread_count` threads, this one included.

    When one fails no other is begun, and those that are open are closed once all have ended; its
    error is raised. The threads are daemons: one that hangs cannot keep the process from ending.
    """
    found: dict[int, Instance] = {}
    failures: dict[int, BaseException] = {}
    numbers = iter(range(len(openers)))
    # An iterator is not for several threads, and a failure must be seen before the next is begun.
    taking = threading.Lock()

    def work() -> None:
        while True:
            with taking:
                # Not begun after a failure: each would be closed again.
                number = -1 if failures else next(numbers, -1)
            if number < 0:
                return
            try:
                found[number] = openers[number]()
            except BaseException as error:  # noqa: BLE001  it is raised in the caller's thread
                failures[number] = error

    count = min(thread_count, len(openers))
    threads = [
        # This thread is the last one, so that one instance needs no thread at all.
        threading.Thread(target=work, name="inferd-load", daemon=True)
        for _ in range(count - 1)
    ]
    for thread in threads:
        thread.start()
    work()
    for thread in threads:
        thread.join()
    if failures:
        with ExitStack() as undo:
            for instance in found.values():
                undo.callback(instance.close)
            # The error of the first instance, which does not depend on which thread was faster.
            raise failures[min(failures)]
    return [found[number] for number in range(len(openers))]


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
        raise BackendFailed(f"{len(answers)} answers to {len(requests)} requests")
    for answer in answers:
        if isinstance(answer, InferdError):
            raise answer
