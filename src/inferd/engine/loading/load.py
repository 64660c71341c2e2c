"""Loading: files on disk → configuration → backend → instances → a version that serves."""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from math import isfinite
from pathlib import Path
from typing import TypeVar

import msgspec

from inferd.aio.thread import in_daemon_thread
from inferd.cache.store import Store
from inferd.config.checks import check_config, check_instances, check_io
from inferd.config.defaults import normalised
from inferd.config.model import ModelConfig
from inferd.config.options.backends import (
    NO_DELAY,
    DelayedStart,
    GpuLimits,
    HostPolicies,
    Limits,
    settings_of,
)
from inferd.config.options.cache import CacheSettings
from inferd.config.parameter import number
from inferd.config.parameter_names import EXECUTION_TIMEOUT
from inferd.config.platform import reported_platform
from inferd.core.confinement import Confinement
from inferd.core.interfaces import (
    Backend,
    BackendContext,
    ConnectedBackend,
    GivenModel,
    Instance,
    ModelControl,
    ModelFiles,
    Models,
    Placement,
)
from inferd.core.load import Attempt
from inferd.core.processes import ALONE, Processes
from inferd.core.rows import AS_CONFIGURED, UNKNOWN, Joining
from inferd.core.traits import traits_of
from inferd.engine.loading.caching import NOT_LOOKED, Keeper
from inferd.engine.loading.ensemble import build_ensemble, find_steps
from inferd.engine.loading.homes import (
    WHY_ISOLATED,
    check_ensemble,
    forward,
    home_of,
    isolated,
    marked_load,
    share_of_queues,
)
from inferd.engine.loading.joining import joining_of, tell_joining
from inferd.engine.loading.lookup import finder_of
from inferd.engine.loading.opening import Machine, open_all, samples_of
from inferd.engine.loading.scheduling import Given, as_executed, build_scheduler
from inferd.engine.serving.instances import Instances, Resize, remote_of
from inferd.engine.serving.served import Served
from inferd.errors import BackendFailed, InferdError, InvalidConfig, foreign_text
from inferd.forward.exchange import Exchange
from inferd.forward.home import Home
from inferd.observe.crash.mark import ModelMarks, RunMarks
from inferd.observe.devices import Gpus
from inferd.observe.family import CustomMetrics
from inferd.observe.prometheus import FIRST_RESPONSE_BUCKETS_MS, FIRST_RESPONSES
from inferd.observe.stats import Counts, Histogram
from inferd.observe.summary import SummaryCounts
from inferd.repository.agent import run_agents
from inferd.repository.contents import read_labels
from inferd.repository.fetch.settings import FetchSettings
from inferd.repository.layout import FoundModel, check_model_name, files_of, placements
from inferd.repository.local import Reading
from inferd.repository.signing.keys import TrustedKeys
from inferd.repository.slips import pointer_instead
from inferd.repository.watch import lasting_prints
from inferd.schedulers.execution.limiter import ResourceLimiter, limited

log = logging.getLogger("inferd.engine")

EXECUTION_PARAMETER = "inferd_execution"
"""The config parameter that sets where a model runs: "auto", "inline" or "threads"."""


_Result = TypeVar("_Result")

MAX_IGNORED_SHOWN = 5
"""The most folders of a model, of those that are no versions, that the log names."""


class LoadOptions(msgspec.Struct, frozen=True):
    """Which models are loaded, if any, and how; the fields are options of the server.

    `summary_latencies` and `histogram_latencies` are those of --metrics-config: loaded versions
    count for them, too.
    `rate_limits` is None when --rate-limit is off, `cache` when there is no cache.
    `delayed_start` is for tests: schedulers that batch run nothing until that many requests wait.
    Threads note in `marks` what they run; the versions in `isolated`, each the name of a model and
    its version, run in workers if they can. `service_name` is the name of a model whose folder was
    given by itself, if nothing else names it. Models are signed by one of the
    `signature_keys`, if there are. Worker processes have the `confinement`, if any.
    """

    model_name: str = ""
    service_name: str = ""
    model_config_name: str = ""
    disable_auto_complete_config: bool = False
    model_load_thread_count: int = 4
    model_load_retry_count: int = 0
    model_load_timeout_secs: float = 3600.0
    model_unload_timeout_secs: float = 300.0
    model_upload_max_bytes: int = 1 << 30
    model_repository_links: str = "inside"
    model_control_mode: str = "none"
    load_model: tuple[str, ...] = ()
    repository_poll_secs: float = 15.0
    allow_empty: bool = False
    summary_latencies: bool = False
    histogram_latencies: bool = False
    rate_limits: Limits | None = None
    backend_config: tuple[str, ...] = ()
    backend_directory: str | None = None
    cache: CacheSettings | None = None
    delayed_start: DelayedStart = NO_DELAY
    host_policies: HostPolicies = msgspec.field(default_factory=dict)
    gpu_limits: GpuLimits = msgspec.field(default_factory=dict)
    fetching: FetchSettings | None = None
    signature_keys: TrustedKeys | None = None
    confinement: Confinement | None = None
    marks: RunMarks | None = None
    isolated: frozenset[tuple[str, str]] = frozenset()


class Loader:
    """Loads the versions of models, read as `reading` says; they share the backends they use.

    Ensembles, and models that call others, do so through `models`; `find` returns the version of a
    name that serves now (Catalog.find). Models that want it have their answers cached in `store`.
    Models load and unload others through `control`, and have metrics of their own in `metrics`.
    Where this is one of several `processes` of a server, they pass requests on by `exchange`.
    """

    def __init__(
        self,
        options: LoadOptions,
        models: Models | None = None,
        find: Callable[[str, str], Served] | None = None,
        store: Store | None = None,
        metrics: CustomMetrics | None = None,
        processes: Processes = ALONE,
    ) -> None:
        self._options = options
        self._processes = processes
        # Opened only among several: a single process pays nothing for forwarding.
        self.exchange = Exchange(processes) if processes.count > 1 else None
        given = options.backend_directory
        self._directory = directory = Path(given) if given else None
        self._keeper = Keeper(store, find, directory) if store is not None else None
        self._models = models
        self.control: ModelControl | None = None
        self._metrics = metrics
        self._find = find
        # Counted once: drivers show all GPUs from the start.
        self._gpu_count = gpu_count()
        self.reading = Reading(
            options.model_config_name,
            self._gpu_count,
            options.disable_auto_complete_config,
            options.service_name,
            options.signature_keys,
        )
        self._machine = Machine(
            options.host_policies,
            options.gpu_limits,
            Gpus().memory_use,
            options.model_load_thread_count,
        )
        self.attempts = Attempts()
        # Loads are bounded by what they take of memory and cores, not by how many ask.
        self._free_threads = asyncio.Semaphore(options.model_load_thread_count)
        self._backends: dict[tuple[str, Callable[..., Backend]], Backend] = {}
        # Backends are looked up in loading threads.
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        limits = options.rate_limits
        self._limiter = ResourceLimiter(limits) if limits is not None else None

    def given(self, model: GivenModel, override: ModelConfig | None = None) -> FoundModel:
        """Return, ready to be loaded, a model that a program handed over; its one version is 1.

        `override` replaces its configuration. Raises InvalidConfig, InvalidRequest.
        """
        check_model_name(model.name)
        # The function stays the one that was given, whatever configuration a client sends.
        config = replace(override or model.config, backend=model.config.backend)
        config = normalised(config, model.name, self._gpu_count, "its options")
        check_config(config, "its options")
        run_agents(model.folder, config)
        return FoundModel(model.name, model.folder, config, (1,), backend=model.backend)

    def load(
        self,
        model: FoundModel,
        version: int,
        steps: Sequence[Served] = (),
        attempt: Attempt | None = None,
    ) -> Served:
        """Load one version, with all its instances. Raises InferdError, or what a backend raises.

        When one instance cannot be opened, those before it are closed. An ensemble has no
        instances; `steps` are the versions that serve its steps. The load may end early when
        `attempt` is given up.
        """
        began_s = time.monotonic()
        config = model.config
        if config is None:
            raise model.error or InvalidConfig(f"model '{model.name}' has no configuration")
        keeper = self._keeper
        # Before the load: files that change during it are noticed afterwards.
        looked = keeper.look(model) if keeper is not None else NOT_LOOKED
        if config.ensemble_scheduling is not None:
            served = self._ensemble(model, config, version, steps)
        else:
            served = self._model(model, config, version, attempt or Attempt())
        if keeper is not None:
            keeper.take(served, model, looked, steps)
        served.load_s = time.monotonic() - began_s
        return served

    def _model(
        self, model: FoundModel, config: ModelConfig, version: int, attempt: Attempt
    ) -> Served:
        backend = model.backend or self._backend(config)
        files = _watched(files_of(model, version, config, attempt.is_wanted))
        marks = ModelMarks(self._options.marks or RunMarks(), config.name, str(version))
        in_worker = self._isolated(config, version, backend)
        # Completing may crash as running did, so it happens in the worker as well.
        config = self._completed(backend, files, in_worker or config, marks)
        labels = read_labels(files.folder, config)
        samples = samples_of(files.folder, config)
        open_one = partial(
            self._open, backend, files, as_executed(config, joins=backend.traits.joins), marks
        )
        open_here = partial(open_all, config, backend, open_one, samples, self._machine)
        # After completing, which may have said how many instances there are.
        home = self._home(config, backend, is_isolated=in_worker is not None)
        instances = Instances(self._gpu_count, open_here, attempt, home)
        # Whatever fails from here on, instances that are open are closed: they may hold processes
        # and GPU memory.
        with ExitStack() as undo:
            with marked_load(config, backend, marks):  # and warmed up
                pairs = instances.open(config)
            for pair in pairs:
                undo.callback(pair.alone.close)
            alone = [pair.alone for pair in pairs]
            check_timeout(config, are_remote=len(remote_of(alone)) == len(alone))
            inline = may_run_inline(config, backend, alone)
            counts = self._counts(config)
            joining = self._joining(config, backend, alone)
            given = Given(files.folder, self._options.delayed_start, joining, marks)
            scheduled = share_of_queues(config, home, instances.total)
            scheduler = build_scheduler(scheduled, pairs, counts, given, may_run_inline=inline)
            instances.run_by(scheduler)
            platform = reported_platform(config)
            served = Served(config, version, platform, scheduler, counts=counts, labels=labels)
            # From here on the scheduler closes them.
            undo.pop_all()
        self._attach(alone)
        tell_joining(config, version, joining)
        served.instances = instances
        served.joining = joining
        served.why_isolated = WHY_ISOLATED if in_worker is not None else ""
        served.responses.is_lax = backend.traits.is_lax
        served.is_on_gpu = instances.are_on_gpu
        # Last: its scheduler stands in front of all others.
        forward(served, home, self.exchange)
        return served

    def _isolated(self, config: ModelConfig, version: int, backend: Backend) -> ModelConfig | None:
        is_named = (config.name, str(version)) in self._options.isolated
        return isolated(config, version, backend) if is_named else None

    def _home(self, config: ModelConfig, backend: Backend, *, is_isolated: bool) -> Home:
        places, _ = placements(config, self._gpu_count)
        return home_of(
            config,
            backend,
            places,
            self._processes,
            is_limited=self._limiter is not None,
            is_isolated=is_isolated,
        )

    def _attach(self, instances: Sequence[Instance]) -> None:
        if self._loop is not None:
            for instance in remote_of(instances):
                # This is a loading thread; instances elsewhere talk to the event loop.
                self._loop.call_soon_threadsafe(instance.attach, self._loop)

    def _completed(
        self, backend: Backend, files: ModelFiles, config: ModelConfig, marks: ModelMarks
    ) -> ModelConfig:
        if not self._options.disable_auto_complete_config:
            with marked_load(config, backend, marks):
                config = backend.complete(files, config)
            # Again, since some defaults follow from what the backend filled in, such as
            # max_batch_size.
            config = normalised(config, config.name, self._gpu_count)
            check_config(config)
        check_io(config)
        return config

    def _joining(
        self, config: ModelConfig, backend: Backend, instances: Sequence[Instance]
    ) -> Joining:
        joins = backend.traits.joins
        if instances:
            return joining_of(config, traits_of(instances[0]).verdict, joins=joins)
        joining = joining_of(config, UNKNOWN, joins=joins)
        return AS_CONFIGURED if joining.state == "compared" else joining  # other processes know

    def _open(
        self,
        backend: Backend,
        files: ModelFiles,
        config: ModelConfig,
        marks: ModelMarks,
        place: Placement,
    ) -> Instance:
        # A crash while it loads is told apart from one while it runs.
        with marked_load(config, backend, marks):
            if self._limiter is None or place.rate_limiter is None:
                return backend.open(files, config, place)
            # Before opening, so that a resource that will never be free costs no load.
            claim = self._limiter.enter(config.name, place)
            try:
                return limited(backend.open(files, config, place), claim)
            except BaseException:
                claim.leave()
                raise

    def _ensemble(
        self, model: FoundModel, config: ModelConfig, version: int, steps: Sequence[Served]
    ) -> Served:
        assert self._models is not None
        check_io(config)
        check_ensemble(config)
        labels = read_labels(model.folder, config)
        config = replace(
            config,
            # An ensemble answers as often as its steps do, whatever its own file says.
            decoupled=any(step.config.decoupled for step in steps),
            given=config.given | {"model_transaction_policy"},  # as Triton shows for all ensembles
        )
        check_config(config)
        counts = self._counts(config)
        counts.is_ensemble = True
        return build_ensemble(config, version, steps, self._models, counts, labels)

    def _counts(self, config: ModelConfig) -> Counts:
        options = self._options
        return counts_of(
            config,
            with_summaries=options.summary_latencies,
            with_histograms=options.histogram_latencies,
        )

    async def load_in_thread(self, model: FoundModel, version: int) -> Served:
        """Load one version in a thread of its own, retrying as often as the options say.

        Raises InferdError; anything else a backend raises becomes BackendFailed. The texts do not
        show the paths of this machine.
        """
        self._loop = asyncio.get_running_loop()
        attempt = Attempt()
        with self.attempts.running(model.name, attempt):
            # Waiting loads count as under way, so that an unload can give them up.
            async with self._free_threads:
                for _ in range(self._options.model_load_retry_count):
                    try:
                        return await self._load_in_time(model, version, attempt)
                    except InferdError as error:
                        if not attempt.is_wanted():
                            raise
                        log.warning("%s; trying again", error.message)
                # The last attempt's error is the answer.
                return await self._load_in_time(model, version, attempt)

    async def resize_in_thread(
        self, model: FoundModel, version: int, instances: Instances
    ) -> Resize:
        """Open, in a thread, the instances that `model` asks for beyond those there are.

        Raises as `load_in_thread` does.
        """
        config = model.config
        assert config is not None
        check_instances(config)
        with self.attempts.running(model.name, instances.attempt):
            async with self._free_threads:
                return await self._in_time(
                    model, version, lambda: instances.prepare(config), Resize.undo
                )

    async def _load_in_time(self, model: FoundModel, version: int, attempt: Attempt) -> Served:
        steps: Sequence[Served] = ()
        # In the loop, where the catalog may be read.
        if model.config is not None and self._find is not None:
            steps = find_steps(model.config, self._find)
        return await self._in_time(
            model, version, lambda: self.load(model, version, steps, attempt), _close_unused
        )

    async def _in_time(
        self,
        model: FoundModel,
        version: int,
        work: Callable[[], _Result],
        given_up: Callable[[_Result], None],
    ) -> _Result:
        """Return the result of `work`, run in a thread; one too late goes to `given_up`."""
        timeout_s = self._options.model_load_timeout_secs
        try:
            async with asyncio.timeout(timeout_s):
                # A thread cannot be ended: what it opens too late is closed when it is done.
                return await in_daemon_thread(lambda: _explained(model, version, work), given_up)
        except TimeoutError as error:
            raise BackendFailed(
                f"model '{model.name}' version {version} did not load within {timeout_s:g} s "
                f"(--model-load-timeout-secs)"
            ) from error

    def _backend(self, config: ModelConfig) -> Backend:
        name = config.backend
        find = finder_of(config)
        # Two versions that load at once share one backend object, and so the weights it shares.
        with self._lock:
            backend = self._backends.get((name, find))
            if backend is None:
                backend = find(name, self._directory)
                self._backends[name, find] = backend
                if isinstance(backend, ConnectedBackend):
                    context = BackendContext(
                        self._models,
                        self.control,
                        self._metrics,
                        self._loop,
                        self._options.model_load_timeout_secs,
                        settings_of(name, self._options.backend_config),
                        self._options.confinement,
                    )
                    backend.connect(context)
            return backend


def _watched(files: ModelFiles) -> ModelFiles:
    """Return `files` as those who start processes with them again can tell whether they changed."""
    # Only when a process has to be started anew: reading times of all files for each load would be
    # in vain.
    return msgspec.structs.replace(files, look=partial(lasting_prints, files))


def _explained(model: FoundModel, version: int, work: Callable[[], _Result]) -> _Result:
    """Return what `work` does; raise its errors as InferdError, without the model's path."""
    try:
        return work()
    except InferdError as error:
        instead = pointer_instead(model.file or model.folder / str(version))
        text = error.message.replace(f"{model.folder}/", "") + instead
        error.args = (text, *error.args[1:])
        raise
    except BaseException as error:  # SystemExit too: no model may end the server
        log.debug("model '%s' version %d:", model.name, version, exc_info=error)
        text = foreign_text(error)
        msg = f"model '{model.name}' version {version} cannot be loaded: {text}"
        raise BackendFailed(msg) from error


def counts_of(config: ModelConfig, *, with_summaries: bool, with_histograms: bool) -> Counts:
    """Return the Counts for a model. Raises InvalidConfig for invalid histogram buckets."""
    counts = SummaryCounts() if with_summaries else Counts()
    if config.decoupled or with_histograms:
        counts.first_responses = Histogram(_first_response_buckets(config))
        counts.times_answers = not config.decoupled
    return counts


def _first_response_buckets(config: ModelConfig) -> Sequence[float]:
    for control in config.model_metrics:
        if control.metric_identifier == FIRST_RESPONSES and control.histogram_options:
            buckets = control.histogram_options
            if list(buckets) != sorted(set(buckets)) or not all(map(isfinite, buckets)):
                msg = f"model '{config.name}': the buckets of {FIRST_RESPONSES} are not in order"
                raise InvalidConfig(msg, ("model_metrics",))
            return buckets
    return FIRST_RESPONSE_BUCKETS_MS


def may_run_inline(config: ModelConfig, backend: Backend, instances: Sequence[Instance]) -> bool:
    """Tell whether `instances` may run on the event loop. Raises InvalidConfig."""
    wanted, traits = config.parameters.get(EXECUTION_PARAMETER, "auto"), backend.traits
    if wanted == "auto":
        are_bounded = all(traits_of(instance).is_bounded for instance in instances)
        # The loop and the instance's own thread may run it at the same time.
        return traits.is_bounded and traits.is_concurrent and are_bounded
    if wanted == "threads":
        return False
    if wanted != "inline":
        wrong = ", expected auto, inline or threads"
    elif not traits.is_concurrent:
        wrong = f", but backend '{config.backend}' does not run a model in several threads at once"
    elif any(traits_of(instance).turn is not None for instance in instances):
        wrong = ", but its rate_limiter may make it wait"
    else:
        return True
    msg = f"model '{config.name}': parameter {EXECUTION_PARAMETER} is '{wanted}'{wrong}"
    raise InvalidConfig(msg, ("parameters", EXECUTION_PARAMETER))


def check_timeout(config: ModelConfig, *, are_remote: bool) -> None:
    """Raise InvalidConfig for a limit on executions that nothing can end.

    `are_remote`: the instances are all in processes of their own.
    """
    if number(config, EXECUTION_TIMEOUT) and not are_remote:
        msg = (
            f"model '{config.name}': parameter {EXECUTION_TIMEOUT} needs a process of its own, but "
            f"backend '{config.backend}' runs in the server, where nothing can end an execution"
        )
        raise InvalidConfig(msg, ("parameters", EXECUTION_TIMEOUT))


def gpu_count(folder: Path = Path("/proc/driver/nvidia/gpus")) -> int:
    """Return the number of NVIDIA GPUs this machine's driver shows, 0 without a driver."""
    # Without the driver's library, which not every machine has.
    return sum(1 for _ in folder.iterdir()) if folder.is_dir() else 0


def tell_ignored(model: FoundModel) -> None:
    """Log which folders of `model` are ignored, at most MAX_IGNORED_SHOWN of them by name."""
    for reason in model.ignored[:MAX_IGNORED_SHOWN]:
        log.warning("model '%s': %s", model.name, reason)
    if more := model.ignored[MAX_IGNORED_SHOWN:]:
        log.warning("model '%s': so are %d more folders", model.name, len(more))


def _close_unused(served: Served) -> None:
    loop = asyncio.get_running_loop()
    loop.create_task(served.scheduler.close(0.0))  # noqa: RUF006  ends in its first step


class Attempts:
    """The attempts under way, each with the name of its model."""

    def __init__(self) -> None:
        self._running: list[tuple[str, Attempt]] = []

    @contextmanager
    def running(self, model: str, attempt: Attempt) -> Iterator[None]:
        """Count `attempt` among those of `model` while the context lasts."""
        # A list: the same model may have several attempts under way, one for each version.
        self._running.append((model, attempt))
        try:
            yield
        finally:
            self._running.remove((model, attempt))

    def give_up(self, model: str | None = None) -> None:
        """Give up the attempts of `model`, or all of them."""
        for name, attempt in self._running:
            if model in (None, name):
                attempt.give_up()
