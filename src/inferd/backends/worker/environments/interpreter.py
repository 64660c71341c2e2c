"""Interpreter: finds the Python in an environment's folder, and tries it out."""

import json
import os
import subprocess
from pathlib import Path

from inferd.backends.worker.environments.command import printable
from inferd.backends.worker.environments.environment import Environment
from inferd.core.confinement import Confinement
from inferd.errors import InvalidConfig

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
        msg = f"{place} has no interpreter, bin/python"
        raise InvalidConfig(msg)
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
        msg = f"{place}: its Python cannot be started: {error.strerror}"
        raise InvalidConfig(msg) from error
    except (subprocess.SubprocessError, ValueError, IndexError) as error:
        printed = getattr(error, "stderr", None) or b""
        last = printed.decode(errors="replace").strip().rpartition("\n")[2]
        msg = f"{place}: its Python does not work: {printable(last) or type(error).__name__}"
        raise InvalidConfig(msg) from error
    if tuple(version) < OLDEST:
        got, wanted = (".".join(map(str, one)) for one in (version, OLDEST))
        msg = f"{place} has Python {got}, expected {wanted} or newer"
        raise InvalidConfig(msg)
    if complaint:
        msg = f"{place} has no numpy that works, which models need: {printable(complaint)}"
        raise InvalidConfig(msg)
