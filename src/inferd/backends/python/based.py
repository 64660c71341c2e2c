"""PythonBasedBackend: a backend that is itself a model.py, and runs the files of many models."""

from pathlib import Path

import msgspec

from inferd.backends.python.backend import PythonBackend
from inferd.backends.worker.instance import WorkerInstance
from inferd.config.model import ModelConfig
from inferd.core.interfaces import ModelFiles, Placement


class PythonBasedBackend(PythonBackend):
    """Runs the class TritonPythonModel of `code`, which runs the files in the model's folder."""

    def __init__(self, code: Path) -> None:
        super().__init__()
        self._code = code

    def complete(self, files: ModelFiles, config: ModelConfig) -> ModelConfig:
        """See PythonBackend.complete."""
        return super().complete(self._with_code(files), config)

    def open(self, files: ModelFiles, config: ModelConfig, placement: Placement) -> WorkerInstance:
        """See PythonBackend.open."""
        return super().open(self._with_code(files), config, placement)

    def _with_code(self, files: ModelFiles) -> ModelFiles:
        return msgspec.structs.replace(files, file=self._code)
