"""Finds the interpreters of this machine that inferd can be built for and run on."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

OLDEST = (3, 11)
_ASK = (
    "import json, sys, sysconfig; print(json.dumps([sys.implementation.name,"
    " sys.version_info[:2], bool(sysconfig.get_config_var('Py_GIL_DISABLED'))]))"
)


class Python(NamedTuple):
    """An interpreter, and the tag that wheels for it have, such as cp312."""

    path: str
    minor: tuple[int, int]
    tag: str


def find_pythons() -> list[Python]:
    """Return one CPython for each minor version from OLDEST on, the oldest first."""
    found: dict[tuple[int, int], Python] = {}
    for candidate in _candidates():
        python = look_at(candidate)
        if python is not None:
            found.setdefault(python.minor, python)
    return [found[minor] for minor in sorted(found)]


def look_at(path: str) -> Python | None:
    """Return what `path` is; None if it does not run, is too old, or is no CPython with a GIL."""
    try:
        done = subprocess.run([path, "-c", _ASK], capture_output=True, text=True, timeout=20)
        name, minor, is_free_threaded = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):  # such as a version manager's stub
        return None
    if name != "cpython" or is_free_threaded or tuple(minor) < OLDEST:
        return None
    return Python(path, (minor[0], minor[1]), f"cp{minor[0]}{minor[1]}")


def _candidates() -> list[str]:
    """Return paths of what may be interpreters: of a version manager first, then on PATH.

    An environment's own Python would do as well, but it changes with the environment.
    """
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    managed = sorted(map(str, root.glob("versions/3.*/bin/python")), reverse=True)
    names = (f"python3.{minor}" for minor in range(OLDEST[1], OLDEST[1] + 9))
    return managed + [path for path in map(shutil.which, names) if path]


if __name__ == "__main__":
    for one in find_pythons():
        print(one.tag, one.path)
