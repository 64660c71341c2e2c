"""Uv: creates environments from requirements.txt and pyproject.toml files."""

import os
import shutil
import sys
from pathlib import Path

from inferd.backends.worker.environments.command import run_command
from inferd.backends.worker.environments.environment import Environment
from inferd.errors import InvalidConfig, Unsupported


class Uv:
    """The program uv, each run of which may take `timeout_s`.

    Everything here waits for uv, so it must run in a thread.
    """

    def __init__(self, program: str, timeout_s: float) -> None:
        self._program = program
        self._timeout_s = timeout_s

    def interpreter(self, wanted: str, folder: Path, place: str) -> Path:
        """Return the Python on this machine that matches `wanted`: a version, a range or a path.

        Raises InvalidConfig if there is none, BackendFailed if uv takes too long.
        """
        # It would be an option of uv.
        if wanted.startswith("-"):
            msg = f"{place}: '{wanted}' is no Python, expected a version, a range or a path"
            raise InvalidConfig(msg)
        command = ("python", "find", "--no-project", wanted)
        return Path(self._run(command, folder, place))

    def make(self, target: Path, python: Path, folder: Path, source: str, place: str) -> None:
        """Create an environment in `target` with numpy and what the file `source` requires.

        `source` lies in `folder`; "" if there is none. Raises InvalidConfig with the last lines
        that uv printed if that fails, BackendFailed if it takes too long.
        """
        venv = ("venv", "--no-project", "--python", str(python), str(target))
        self._run(venv, folder, place)
        inside = str(target / "bin" / "python")
        required = ("-r", source) if source else ()
        # numpy in the same resolution as the rest: added later, it could replace
        # the version that something else needs.
        install = ("pip", "install", "--python", inside, *required, "numpy")
        self._run(install, folder, place)

    def _run(self, words: tuple[str, ...], folder: Path, place: str) -> str:
        variables = Environment().all_variables()
        # It may be the server's, which uv would take for the one that is meant.
        variables.pop("VIRTUAL_ENV", None)
        variables |= {"UV_NO_PROGRESS": "1", "NO_COLOR": "1"}
        # Let uv find the server's own Python first.
        path = variables.get("PATH", os.defpath)
        variables["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{path}"
        # A load must not download interpreters unless the server's operator allows it.
        variables.setdefault("UV_PYTHON_DOWNLOADS", "never")
        command = (self._program, *words)
        return run_command(
            command, place, folder=folder, timeout_s=self._timeout_s, variables=variables
        )


def find_uv(place: str) -> str:
    """Return the path of uv, from its Python package or else from PATH. Raises Unsupported."""
    try:
        from uv import find_uv_bin
    except ImportError:
        pass
    else:
        try:
            return str(find_uv_bin())
        except FileNotFoundError:  # the package lacks its program
            pass
    found = shutil.which("uv")
    if found is None:
        msg = f"{place} needs uv to be made: pip install 'inferd[environments]'"
        raise Unsupported(msg)
    return found
