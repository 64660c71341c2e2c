"""Environment: the interpreter of a worker process, with its variables and paths."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from inferd.backends.worker.environments.command import printable
from inferd.core.confinement import Confinement
from inferd.errors import InvalidConfig

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


OLDEST = (3, 9)
"""The oldest Python that a worker process runs on."""

# Runs on whatever Python it is, so nothing in it is newer than what old ones can read.
_TRIAL = """
import sys, json
try:
    import numpy
    said = ""
except Exception as error:
    said = type(error).__name__ + ": " + str(error)
print(json.dumps([sys.version_info[:2], said]))
"""
_TRIAL_S = 120.0


def environment_in(folder: Path, place: str, confinement: Confinement | None = None) -> Environment:
    """Return the Environment in `folder`.

    One made by conda finds its libraries, too. Raises InvalidConfig, whose text begins with
    `place`.
    """
    python = folder / "bin" / "python"
    if not python.is_file():
        raise InvalidConfig(f"{place} has no interpreter, bin/python")
    # What activating the environment would set: models start programs of it by name.
    variables = {"PATH": f"{folder / 'bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}
    # Conda's packages bring libraries of C in lib/, which programs find only by this variable;
    # wheels bring theirs inside.
    if (folder / "conda-meta").is_dir():
        before = os.environ.get("LD_LIBRARY_PATH")
        libraries = str(folder / "lib")
        variables["LD_LIBRARY_PATH"] = f"{libraries}{os.pathsep}{before}" if before else libraries
        variables["CONDA_PREFIX"] = str(folder)
    else:
        variables["VIRTUAL_ENV"] = str(folder)
    return Environment(python, variables, confinement=confinement)


def try_out(environment: Environment, place: str) -> None:
    """Raise InvalidConfig unless the Python of `environment` can run models."""
    try:
        done = subprocess.run(
            environment.command("-c", _TRIAL),
            env=environment.all_variables(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TRIAL_S,
            check=True,
        )
        # The last line: a sitecustomize may print before it.
        version, complaint = json.loads(done.stdout.splitlines()[-1])
    except OSError as error:
        raise InvalidConfig(f"{place}: its Python cannot be started: {error.strerror}") from error
    except (subprocess.SubprocessError, ValueError, IndexError) as error:
        printed = getattr(error, "stderr", None) or b""
        last = printed.decode(errors="replace").strip().rpartition("\n")[2]
        msg = f"{place}: its Python does not work: {printable(last) or type(error).__name__}"
        raise InvalidConfig(msg) from error
    if tuple(version) < OLDEST:
        got, wanted = (".".join(map(str, one)) for one in (version, OLDEST))
        raise InvalidConfig(f"{place} has Python {got}, expected {wanted} or newer")
    if complaint:
        msg = f"{place} has no numpy that works, which models need: {printable(complaint)}"
        raise InvalidConfig(msg)
