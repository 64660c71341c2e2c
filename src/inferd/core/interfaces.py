"""The plugs: what a backend, one loaded copy of a model, and a scheduler must offer."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

import msgspec

from inferd.config.model import ModelConfig, RateLimiter
from inferd.core.load import LoadRequest, UnloadRequest
from inferd.core.request import InferRequest, InferResponse
from inferd.errors import InferdError
from inferd.observe.custom import CustomMetrics

Answer = InferResponse | InferdError
Outcome = Sequence[Answer] | InferdError
"""What became of several requests: an answer for each, or one error for all."""


def always() -> bool:
    """Return True."""
    return True


class ModelFiles(msgspec.Struct, frozen=True):
    """Where one version of a model lies on disk.

    `folder` is the model's folder, `version_folder` the numbered one inside it, `file` the model
    file or folder itself (default_model_filename resolved). For a bare file served without a
    repository all three still point at real places: the file and the folder that holds it.

    `is_wanted` tells, in any thread, whether anybody waits still for the load they are read for.
    """

    folder: Path
    version: int
    version_folder: Path
    file: Path
    is_wanted: Callable[[], bool] = always


class Placement(msgspec.Struct, frozen=True):
    """Which device one instance runs on; `device_id` counts GPUs, 0 on the CPU.

    `rate_limiter` is what it needs before it may run, if anything. `host_policy` names the policy
    that says which processors it works on. `by_model`: the model itself chooses its devices.
    """

    name: str
    gpu: bool = False
    device_id: int = 0
    rate_limiter: RateLimiter | None = None
    host_policy: str = "cpu"
    by_model: bool = False

    @property
    def kind(self) -> str:
        """What Triton tells models in Python of it."""
        if self.by_model:
            return "MODEL"
        return "GPU" if self.gpu else "CPU"


class Instance(Protocol):
    """One loaded copy of a model."""

    def execute(self, requests: Sequence[InferRequest]) -> Sequence[InferResponse | InferdError]:
        """Run `requests` and return one answer, or the error it failed with, for each, in order.

        Called by one thread at a time, unless the backend says `concurrent`. Inputs have been
        checked against the model's configuration. A response holds the model's outputs; the ones
        nobody asked for may be left out, more than asked are dropped later. Any exception fails
        all of `requests`. One that can tell its own work from the framework's sets `computing_ns`
        and `computed_ns` of each request. Requests, responses and tensors are these classes, not
        subclasses, and their fields have exactly the types they are declared with: where inferd is
        compiled nothing else can be said, and everywhere else it is refused, too.

        A model with iterative sequences may answer with a Round, and is given the request again;
        it is asked here even if it is decoupled.
        """
        ...

    def close(self) -> None:
        """Free what the instance holds. Called once.

        Nothing runs on it any more, unless an execution did not end in the time an unload waits:
        then this is called while it runs, from another thread, and should make it end.
        """
        ...


@runtime_checkable
class DecoupledInstance(Instance, Protocol):
    """An instance whose model answers a request any number of times."""

    def stream(self, request: InferRequest) -> Iterator[InferResponse]:
        """Yield the answers of `request`, in a worker thread.

        The generator is closed when the client has gone; it then stops at its next yield.
        """
        ...


@runtime_checkable
class CancellableInstance(Instance, Protocol):
    """An instance whose executions may be told that nobody waits for them any more."""

    def cancel(self, requests: Sequence[InferRequest]) -> None:
        """Note that nobody waits for the answers of `requests`, if they run; on the event loop."""
        ...


@runtime_checkable
class AsyncInstance(Instance, Protocol):
    """An instance that works elsewhere, and tells the event loop when it has answers.

    Its methods but `execute` are called on the event loop. It says that it `is_free` when it takes
    an execution, and how many it has by `running_count`; `trouble` is why it will not for some
    time, "" otherwise. With `retries` requests that were lost with it may run once more. It calls
    `on_change` whenever one of these changes.
    """

    is_free: bool
    running_count: int
    trouble: str
    retries: bool
    on_change: Callable[[], None]

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Work for `loop` from now on, where this is called; called again it does nothing."""
        ...

    def begin(self, requests: Sequence[InferRequest], finish: Callable[[Outcome], None]) -> None:
        """Run `requests`, and call `finish` on the event loop when all have their answers."""
        ...

    def cancel(self, requests: Sequence[InferRequest]) -> None:
        """Note that nobody waits for the answers of `requests` any more."""
        ...

    def begin_stream(
        self, request: InferRequest, deliver: Callable[[Answer | None, int], None]
    ) -> int:
        """Run `request` on a decoupled model; return a number for it.

        `deliver` is called on the event loop with each answer and its share of how far the model
        may be ahead, which `credit` gives back, and in the end with None.
        """
        ...

    def credit(self, number: int, share: int) -> None:
        """Let the model be `share` further ahead in the stream of that number."""
        ...

    def cancel_stream(self, number: int) -> None:
        """Want no more answers of that stream."""
        ...

    async def says_ready(self) -> bool:
        """Return what the model says of itself, if it can be asked; else True."""
        ...

    async def closed(self, timeout_s: float) -> None:
        """Wait, after close(), until it has ended; after `timeout_s` make it end."""
        ...


class Flow(Protocol):
    """Answers that are made on another thread, as fast as they are taken."""

    def took_one(self) -> None:
        """Let one more be made; any thread may call this."""
        ...

    def end(self) -> None:
        """Make no more; any thread may call this."""
        ...


@runtime_checkable
class ConcurrentInstance(Instance, Protocol):
    """An instance that runs many requests at once, on an event loop in a thread of its own."""

    def submit(self, request: InferRequest) -> Future[InferResponse]:
        """Begin to run `request` and return what will be its answer; cancelling that ends it."""
        ...

    def flow(
        self, request: InferRequest, put: Callable[[InferResponse | BaseException | None], None]
    ) -> Flow:
        """Have the answers of `request` made and put, then None; or what it failed with, at last.

        `put` is called in the instance's thread.
        """
        ...


class Backend(Protocol):
    """How one framework runs models. `inferd.engine.lookup` finds it by platform or backend name.

    `bounded` promises that an execution always ends by itself, in a time its inputs' sizes
    determine: only then may short ones run on the event loop. An instance that does not keep this
    promise of its backend says so by a `bounded = False` of its own. `concurrent` promises that
    one instance may execute in several threads at once. A backend that also says `joins = True`
    gets the requests of a batch as one, joined along the batch dim, ragged inputs and batch_input
    as the configuration says; others get a batch as several requests. One that is `lax` has models
    whose authors have always been free to leave outputs out and to give them any shape.
    """

    bounded: bool
    concurrent: bool

    def complete(self, files: ModelFiles, config: ModelConfig) -> ModelConfig:
        """Return `config` with the inputs, outputs and max_batch_size the model file tells.

        Raises InvalidConfig when configuration and file contradict each other.
        """
        ...

    def open(self, files: ModelFiles, config: ModelConfig, placement: Placement) -> Instance:
        """Load one copy of the model onto a device. Raises InferdError, with the reason."""
        ...


class GivenModel(msgspec.Struct, frozen=True):
    """A model that a program hands to the server, with what runs it.

    `config` may leave out what has a default. `folder` is where files lie that it names.
    """

    name: str
    config: ModelConfig
    backend: Backend
    folder: Path


class Opened(NamedTuple):
    """An instance as it takes one request, and as it takes several at once.

    `cores` are the processors it works on, none: any. Instances of a model that are of one `kind`
    are as good as each other.
    """

    alone: Instance
    together: Instance
    cores: frozenset[int] = frozenset()
    kind: Hashable = None


@runtime_checkable
class Resizable(Protocol):
    """What can get more instances, and do with fewer, while it runs requests."""

    @property
    def instances(self) -> Sequence[Instance]:
        """Those that take part now."""
        ...

    def grow(self, instance: Opened) -> None:
        """Let `instance` take part from now on."""
        ...

    def shrink(self, kind: Hashable = None) -> None:
        """Do without one instance, which is closed when it is done. One stays.

        It is one of that `kind`; None: whichever is done first.
        """
        ...


class Scheduler(Protocol):
    """When, and with which others, a request runs.

    It sets `queued_ns` of a request it makes wait. What it gathered into one execution is counted
    by Execution, all else by the engine, from the request's times. Who runs a request without an
    Execution sets its `started_ns` and `ended_ns`, too.
    """

    @property
    def pending_count(self) -> int:
        """How many requests wait for their execution to begin."""
        ...

    async def run(self, request: InferRequest) -> InferResponse:
        """Return the one answer of `request`. Raises InferdError."""
        ...

    def stream(self, request: InferRequest) -> AsyncGenerator[InferResponse, None]:
        """Return the answers of `request` as they come. Raises InferdError while iterating.

        Closing the generator gives up the rest of the answers.
        """
        ...

    async def close(self, timeout_s: float) -> None:
        """Take no new requests, wait for those in flight, and close the instances.

        After `timeout_s` seconds the instances are closed though requests still run.
        """
        ...


@runtime_checkable
class PromptScheduler(Scheduler, Protocol):
    """A scheduler that often has an answer without waiting for anything, if it `may_be_prompt`."""

    may_be_prompt: bool

    def run_now(self, request: InferRequest) -> InferResponse | None:
        """Return the one answer of `request`, None when `run` must be asked. Raises InferdError.

        A coroutine that has nothing to wait for would cost a small model a twentieth.
        """
        ...


@runtime_checkable
class GatheringScheduler(Scheduler, Protocol):
    """A scheduler that may let requests wait for others."""

    def hurry(self) -> None:
        """Let requests wait for others no longer, from now on: few will come."""
        ...


class Models(Protocol):
    """The models of the server, as one that calls others sees them; the engine is this.

    Each call finds the version that serves then, checks the request, and counts it there.
    """

    async def infer(self, request: InferRequest) -> InferResponse:
        """Return the one answer of `request`. Raises InferdError."""
        ...

    def stream(self, request: InferRequest) -> AsyncGenerator[InferResponse, None]:
        """Return the answers of `request` as they come. Raises InferdError, or while iterating."""
        ...


@runtime_checkable
class PromptModels(Models, Protocol):
    """Models that often have the answer to a step of a request without waiting for anything."""

    def infer_now(self, request: InferRequest) -> InferResponse | None:
        """Return the one answer of `request`, None when `infer` must be asked. Raises as that does.

        What `request` is a step of is counted already, as what is under way.
        """
        ...


class ModelControl(Protocol):
    """What loads and unloads the models of the server; the engine is this."""

    def is_model_ready(self, name: str, version: str) -> bool:
        """Tell whether the model, or that version of it, answers. Raises ModelNotFound."""
        ...

    async def load(self, request: LoadRequest) -> None:
        """Load a model, or load it anew. Raises InferdError."""
        ...

    async def unload(self, request: UnloadRequest) -> None:
        """Unload a model. Raises InferdError."""
        ...


class Surroundings(msgspec.Struct, frozen=True):
    """What a backend may know of the server it works in.

    `models`, `control`, `metrics` (those of models) and `loop` are None where there is no server.
    `load_timeout_s` bounds the opening of an instance. `settings` are those of --backend-config for
    this backend, and for all.
    """

    models: Models | None = None
    control: ModelControl | None = None
    metrics: CustomMetrics | None = None
    loop: asyncio.AbstractEventLoop | None = None
    load_timeout_s: float = 3600.0
    settings: Mapping[str, str] = {}


@runtime_checkable
class ConnectedBackend(Backend, Protocol):
    """A backend that wants to know its surroundings."""

    def connect(self, surroundings: Surroundings) -> None:
        """Work in `surroundings` from now on; called once, before all else."""
        ...
