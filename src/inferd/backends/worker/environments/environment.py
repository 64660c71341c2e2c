"""Environment: the interpreter of a worker process, with its variables and paths."""

import os
import sys
from dataclasses import dataclass, field
from pathlib import Path

_OURS = ("INFERD_", "TRITON_CLOUD_CREDENTIAL")
"""Prefixes of server variables that may hold secrets and are of no use to a model."""


@dataclass(frozen=True)
class Environment:
    """A Python 3.9 or later with numpy.

    `in_use` keeps its folder from being deleted. `variables` are added to those of the server,
    `path` goes to the front of sys.path. The worker is the function `main` of the module `main`.
    """

    python: Path = field(default_factory=lambda: Path(sys.executable))
    variables: dict[str, str] = field(default_factory=dict)
    path: tuple[str, ...] = ()
    main: str = "inferd_worker.main"
    in_use: object = field(default=None, repr=False, compare=False)

    def all_variables(self) -> dict[str, str]:
        """Return every environment variable of the process."""
        inherited = {
            name: value for name, value in os.environ.items() if not name.startswith(_OURS)
        }
        # stdout is a pipe, so Python would keep what a model prints for itself,
        # and lose it when the process is killed.
        inherited["PYTHONUNBUFFERED"] = "1"
        inherited.update(self.variables)
        return inherited
