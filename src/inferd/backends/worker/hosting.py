"""HostedBackend: any backend of ours, in worker processes or in the server, as each model says.

In a process of its own, one for each instance, a model cannot take the server with it when it
crashes, and runs beside the server's own Python. In the server (`inferd_process: server`) it costs
the least for each request, and all models of a framework share one import of it.
"""

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.metadata import EntryPoint
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from inferd.backends.worker.environment import Environment
from inferd.backends.worker.instance import WorkerInstance
from inferd.backends.worker.parameters import runs_in_server, timeout_s
from inferd.backends.worker.plan import AHEAD, Plan
from inferd.backends.worker.process import Process, Sizes
from inferd.config.model import ModelConfig
from inferd.config.pbtxt import parse_json, to_json
from inferd.core.interfaces import (
    Backend,
    ConnectedBackend,
    Instance,
    ModelFiles,
    Placement,
    Surroundings,
)

log = logging.getLogger(__name__)

_MAIN = "inferd.backends.worker.host"
_COMPLETE = "inferd.engine.hosted_model:complete_hosted"
_OPEN = "inferd.engine.hosted_model:open_hosted"


class HostedBackend:
    """Runs the models of the backend `target` ("module:Class"), which needs `packages`.

    `place` is where one runs that says nothing: "worker" or "server".
    """

    bounded = True  # a WorkerInstance says otherwise of itself
    concurrent = True
    joins = True

    def __init__(self, target: str, packages: Sequence[str], place: str = "worker") -> None:
        for package in packages:
            if find_spec(package) is None:
                raise ModuleNotFoundError(name=package)
        self._target = target
        self._place = place
        self._here: Backend | None = None
        self._surroundings = Surroundings()

    def connect(self, surroundings: Surroundings) -> None:
        """See ConnectedBackend.connect."""
        self._surroundings = surroundings

    def complete(self, files: ModelFiles, config: ModelConfig) -> ModelConfig:
        """See Backend.complete.

        A worker is asked only for what the configuration leaves out, and the backend's own
        `complete_alone`, which does without its framework, cannot tell, or is not there.
        """
        if not self._is_in_worker(config):
            return self._in_server().complete(files, config)
        if hasattr(self._kind(), "complete_alone"):  # else its framework is not imported here
            here: Any = self._in_server()
            found: ModelConfig | None = here.complete_alone(files, config)
            if found is not None:
                return found
        if config.input and config.output:
            return config
        instance = WorkerInstance(self._plan(files, config, Placement("complete"), _COMPLETE))
        try:
            told = instance.start()
        finally:
            instance.close()
        completed = parse_json(told or "{}", "what the worker says")
        return replace(
            config,
            input=completed.input,
            output=completed.output,
            max_batch_size=completed.max_batch_size,
            dynamic_batching=config.dynamic_batching or completed.dynamic_batching,
        )

    def open(self, files: ModelFiles, config: ModelConfig, placement: Placement) -> Instance:
        """See Backend.open."""
        if not self._is_in_worker(config):
            return self._in_server().open(files, config, placement)
        instance = WorkerInstance(self._plan(files, config, placement, _OPEN))
        instance.start()
        return instance

    def _in_server(self) -> Backend:
        if self._here is None:  # two threads may both make one, and one of them stays
            backend: Backend = self._kind()()
            if isinstance(backend, ConnectedBackend):
                backend.connect(self._surroundings)
            self._here = backend
        return self._here

    def _kind(self) -> Any:
        return EntryPoint("", self._target, "").load()

    def _is_in_worker(self, config: ModelConfig) -> bool:
        return not runs_in_server(config, self._surroundings.settings, self._place)

    def _plan(
        self, files: ModelFiles, config: ModelConfig, placement: Placement, task: str
    ) -> Plan:
        source = str(Path(__file__).parents[3])  # where this package lies, installed or not
        environment = Environment(path=(source,), main=_MAIN)

        def make(told: Callable[[str, bool], None]) -> Process:
            return Process(config.name, environment, Sizes(), told)

        return Plan(
            model=config.name,
            version=files.version,
            settings={
                "task": task,
                "model": config.name,
                "target": self._target,
                "folder": str(files.folder),
                "version": files.version,
                "version_folder": str(files.version_folder),
                "file": str(files.file),
                "place": [placement.name, placement.gpu, placement.device_id],
                "config": json.dumps(to_json(config)),
                "settings": dict(self._surroundings.settings),
                "verbose": log.isEnabledFor(logging.DEBUG),
            },
            make=make,
            start_timeout_s=self._surroundings.load_timeout_s,
            is_wanted=files.is_wanted,
            timeout_s=timeout_s(config),
            ahead=AHEAD,
        )
