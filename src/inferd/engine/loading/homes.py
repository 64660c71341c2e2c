"""Homes: decides in which processes of the server the instances of a version are.

A model in the server's own process is copied to each. Worker processes are spread over them, so
that a server has as many as `instance_group` says. What there is one of, a GPU or a resource of the
rate limiter, is used by one process. The requests of a sequence all run in the same one. What a
queue holds is shared out; one too short for that is in one process.

A version that crashed the server runs in a worker. Loads in the server are marked, to tell.
"""

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from hashlib import blake2b
from math import ceil
from typing import Literal

from inferd.config.model import ModelConfig, QueuePolicy
from inferd.config.parameter import MAX_SHOWN
from inferd.config.parameter_names import PLACEMENT, PROCESS
from inferd.core.interfaces import Backend, Placement, WorkerBackend, is_in_worker
from inferd.core.processes import Processes
from inferd.engine.serving.served import Served
from inferd.errors import InvalidConfig
from inferd.forward.exchange import Exchange
from inferd.forward.home import Home, Kind
from inferd.forward.owner import model_key, owner_of
from inferd.forward.scheduler import ForwardScheduler
from inferd.observe.crash.mark import ModelMarks

_LIMITER_KEY = b"rate_limiter"


def home_of(
    config: ModelConfig,
    backend: Backend,
    places: Sequence[Placement],
    processes: Processes,
    *,
    is_limited: bool,
    is_isolated: bool = False,
) -> Home:
    """Return where the instances of a version are, of which there is one for each of `places`.

    `is_limited`: the server limits rates. Models with a rate limiter share its resources, so they
    are all in the same process. One that `is_isolated` is where it would be otherwise: processes
    that have not been replaced since it crashed do not know. Raises InvalidConfig for a PLACEMENT
    that is not possible, even in a server that is one process.
    """
    word = _word_of(config)
    has_limits = is_limited and any(place.rate_limiter is not None for place in places)
    # Each process would have its own resources, and together more than there are.
    if has_limits and word in ("copy", "spread"):
        msg = f"is {word}, but its rate_limiter shares resources, which are in one process"
        raise _refused(config, msg)
    kind: Kind = "copy"
    if word != "auto":
        kind = word
    elif has_limits:
        kind = "single"
    elif not is_isolated and is_in_worker(backend, config):
        kind = "spread"
    elif any(place.gpu for place in places) or _is_queue_short(config, processes.count):
        kind = "single"
    key = _LIMITER_KEY if has_limits else model_key(config.name)
    # The same in each process without asking: the name's hash decides
    # (docs/decisions/0034-owners.md).
    first = owner_of(key, range(processes.count))
    by_sequence = config.sequence_batching is not None
    return Home(kind, first, processes.number, processes.count, by_sequence)


def share_of_queues(config: ModelConfig, home: Home, instance_count: int) -> ModelConfig:
    """Return `config` with queues that together hold as many requests as it says.

    Each process that has some of the version's `instance_count` instances has a queue.
    """
    batching, owner_count = config.dynamic_batching, len(home.owners(instance_count))
    if batching is None or owner_count == 1:
        return config

    def share(policy: QueuePolicy) -> QueuePolicy:
        # Rounded up: together rather one more than one fewer.
        return replace(policy, max_queue_size=ceil(policy.max_queue_size / owner_count))

    default = batching.default_queue_policy
    batching = replace(
        batching,
        default_queue_policy=share(default) if default is not None else None,
        priority_queue_policy={
            level: share(policy) for level, policy in batching.priority_queue_policy.items()
        },
    )
    return replace(config, dynamic_batching=batching)


def _is_queue_short(config: ModelConfig, process_count: int) -> bool:
    """Tell whether a queue holds too few requests for each process to have a share of it."""
    batching = config.dynamic_batching
    if batching is None:
        return False
    policies = [batching.default_queue_policy, *batching.priority_queue_policy.values()]
    # 0 is no limit.
    return any(one is not None and 0 < one.max_queue_size < process_count for one in policies)


def check_ensemble(config: ModelConfig) -> None:
    """Raise InvalidConfig for an ensemble that is to be elsewhere than in each process."""
    if (word := _word_of(config)) not in ("auto", "copy"):
        raise _refused(config, f"is {word}, but an ensemble has no instances: its steps have")


def forward(served: Served, home: Home, exchange: Exchange | None) -> None:
    """Have the other processes of the server run what belongs to them of `served`, just loaded."""
    instances = served.instances
    if exchange is None or instances is None or not home.is_forwarded:
        return
    name = served.name, served.version
    # A request runs only where the version takes and gives the same, while processes change one
    # after the other.
    form, check = form_of(served.config), served.responses.check
    scheduler = ForwardScheduler(name, served.scheduler, exchange, home, form, check)
    scheduler.on_left = served.counts.add_left_execution
    served.run_by(scheduler)
    served.is_forwarded = True
    instances.tell_total(scheduler.spread_over)


def form_of(config: ModelConfig) -> bytes:
    """Return bytes that are the same for versions whose requests and answers are alike."""
    said = config.input, config.output, config.max_batch_size, config.decoupled
    # Names from JSON may have lone surrogates.
    return blake2b(repr(said).encode(errors="surrogatepass"), digest_size=8).digest()


def _word_of(config: ModelConfig) -> Literal["auto", "copy", "single", "spread"]:
    match config.parameters.get(PLACEMENT) or "auto":
        case "auto" | "copy" | "single" | "spread" as word:
            return word
        case other:
            what = f"is '{other[:MAX_SHOWN]}', expected auto, copy, single or spread"
            raise _refused(config, what)


def _refused(config: ModelConfig, what: str) -> InvalidConfig:
    msg = f"model '{config.name}': parameter {PLACEMENT} {what}"
    return InvalidConfig(msg, ("parameters", PLACEMENT))


log = logging.getLogger("inferd.engine")

WHY_ISOLATED = "it runs in a worker, because the server crashed twice while it ran"


def isolated(config: ModelConfig, version: int, backend: Backend) -> ModelConfig | None:
    """Return the configuration of a version that is to run in a worker, None if it cannot."""
    name = config.name
    if not isinstance(backend, WorkerBackend):
        why = f"backend '{config.backend}' has no workers"
    # Who has said where it runs has a reason.
    elif PROCESS in config.parameters:
        why = f"its configuration says {PROCESS} {config.parameters[PROCESS]}"
    else:
        log.warning("model '%s' version %d: %s", name, version, WHY_ISOLATED)
        return replace(config, parameters=config.parameters | {PROCESS: "worker"})
    text = (
        "model '%s' version %d: the server crashed twice while it ran; it stays there, because %s"
    )
    log.warning(text, name, version, why)
    return None


@contextmanager
def marked_load(config: ModelConfig, backend: Backend, marks: ModelMarks) -> Iterator[None]:
    """Mark that this thread loads a version, unless that happens in a worker."""
    if is_in_worker(backend, config):
        yield
        return
    mark = marks.claim(threading.get_ident(), is_load=True)
    mark.note.value = ""
    try:
        yield
    finally:
        marks.release(mark)
