"""The interfaces of backends, instances (loaded copies of a model), schedulers and the engine."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

import msgspec

from inferd.config.model import ModelConfig, RateLimiter
from inferd.core.confinement import Confinement
from inferd.core.load import LoadRequest, UnloadRequest
from inferd.core.request import InferRequest, InferResponse
from inferd.core.traits import Traits
from inferd.errors import InferdError
from inferd.observe.family import CustomMetrics

Answer = InferResponse | InferdError
Outcome = Sequence[Answer] | InferdError
"""The outcome of several requests: one answer for each, or one error for all."""


def always() -> bool:
    """Return True."""
    return True


def unseen() -> frozenset[str]:
    """Return nothing: nobody looks at the files."""
    return frozenset()


class ModelFiles(msgspec.Struct, frozen=True):
    """Where one version of a model is on disk.

    `folder` is the model's folder, `version_folder` the numbered one inside it, `file` the model
    file or folder itself (default_model_filename resolved). For a bare file served without a
    repository, all three still name real paths: the file and the folder that holds it.

    `is_wanted` tells, in any thread, whether the load that reads these files is still wanted.
    `look` returns, in any thread, prints of the model file and of code beside it.
    """

    folder: Path
    version: int
    version_folder: Path
    file: Path
    # Functions with these defaults, since most callers have neither a load to give up nor a watch.
    is_wanted: Callable[[], bool] = always
    look: Callable[[], frozenset[str]] = unseen


class Placement(msgspec.Struct, frozen=True):
    """The device one instance runs on; `device_id` is the GPU's index, 0 on the CPU.

    `rate_limiter` holds the resources the instance needs before it may run, if any. `host_policy`
    names the policy that chooses its CPU cores. `by_model`: the model itself chooses its devices.
    """

    name: str
    gpu: bool = False
    device_id: int = 0
    rate_limiter: RateLimiter | None = None
    host_policy: str = "cpu"
    by_model: bool = False

    @property
    def kind(self) -> str:
        """The instance kind, as Triton passes it to Python models."""
        if self.by_model:
            return "MODEL"
        return "GPU" if self.gpu else "CPU"


class Instance(Protocol):
    """One loaded copy of a model.

    One of which something else holds than of most says so in an attribute `traits`, InstanceTraits.
    """

    def execute(self, requests: Sequence[InferRequest]) -> Sequence[InferResponse | InferdError]:
        """Run `requests`; return for each, in order, its answer or the error it failed with.

        Called by one thread at a time, unless the backend `is_concurrent`. Inputs have been
        checked against the model's configuration. A response holds the model's outputs; those
        not asked for may be left out, otherwise they are dropped later. An exception fails all of
        `requests`. An instance that can tell its own work from the framework's sets `computing_ns`
        and `computed_ns` of each request. Requests, responses and tensors are these classes, not
        subclasses, and their fields have exactly the declared types: compiled code can hold
        nothing else, so interpreted code refuses anything else, too.

        A model with iterative sequences may answer with a Round to be given the request again;
        such a model is run by this method even if it is decoupled.
        """
        ...

    def close(self) -> None:
        """Free what the instance holds. Called once.

        Nothing runs on the instance any more, unless an execution outlasted the time an unload
        waits: then this is called from another thread while it runs, and should make it end.
        """
        ...


@runtime_checkable
class DecoupledInstance(Instance, Protocol):
    """An instance whose model may give any number of answers to a request."""

    def stream(self, request: InferRequest) -> Iterator[InferResponse]:
        """Yield the answers to `request`, in a worker thread.

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
class ProcessInstance(Protocol):
    """An instance that is a process."""

    @property
    def pid(self) -> int:
        """The number of the process, 0 while there is none."""
        ...


@runtime_checkable
class AsyncInstance(Instance, Protocol):
    """An instance that runs elsewhere, and tells the event loop when it has answers.

    All its methods but `execute` are called on the event loop. `is_free` tells whether it takes
    another execution, and `running_count` how many it has; `unavailable_reason` is why it will take
    none for some time, "" otherwise. With `retries`, requests that were lost with it may run once
    more. It calls `on_change` whenever one of these changes.
    """

    is_free: bool
    running_count: int
    unavailable_reason: str
    retries: bool
    on_change: Callable[[], None]

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Work for `loop` from now on; called on that loop, and without effect a second time."""
        ...

    def begin(self, requests: Sequence[InferRequest], finish: Callable[[Outcome], None]) -> None:
        """Run `requests`, and call `finish` on the event loop when all are answered."""
        ...

    def cancel(self, requests: Sequence[InferRequest]) -> None:
        """Note that nobody waits for the answers to `requests` any more."""
        ...

    def begin_stream(
        self, request: InferRequest, deliver: Callable[[Answer | None, int], None]
    ) -> int:
        """Run `request` on a decoupled model; return a number that names the stream.

        `deliver` is called on the event loop with each answer and the share of the stream's flow
        control window it takes, which `credit` gives back, and at the end with None.
        """
        ...

    def credit(self, number: int, share: int) -> None:
        """Let the model run ahead by `share` more in stream `number`."""
        ...

    def cancel_stream(self, number: int) -> None:
        """Ask for no more answers of stream `number`."""
        ...

    async def says_ready(self) -> bool:
        """Return whether the model calls itself ready; True if it cannot be asked."""
        ...

    async def closed(self, timeout_s: float) -> None:
        """Wait, after close(), until the instance has ended; force it to after `timeout_s`."""
        ...


class Flow(Protocol):
    """Answers produced on another thread, no faster than they are taken."""

    def took_one(self) -> None:
        """Let one more answer be produced; any thread may call this."""
        ...

    def end(self) -> None:
        """Produce no more answers; any thread may call this."""
        ...


@runtime_checkable
class ConcurrentInstance(Instance, Protocol):
    """An instance that runs many requests at once, on an event loop in a thread of its own."""

    def submit(self, request: InferRequest) -> Future[InferResponse]:
        """Begin to run `request` and return its future answer; cancelling that ends the run."""
        ...

    def flow(
        self, request: InferRequest, put: Callable[[InferResponse | BaseException | None], None]
    ) -> Flow:
        """Run `request`; call `put` with each answer, and at the end with None or the error.

        `put` is called in the instance's thread.
        """
        ...


class Backend(Protocol):
    """Runs one framework's models. `engine.loading.lookup` finds it by platform or backend name."""

    @property
    def traits(self) -> Traits:
        """What holds of all its models; usually an attribute of the class."""
        ...

    def complete(self, files: ModelFiles, config: ModelConfig) -> ModelConfig:
        """Return `config` with the inputs, outputs and max_batch_size found in the model file.

        Raises InvalidConfig when configuration and file contradict each other.
        """
        ...

    def open(self, files: ModelFiles, config: ModelConfig, placement: Placement) -> Instance:
        """Load one copy of the model onto a device. Raises InferdError, with the reason."""
        ...


class GivenModel(msgspec.Struct, frozen=True):
    """A model that a program hands to the server, with the backend that runs it.

    `config` may leave out what has a default. `folder` holds the files it names.
    """

    name: str
    config: ModelConfig
    backend: Backend
    folder: Path


class Opened(NamedTuple):
    """An open instance, as it takes one request (`alone`) and as it takes several (`together`).

    `cores` are the CPU cores it runs on; empty: any. Instances of a model with the same `kind` are
    interchangeable.
    """

    alone: Instance
    together: Instance
    cores: frozenset[int] = frozenset()
    kind: Hashable = None


@runtime_checkable
class Resizable(Protocol):
    """Something that can add and remove instances while it runs requests."""

    @property
    def instances(self) -> Sequence[Instance]:
        """The instances in use now."""
        ...

    def grow(self, instance: Opened) -> None:
        """Use `instance`, too, from now on."""
        ...

    def shrink(self, kind: Hashable = None) -> None:
        """Stop using one instance, and close it when it is idle. The last one stays.

        It is one of that `kind`; None: whichever is idle first.
        """
        ...


class Scheduler(Protocol):
    """Decides when a request runs, and with which others.

    It sets `queued_ns` of a request it makes wait. Requests gathered into one execution are counted
    by Execution, all others by the engine, from their times. A scheduler that runs a request
    without an Execution sets its `started_ns` and `ended_ns`, too.
    """

    @property
    def pending_count(self) -> int:
        """The number of requests whose execution has not begun."""
        ...

    async def run(self, request: InferRequest) -> InferResponse:
        """Return the one answer to `request`. Raises InferdError."""
        ...

    def stream(self, request: InferRequest) -> AsyncGenerator[InferResponse, None]:
        """Return the answers to `request` as they come. Raises InferdError while iterating.

        Closing the generator gives up the remaining answers.
        """
        ...

    async def close(self, timeout_s: float) -> None:
        """Take no new requests, wait for those in flight, and close the instances.

        After `timeout_s` seconds the instances are closed even if requests still run.
        """
        ...


@runtime_checkable
class PromptScheduler(Scheduler, Protocol):
    """A scheduler that, if it `may_be_prompt`, often has an answer without having to wait."""

    may_be_prompt: bool

    def run_now(self, request: InferRequest) -> InferResponse | None:
        """Return the one answer to `request`, None when `run` is needed. Raises InferdError.

        A coroutine that has nothing to wait for would cost a small model a twentieth.
        """
        ...


def prompt_of(scheduler: object) -> PromptScheduler | None:
    """Return what of `scheduler` may have an answer at once, None if nothing may.

    Most are that themselves, some leave it to another, their `prompt`.
    """
    # Not isinstance alone: a scheduler around another has the methods, and only sometimes what
    # answers at once.
    prompt = getattr(scheduler, "prompt", scheduler)
    return prompt if isinstance(prompt, PromptScheduler) and prompt.may_be_prompt else None


@runtime_checkable
class JoiningScheduler(Protocol):
    """A scheduler that runs requests together, and can leave that."""

    def stop_joining(self) -> bool:
        """Run each request alone from now on, if that is possible; return whether this is new."""
        ...


@runtime_checkable
class GatheringScheduler(Scheduler, Protocol):
    """A scheduler that may make requests wait for others to share a batch with."""

    def hurry(self) -> None:
        """Make no request wait for others from now on: few more will come."""
        ...


@runtime_checkable
class SequenceKeeper(Scheduler, Protocol):
    """A scheduler in which sequences live."""

    @property
    def sequence_count(self) -> int:
        """How many sequences live."""
        ...

    def has_sequence(self, id: int | str) -> bool:
        """Tell whether the sequence of that id lives."""
        ...


class Models(Protocol):
    """The server's models, as a model that calls others sees them; the engine implements this.

    Each call looks up the version that serves at that moment, checks the request, and counts it.
    """

    async def infer(self, request: InferRequest) -> InferResponse:
        """Return the one answer to `request`. Raises InferdError."""
        ...

    def stream(self, request: InferRequest) -> AsyncGenerator[InferResponse, None]:
        """Return the answers to `request` as they come. Raises InferdError, or while iterating."""
        ...


@runtime_checkable
class PromptModels(Models, Protocol):
    """Models that often have the answer to a step of an ensemble without having to wait."""

    def infer_now(self, request: InferRequest) -> InferResponse | None:
        """Return the one answer to `request`, None when `infer` is needed. Raises as that does.

        `request` is not counted as under way: the ensemble request it is a step of is already.
        """
        ...


class ModelControl(Protocol):
    """Loads and unloads the server's models; the engine implements this."""

    def is_model_ready(self, name: str, version: str) -> bool:
        """Tell whether the model, or that version of it, is ready. Raises ModelNotFound."""
        ...

    async def load(self, request: LoadRequest) -> None:
        """Load or reload a model. Raises InferdError."""
        ...

    async def unload(self, request: UnloadRequest) -> None:
        """Unload a model. Raises InferdError."""
        ...


class BackendContext(msgspec.Struct, frozen=True):
    """What a backend may know of the server it runs in.

    `models`, `control`, `metrics` (the models' own) and `loop` are None where there is no server.
    `load_timeout_s` bounds the opening of an instance. `settings` are those of --backend-config for
    this backend and for all backends. Worker processes have the `confinement`, if any.
    """

    models: Models | None = None
    control: ModelControl | None = None
    metrics: CustomMetrics | None = None
    loop: asyncio.AbstractEventLoop | None = None
    load_timeout_s: float = 3600.0
    settings: Mapping[str, str] = {}
    confinement: Confinement | None = None


@runtime_checkable
class ConnectedBackend(Backend, Protocol):
    """A backend that wants to know the server that it runs in."""

    def connect(self, context: BackendContext) -> None:
        """Work in `context` from now on; called once, before any other method."""
        ...


@runtime_checkable
class WorkerBackend(Protocol):
    """A backend some of whose models run in worker processes."""

    def is_in_worker(self, config: ModelConfig) -> bool:
        """Return whether a model does. Raises InvalidConfig."""
        ...


@runtime_checkable
class LightBackend(Protocol):
    """A backend that can tell something of a model without its framework."""

    def complete_alone(self, files: ModelFiles, config: ModelConfig) -> ModelConfig | None:
        """Return what `complete` does, None where that needs the framework. Raises as that does."""
        ...


def is_in_worker(backend: Backend, config: ModelConfig) -> bool:
    """Return whether a model of `backend` runs in worker processes. Raises InvalidConfig."""
    return isinstance(backend, WorkerBackend) and backend.is_in_worker(config)
