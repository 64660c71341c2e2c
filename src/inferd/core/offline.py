"""Offline: what a backend tells of a model without its framework, before it is served."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

from inferd.config.model import ModelConfig
from inferd.config.rules.complaint import Complaint
from inferd.core.interfaces import ModelFiles
from inferd.core.rows import UNKNOWN, Verdict
from inferd.errors import BackendFailed


class BadCode(BackendFailed):
    """A model's code cannot be what it is said to be; `file`, `line` and `column` say where."""

    def __init__(self, message: str, file: Path, line: int = 0, column: int = 0) -> None:
        super().__init__(message)
        self.file, self.line, self.column = file, line, column


class OfflineReport(NamedTuple):
    """A configuration as far as the model's file completes it, wholly if it `is_complete`.

    `complaints` are where the two do not agree, and `verdict` what is known of the rows of a batch.
    """

    config: ModelConfig
    is_complete: bool
    complaints: Sequence[Complaint] = ()
    verdict: Verdict = UNKNOWN


@runtime_checkable
class OfflineBackend(Protocol):
    """A backend whose models' files can be read without the framework that runs them."""

    def read_offline(self, files: ModelFiles, config: ModelConfig) -> OfflineReport:
        """Return what the file tells. Raises InferdError for one that would never load."""
        ...
