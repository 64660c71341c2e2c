"""Environment: the interpreter of a worker process, with its variables and paths."""

import os
import sys
from dataclasses import dataclass, field
from pathlib import Path

from inferd.core.confinement import Confinement

ON_PATH = Path(__file__).parents[4] / "inferd_worker" / "on_path"
"""The folder that a worker process has on its sys.path, on any interpreter."""

_CONFINED = (
    "import sys; sys.path.append(sys.argv.pop(1)); "
    "from inferd_worker.confinement.enter import main; main(sys.argv[1:])"
)

_OURS = ("INFERD_", "TRITON_CLOUD_CREDENTIAL")
"""Prefixes of server variables that may hold secrets and are of no use to a model."""


@dataclass(frozen=True)
class Environment:
    """A Python 3.9 or later with numpy.

    `in_use` keeps its folder from being deleted. `variables` are added to those of the server,
    `path` goes to the front of sys.path. The worker is the function `main` of the module `main`.
    With a `confinement` nothing of it runs outside: its interpreter may be whoever's.
    """

    python: Path = field(default_factory=lambda: Path(sys.executable))
    variables: dict[str, str] = field(default_factory=dict)
    path: tuple[str, ...] = ()
    main: str = "inferd_worker.main"
    confinement: Confinement | None = None
    in_use: object = field(default=None, repr=False, compare=False)

    def command(self, *arguments: str, writable: tuple[str, ...] = ()) -> list[str]:
        """Return the command that runs its Python; if it is confined, it may write `writable`."""
        command = [str(self.python), *arguments]
        if self.confinement is None:
            return command
        paths = self.confinement.beside(*writable).writable
        # Without the packages and the variables of this Python: nothing else is to run before.
        confined = [sys.executable, "-I", "-S", "-c", _CONFINED, str(ON_PATH)]
        return [*confined, str(len(paths)), *paths, *command]

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
