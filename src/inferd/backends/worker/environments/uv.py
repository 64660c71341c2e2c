"""Uv: creates environments from requirements.txt and pyproject.toml files."""

import os
import shutil
import sys
from pathlib import Path

from inferd.backends.worker.environments.command import run_command
from inferd.backends.worker.environments.environment import Environment
from inferd.errors import InvalidConfig, Unsupported


class Uv:
    """The program uv, run in `folder`; each run may take `timeout_s`. `place` begins error texts.

    Everything here waits for uv, so it must run in a thread. Raises Unsupported if it is missing.
    """

    def __init__(self, folder: Path, timeout_s: float, place: str) -> None:
        self._program = find_uv(place)
        self._folder = folder
        self._timeout_s = timeout_s
        self._place = place

    def interpreter(self, wanted: str) -> Path:
        """Return the Python on this machine that matches `wanted`: a version, a range or a path.

        Raises InvalidConfig if there is none, BackendFailed if uv takes too long.
        """
        # It would be an option of uv.
        if wanted.startswith("-"):
            msg = f"{self._place}: '{wanted}' is no Python, expected a version, a range or a path"
            raise InvalidConfig(msg)
        return Path(self._run("python", "find", "--no-project", wanted))

    def make(self, target: Path, python: Path, source: str) -> None:
        """Create an environment in `target` with numpy and what the file `source` requires.

        `source` lies in the folder; "" if there is none. Raises InvalidConfig with the last lines
        that uv printed if that fails, BackendFailed if it takes too long.
        """
        self._run("venv", "--no-project", "--python", str(python), str(target))
        inside = str(target / "bin" / "python")
        required = ("-r", source) if source else ()
        # numpy in the same resolution as the rest: added later, it could replace
        # the version that something else needs.
        self._run("pip", "install", "--python", inside, *required, "numpy")

    def _run(self, *words: str) -> str:
        variables = Environment().all_variables()
        # It may be the server's, which uv would take for the one that is meant.
        variables.pop("VIRTUAL_ENV", None)
        variables |= {"UV_NO_PROGRESS": "1", "NO_COLOR": "1"}
        # Let uv find the server's own Python first.
        path = variables.get("PATH", os.defpath)
        variables["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{path}"
        # A load must not download interpreters unless the server's operator allows it.
        variables.setdefault("UV_PYTHON_DOWNLOADS", "never")
        return run_command(
            (self._program, *words),
            self._place,
            folder=self._folder,
            timeout_s=self._timeout_s,
            variables=variables,
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
