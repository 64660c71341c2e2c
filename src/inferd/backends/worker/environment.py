"""Environment: which interpreter a worker process is, and what it finds there."""

import os
import sys
from dataclasses import dataclass, field
from pathlib import Path

_OURS = ("INFERD_", "TRITON_CLOUD_CREDENTIAL")
"""Variables of the server that may hold secrets, and say nothing to a model."""


@dataclass(frozen=True)
class Environment:
    """A Python of version 3.9 or later with numpy.

    `held` is what keeps its folder there. `variables` are set beside those of the server, `path` is
    put on sys.path before all else. The worker is the function `main` of the module `main`.
    """

    python: Path = field(default_factory=lambda: Path(sys.executable))
    variables: dict[str, str] = field(default_factory=dict)
    path: tuple[str, ...] = ()
    main: str = "inferd_worker.main"
    held: object = field(default=None, repr=False, compare=False)

    def all_variables(self) -> dict[str, str]:
        """Return every environment variable of the process."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}
        kept["PYTHONUNBUFFERED"] = "1"
        kept.update(self.variables)
        return kept
