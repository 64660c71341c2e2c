"""PythonBackend: model.py files, each instance in its own worker process or thread."""

import logging
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec

from inferd.backends.python.code import check_code, code_folders
from inferd.backends.python.thread import ModelThread
from inferd.backends.worker.calls import WorkerCalls
from inferd.backends.worker.commands import Loads
from inferd.backends.worker.environments.cache import DEFAULT_COUNT
from inferd.backends.worker.environments.choice import (
    CACHE_SETTING,
    DEFAULT_TIMEOUT_S,
    Environments,
    requested_environment,
)
from inferd.backends.worker.environments.environment import Environment
from inferd.backends.worker.hosted import merged
from inferd.backends.worker.instance import WorkerInstance, result_of
from inferd.backends.worker.message import reshapes_of
from inferd.backends.worker.parameters import (
    RETRY_PARAMETER,
    check_in_server,
    memory_bytes,
    runs_in_server,
    setting,
    timeout_s,
)
from inferd.backends.worker.plan import AHEAD, Make, WorkerPlan, python_settings
from inferd.backends.worker.process import Sizes, WorkerProcess
from inferd.config.model import ModelConfig
from inferd.config.parameter import is_on
from inferd.config.pbtxt import parse_json
from inferd.core.interfaces import BackendContext, ModelFiles, Placement
from inferd.core.offline import OfflineReport
from inferd.core.traits import Traits
from inferd.errors import InvalidConfig
from inferd_worker.arena import GROWTH_SETTING

log = logging.getLogger("inferd.backends")

ARENA_SETTING = "shm-default-byte-size"
"""The setting of --backend-config=python,... with the bytes of shared memory per direction."""

START_SETTING = "stub-timeout-seconds"
"""The setting that bounds the start of a worker, including its model's initialize."""

MAKING_SETTING = "environment-timeout-seconds"
"""The setting that bounds the creation of an environment."""

COUNT_SETTING = "environment-count"
"""The setting with the number of environments to keep, besides older ones in use."""

_MARK = b"auto_complete_config"
_CLASS = b"class TritonPythonModel"


class PythonBackend:
    """Runs classes TritonPythonModel.

    These are in the models' files; or one is in `code`, a Python-based backend, and runs the files
    in the folders of many models.
    """

    traits = Traits(is_lax=True)

    def __init__(self, code: Path | None = None) -> None:
        self._code = code
        self._context = BackendContext()
        self._loads = Loads()

    def connect(self, context: BackendContext) -> None:
        """See ConnectedBackend.connect."""
        self._context = context

    def read_offline(self, files: ModelFiles, config: ModelConfig) -> OfflineReport:
        """See OfflineBackend.read_offline: the code is read, and never run. Raises BadCode."""
        files = self._with_code(files)
        source = files.file.read_bytes()
        if not requested_environment(files, config):  # another Python may read it otherwise
            check_code(source, files)
        return OfflineReport(config, is_complete=_MARK not in source and _CLASS in source)

    def environment(self, files: ModelFiles, config: ModelConfig) -> Environment:
        """Return the environment of a model, created if need be. Raises InferdError."""
        context = self._context
        settings = context.settings
        folder = settings.get(CACHE_SETTING)
        timeout_s = setting(config, settings, MAKING_SETTING)
        environments = Environments(
            Path(folder) if folder else None,
            min(timeout_s or DEFAULT_TIMEOUT_S, context.load_timeout_s),
            int(setting(config, settings, COUNT_SETTING)) or DEFAULT_COUNT,
            context.confinement,
        )
        return environments.resolve(files, config)

    def complete(self, files: ModelFiles, config: ModelConfig) -> ModelConfig:
        """See Backend.complete; runs auto_complete_config in a worker.

        Skipped for a file that defines the class but does not mention that method.
        """
        files = self._with_code(files)
        source = files.file.read_bytes()
        # Starting a worker for nothing takes a second or more. A class that is imported may have
        # the method all the same, so only a file with both words in sight is trusted.
        if _MARK not in source and _CLASS in source:
            return config
        # In a worker of its own, as the method is the user's code and may not return.
        plan = self._plan(files, config, Placement("auto_complete"), "complete")
        completed = result_of(plan)
        if completed is None:
            return config
        return merged(config, parse_json(completed, "auto_complete_config"))

    def open(self, files: ModelFiles, config: ModelConfig, placement: Placement) -> WorkerInstance:
        """See Backend.open. Raises InferdError with file and line where the model fails."""
        files = self._with_code(files)
        plan = self._plan(files, config, placement, "run")
        instance = WorkerInstance(plan, partial(WorkerCalls, self._context, self._loads))
        instance.start()
        if not self.is_in_worker(config):
            log.info(
                "model '%s' runs on a thread of the server's process, where nothing ends it if it "
                "hangs or crashes, and what it prints has no name",
                config.name,
            )
        return instance

    def is_in_worker(self, config: ModelConfig) -> bool:
        """Return whether a model runs in worker processes. Raises InvalidConfig."""
        return not runs_in_server(config, self._context)

    def _with_code(self, files: ModelFiles) -> ModelFiles:
        """Return `files` with the file of the class. Raises InvalidConfig if it is not there."""
        if self._code is not None:
            files = msgspec.structs.replace(files, file=self._code)
        if not files.file.is_file():
            place = f"{files.version_folder.name}/{files.file.name}"
            msg = f"model '{files.folder.name}': there is no file '{place}' in the model's folder"
            raise InvalidConfig(msg)
        return files

    def _plan(
        self, files: ModelFiles, config: ModelConfig, placement: Placement, task: str
    ) -> WorkerPlan:
        context = self._context
        settings = context.settings
        start_s = setting(config, settings, START_SETTING)
        sizes = Sizes(
            arena=_pages(setting(config, settings, ARENA_SETTING)),
            most=int(setting(config, settings, GROWTH_SETTING)) or Sizes.most,
            memory=memory_bytes(config),
        )
        if self.is_in_worker(config):
            environment = self.environment(files, config)
            if environment.confinement is not None:
                confinement = environment.confinement.at(placement.kind)
                environment = replace(environment, confinement=confinement)
            make: Make = partial(WorkerProcess, config.name, environment, sizes)
        else:
            check_in_server(config, requested_environment(files, config))
            make = partial(ModelThread, config.name, files, sizes)
        return WorkerPlan(
            model=config.name,
            files=files,
            settings=python_settings(
                task, files, config, placement, files.file, code_folders(files)
            ),
            make=make,
            start_timeout_s=min(start_s or context.load_timeout_s, context.load_timeout_s),
            timeout_s=timeout_s(config),
            ahead=_ahead(config),
            answers_each=True,
            retries=is_on(config, RETRY_PARAMETER),
            reshapes=reshapes_of(config),
            growth_setting=GROWTH_SETTING,
        )


def _ahead(config: ModelConfig) -> int:
    """Return how many executions an instance may be given at once, if they are short.

    1 if another instance may be free sooner, or if executions have a timeout, which the server
    measures.
    """
    instance_count = sum(
        max(1, group.count) * max(1, len(group.gpus)) for group in config.instance_group
    )
    return 1 if instance_count > 1 or timeout_s(config) else AHEAD


def _pages(size: float) -> int:
    """Return `size` rounded up to a multiple of 64 KiB; the default for 0."""
    return max(1, -(-int(size) // (64 << 10))) * (64 << 10) if size else Sizes.arena
