"""Uv: makes environments of requirements.txt and pyproject.toml files."""

import os
import shutil
import sys
from pathlib import Path

from inferd.backends.worker.command import run_command
from inferd.backends.worker.environment import Environment
from inferd.errors import InvalidConfig, Unsupported


class Uv:
    """The program uv, each run of which may take `timeout_s`.

    Everything here waits for it: it is for a thread.
    """

    def __init__(self, program: str, timeout_s: float) -> None:
        self._program = program
        self._timeout_s = timeout_s

    def interpreter(self, wanted: str, folder: Path, place: str) -> Path:
        """Return the Python on this machine that `wanted` means: a version, a range, or a path.

        Raises InvalidConfig when there is none, BackendFailed when uv takes too long.
        """
        if wanted.startswith("-"):
            msg = f"{place}: '{wanted}' is no Python, expected a version, a range or a path"
            raise InvalidConfig(msg)
        command = ("python", "find", "--no-project", wanted)
        return Path(self._run(command, folder, place))

    def make(self, target: Path, python: Path, source: Path, place: str) -> None:
        """Make an environment in `target` of what the file `source` asks for, and of numpy.

        Raises InvalidConfig with the last lines that uv printed when there can be none,
        BackendFailed when it takes too long.
        """
        folder = source.parent
        venv = ("venv", "--no-project", "--python", str(python), str(target))
        self._run(venv, folder, place)
        inside = str(target / "bin" / "python")
        install = ("pip", "install", "--python", inside, "-r", source.name, "numpy")
        self._run(install, folder, place)

    def _run(self, words: tuple[str, ...], folder: Path, place: str) -> str:
        variables = Environment().all_variables()
        variables.pop("VIRTUAL_ENV", None)
        variables |= {"UV_NO_PROGRESS": "1", "NO_COLOR": "1"}
        # The server's own Python is the first that is looked at.
        path = variables.get("PATH", os.defpath)
        variables["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{path}"
        # A load shall not fetch interpreters unless whoever runs the server says so.
        variables.setdefault("UV_PYTHON_DOWNLOADS", "never")
        command = (self._program, *words)
        return run_command(
            command, place, folder=folder, timeout_s=self._timeout_s, variables=variables
        )


def find_uv(place: str) -> str:
    """Return where uv is: the package of that name, or a program. Raises Unsupported."""
    try:
        from uv import find_uv_bin
    except ImportError:
        pass
    else:
        try:
            return str(find_uv_bin())
        except FileNotFoundError:  # a package without its program
            pass
    found = shutil.which("uv")
    if found is None:
        msg = f"{place} needs uv to be made: pip install 'inferd[environments]'"
        raise Unsupported(msg)
    return found
