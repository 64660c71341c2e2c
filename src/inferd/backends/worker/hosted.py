"""HostedModels: the part of HostedBackend for models in worker processes."""

import json
import logging
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from inferd.backends.worker.environments.environment import Environment
from inferd.backends.worker.instance import WorkerInstance, result_of
from inferd.backends.worker.parameters import RETRY_PARAMETER, memory_bytes, timeout_s
from inferd.backends.worker.plan import AHEAD, WorkerPlan
from inferd.backends.worker.process import Sizes, WorkerProcess
from inferd.config.model import ModelConfig
from inferd.config.parameter import is_on
from inferd.config.pbtxt import parse_json, to_json
from inferd.core.completing import marked, marks_of
from inferd.core.interfaces import BackendContext, ModelFiles, Placement

log = logging.getLogger(__name__)

_MAIN = "inferd.backends.worker.host"
# As texts: this package lies below the engine and does not import it; the worker does, by name.
_COMPLETE = "inferd.engine.loading.hosted_model:complete_hosted"
_CONVERT = "inferd.engine.loading.hosted_model:convert_hosted"
_OPEN = "inferd.engine.loading.hosted_model:open_hosted"


class HostedModels:
    """Models of the backend `target` ("module:Class"), each instance in a process of its own."""

    def __init__(self, target: str, context: BackendContext) -> None:
        self._target = target
        self._context = context

    def complete(self, files: ModelFiles, config: ModelConfig) -> ModelConfig:
        """Have a worker complete `config`; see Backend.complete."""
        # A process of its own, ended at once: to look at the model must not
        # bring the framework into the server.
        reply = result_of(self._plan(files, config, Placement("complete"), _COMPLETE))
        assert reply is not None  # what complete_hosted says
        said = json.loads(reply)
        completed = parse_json(json.dumps(said["config"]), "what the worker says")
        return marked(merged(config, completed), said["marks"])

    def open(self, files: ModelFiles, config: ModelConfig, placement: Placement) -> WorkerInstance:
        """Start a worker; see Backend.open."""
        instance = WorkerInstance(self._plan(files, config, placement, _OPEN))
        instance.start()
        return instance

    def convert(self, files: ModelFiles, config: ModelConfig) -> bytes:
        """Have a worker convert the model to ONNX, and log how both differ. Raises InferdError."""
        with TemporaryDirectory(prefix="inferd-") as folder:
            file = Path(folder) / "model.onnx"
            plan = self._plan(files, config, Placement("convert"), _CONVERT, folder)
            plan.settings["converted"] = str(file)
            said = result_of(plan)
            log.info("model '%s' version %d: %s", config.name, files.version, said)
            return file.read_bytes()

    def _plan(
        self, files: ModelFiles, config: ModelConfig, placement: Placement, task: str, *writes: str
    ) -> WorkerPlan:
        source = str(Path(__file__).parents[3])  # the folder of this package, installed or not
        confinement = self._context.confinement
        if confinement is not None:
            confinement = confinement.beside(*writes).at(placement.kind)
        environment = Environment(path=(source,), main=_MAIN, confinement=confinement)
        return WorkerPlan(
            model=config.name,
            files=files,
            settings={
                "task": task,
                "model": config.name,
                "target": self._target,
                "folder": str(files.folder),
                "version": files.version,
                "version_folder": str(files.version_folder),
                "file": str(files.file),
                "place": [placement.name, placement.gpu, placement.device_id],
                "config": json.dumps(_as_written(config)),
                "marks": marks_of(config),
                "settings": dict(self._context.settings),
                "verbose": log.isEnabledFor(logging.DEBUG),
            },
            make=partial(
                WorkerProcess, config.name, environment, Sizes(memory=memory_bytes(config))
            ),
            start_timeout_s=self._context.load_timeout_s,
            timeout_s=timeout_s(config),
            ahead=1 if timeout_s(config) else AHEAD,  # the server measures from when it is sent
            answers_each=True,
            retries=is_on(config, RETRY_PARAMETER),
        )


def _as_written(config: ModelConfig) -> dict[str, object]:
    """Return `config` as JSON, without a max_batch_size that nobody wrote: it may be filled in."""
    document = to_json(config)
    if not (config.max_batch_size or config.is_unbatched):
        del document["max_batch_size"]
    return document


def merged(config: ModelConfig, completed: ModelConfig) -> ModelConfig:
    """Return `config` with the fields that a worker may have completed."""
    return replace(
        config,
        input=completed.input,
        output=completed.output,
        max_batch_size=completed.max_batch_size,
        dynamic_batching=config.dynamic_batching or completed.dynamic_batching,
        decoupled=completed.decoupled,
        parameters={**completed.parameters, **config.parameters},
    )
