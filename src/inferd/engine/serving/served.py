"""Served: a loaded version of a model, with what checks its requests and its answers."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from inferd.config.model import ModelConfig
from inferd.config.parameter_names import JOINED, JOINING_REASON
from inferd.core.interfaces import AsyncInstance, JoiningScheduler, Scheduler, prompt_of
from inferd.core.metadata import TensorMetadata
from inferd.core.rows import AS_CONFIGURED, Joining
from inferd.engine.serving.identity import Identity
from inferd.engine.serving.request_check import RequestCheck
from inferd.engine.serving.response_check import ResponseCheck
from inferd.engine.serving.rule import TensorRule
from inferd.observe.prometheus import Observed
from inferd.observe.stats import Counts
from inferd.tensor.classification import Labels

if TYPE_CHECKING:
    from inferd.engine.serving.instances import Instances
    from inferd.schedulers.ensemble import EnsembleScheduler


class Served:
    """A version that answers requests, with its `counts`. Built once, when the version has loaded.

    `counts` is to be given when the scheduler, too, counts there. `labels` are those of the
    outputs, by name. `load_s` is how long it took to load, and `is_on_gpu` whether it has an
    instance on a GPU. `nesting` counts the ensembles inside each other, this one included, and
    `run_count` the runs of models that one request takes; `way` says where most of these are.
    `instances` opens more instances, and closes some; an ensemble has none. It has its `steps`, the
    versions that they call, and the scheduler of an `ensemble`, which may be behind a cache.
    `prompt` is its scheduler, if that may have answers at once.
    `identity` tells what its answers hang on, and `is_cached` whether they are kept
    (inferd.engine.loading.caching). Of one that `is_forwarded` other processes of the server have
    instances, too, or alone. `joining` tells whether its requests are joined,
    `why_isolated` why it runs in a worker that would not otherwise. One that `has_sequences` takes
    requests that belong together, itself or in a step of the ensemble it is.
    """

    def __init__(
        self,
        config: ModelConfig,
        version: int,
        platform: str,
        scheduler: Scheduler,
        counts: Counts | None = None,
        labels: Mapping[str, Labels] | None = None,
    ) -> None:
        self.config = config
        self.name = config.name
        self.version = str(version)
        self.is_decoupled = config.decoupled
        self.platform = platform
        self.run_by(scheduler)
        # The scheduler that was given first: one for a cache or for forwarding may stand before it
        # later.
        self._joined_by = scheduler if isinstance(scheduler, JoiningScheduler) else None
        self.counts = counts or Counts()
        self.load_s, self.is_on_gpu = 0.0, False
        self.nesting, self.run_count = 0, 1
        self.way: tuple[str, ...] = ()
        self.instances: Instances | None = None
        self.ensemble: EnsembleScheduler | None = None
        self.steps: Sequence[Served] = ()
        self.identity = Identity()
        self.is_cached = self.is_forwarded = False
        self.joining, self.why_isolated = AS_CONFIGURED, ""
        self.has_sequences = config.sequence_batching is not None
        self.labels = labels or {}
        batch_dims = 1 if config.max_batch_size > 0 else 0
        self._inputs = {
            declared.name: TensorRule(declared, batch_dims, 1 << index)
            for index, declared in enumerate(config.input)
        }
        self._outputs = {o.name: TensorRule(o, batch_dims) for o in config.output}
        self.requests = RequestCheck(config, self._inputs, self._outputs)
        self.responses = ResponseCheck(
            config, self._outputs, self.labels, self._run_alone, self._note_found
        )

    def run_by(self, scheduler: Scheduler) -> None:
        """Have `scheduler` run the requests from now on."""
        self.scheduler = scheduler
        self.prompt = prompt_of(scheduler)

    @property
    def unavailable_reason(self) -> str:
        """Why no instance takes requests for now, though the version is loaded; "" if one does.

        What keeps a step from running keeps its ensemble.
        """
        for step in self.steps:
            if unavailable_reason := step.unavailable_reason:
                return f"model '{step.name}', which it calls, cannot run: {unavailable_reason}"
        reasons = [instance.unavailable_reason for instance in self.remote()]
        # One instance that runs is enough.
        return reasons[0] if reasons and all(reasons) else ""

    async def says_ready(self) -> bool:
        """Tell whether all instances that can be asked call themselves ready."""
        return all(await asyncio.gather(*(one.says_ready() for one in self.remote())))

    def remote(self) -> Sequence[AsyncInstance]:
        """Return the instances in workers."""
        return self.instances.remote if self.instances is not None else ()

    def inputs(self) -> list[TensorMetadata]:
        """Return the inputs as V2 metadata, batch dim included."""
        return [TensorMetadata(r.name, r.datatype, r.shape) for r in self._inputs.values()]

    def outputs(self) -> list[TensorMetadata]:
        """Return the outputs as V2 metadata, batch dim included."""
        return [TensorMetadata(r.name, r.datatype, r.shape) for r in self._outputs.values()]

    def observed(self) -> Observed:
        """Return this version as the metrics report it."""
        return Observed(
            self.name,
            self.version,
            self.counts,
            self.scheduler.pending_count,
            self.load_s,
            self.config.metric_tags,
            self.is_on_gpu,
            self.is_cached,
            self.joining.state == "joined" if self.joining.reason else None,
            bool(self.why_isolated),
        )

    def shown_config(self) -> ModelConfig:
        """Return the configuration as clients see it: its parameters tell of joining, too."""
        config, joining = self.config, self.joining
        if not joining.reason:
            return config
        shown = {JOINED: joining.state, JOINING_REASON: joining.reason}
        return replace(config, parameters=config.parameters | shown)

    def _run_alone(self, why: str) -> bool:
        """Have requests run alone from now on; return whether they were joined until now."""
        if self._joined_by is None or not self._joined_by.stop_joining():
            return False
        self.joining = Joining("alone", why)
        return True

    def _note_found(self, rule: TensorRule) -> None:
        """Have the configuration say of an output what its answer shows it to be."""
        outputs = [
            replace(output, datatype=rule.datatype, dims=rule.dims)
            if output.name == rule.name
            else output
            for output in self.config.output
        ]
        self.config = replace(self.config, output=tuple(outputs))
