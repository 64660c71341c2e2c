"""WorkerPlan: how a worker is run."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from inferd.backends.worker.document import StartSettings
from inferd.backends.worker.message import Reshapes
from inferd.backends.worker.process import WorkerProcess
from inferd.config.model import ModelConfig
from inferd.config.pbtxt import to_json
from inferd.core.interfaces import ModelFiles, Placement

AHEAD = 16
"""The most executions a worker may be given at once, if they are short."""


Make = Callable[[Callable[[str, bool], None]], WorkerProcess]
"""Makes the process, given what takes each line it prints, and whether that went to stderr."""


class WorkerPlan(msgspec.Struct, frozen=True):
    """How one worker is run, for a version in `files`: `settings` is the document of START.

    `timeout_s` bounds an execution, 0 for no limit; `start_timeout_s` bounds the start. With
    `retries`, requests lost with a process run once more. `ahead` is how many executions the worker
    may be given at once; if it answers each before it begins the next (`answers_each`), those
    behind the first had not begun when a process ends. A process that starts later must find the
    same files. `reshapes` are for a worker that does not know its configuration. `growth_setting`
    is the backend's setting that gives it more shared memory, if any.
    """

    model: str
    files: ModelFiles
    settings: StartSettings
    make: Make
    start_timeout_s: float
    timeout_s: float = 0.0
    retries: bool = False
    ahead: int = 1
    answers_each: bool = False
    reshapes: Reshapes | None = None
    growth_setting: str = ""


def python_settings(
    task: str,
    files: ModelFiles,
    config: ModelConfig,
    placement: Placement,
    file: Path,
    folders: Sequence[Path],
) -> StartSettings:
    """Return the document of START for a model that is Python code in `file`.

    `folders` are those that its imports are searched in; `args` are what it is initialized with.
    """
    return {
        "task": task,
        "file": str(file),
        "code_folders": [str(folder) for folder in folders],
        "version_folder": str(files.version_folder),
        "args": {
            # Texts, all of them, as the dictionary that Triton's initialize gets.
            "model_config": json.dumps(to_json(config)),
            "model_instance_kind": placement.kind,
            "model_instance_device_id": str(placement.device_id),
            "model_instance_name": placement.name,
            "model_repository": str(files.folder),
            "model_version": str(files.version),
            "model_name": config.name,
        },
    }
