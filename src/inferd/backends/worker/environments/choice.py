"""Environments: which interpreter runs a model, by its configuration and its folder.

EXECUTION_ENV_PATH names an environment, packed or not, as in Triton. A requirements.txt or a
pyproject.toml in the model's folder describes one, and so does a Python in the configuration: it
is created by uv when the model loads, and kept for the next time. Otherwise a model runs on the
server's own interpreter.
"""

import hashlib
import logging
import os
import platform
import shutil
import sys
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from inferd.backends.worker.environments.archive import Limits, unpack
from inferd.backends.worker.environments.cache import DEFAULT_COUNT, DONE, FolderCache
from inferd.backends.worker.environments.command import run_command
from inferd.backends.worker.environments.environment import Environment, environment_in, try_out
from inferd.config.model import ModelConfig
from inferd.core.confinement import Confinement
from inferd.core.interfaces import ModelFiles
from inferd.errors import InvalidConfig, Unsupported

log = logging.getLogger("inferd.backends")

CACHE_SETTING = "environment-directory"
"""The setting of --backend-config=python,... with the folder where environments are kept."""

PATH_PARAMETER = "EXECUTION_ENV_PATH"
"""The config parameter that names an environment: its folder, or an archive of it."""

PYTHON_PARAMETER = "inferd_python"
"""The config parameter with the Python of a new environment: a version or a path."""

CHOICE_PARAMETER = "inferd_environment"
"""The config parameter that, if "server", selects the server's own interpreter."""

MODEL_FOLDER = "$$TRITON_MODEL_DIRECTORY"
"""The placeholder for the model's folder in EXECUTION_ENV_PATH."""

REQUIREMENTS = "requirements.txt"
PROJECT = "pyproject.toml"
VERSION_FILE = ".python-version"

DEFAULT_TIMEOUT_S = 1800.0
"""How long it may take to create an environment."""

_MAX_FILE_BYTES = 1 << 20
_MAX_VERSION = 200
_LAYOUT = b"1"  # of the kept folders: changing it invalidates all of them


@dataclass(frozen=True)
class Environments:
    """Finds and creates environments; those it creates are kept in `cache`, `count` of them.

    Without a `cache` the default is used, and looked up only once there is something to keep: the
    server's user may have no home. With a `confinement`, what they run is confined, and none is
    created. Everything here waits for the disk and for programs, so it must run in a thread.
    """

    cache: Path | None
    timeout_s: float = DEFAULT_TIMEOUT_S
    count: int = DEFAULT_COUNT
    confinement: Confinement | None = None

    def resolve(self, files: ModelFiles, config: ModelConfig) -> Environment:
        """Return the environment that runs the model in `files`.

        Raises InvalidConfig for an environment that is missing, does not work or cannot be
        created, Unsupported without uv, BackendFailed if creating it takes too long, Unavailable if
        another load that creates it takes too long.
        """
        model = f"model '{config.name}'"
        given = config.parameters.get(PATH_PARAMETER, "")
        if given:
            # As in Triton, and before anything that is found in the folder: it was named.
            return self._given(files.folder, given, f"{model}: {PATH_PARAMETER}")
        choice = config.parameters.get(CHOICE_PARAMETER, "auto")
        if choice not in ("auto", "server"):
            msg = f"{model}: parameter {CHOICE_PARAMETER} is '{choice}', expected auto or server"
            raise InvalidConfig(msg)
        if choice == "server":
            return Environment(confinement=self.confinement)
        source = _source(files, model)
        python = config.parameters.get(PYTHON_PARAMETER, "")
        if source is None and not python:
            return Environment(confinement=self.confinement)
        return self._made(files.folder, source, python, model)

    def _given(self, folder: Path, text: str, place: str) -> Environment:
        path = folder / text.replace(MODEL_FOLDER, str(folder))
        place = f"{place} '{path.name}'"
        if _is_there(path) and path.is_dir():
            environment = environment_in(path, place, self.confinement)
            try_out(environment, place)
            return environment
        if not _is_there(path) or not path.is_file():
            msg = f"{place} is not there: expected the folder of an environment, or an archive"
            raise InvalidConfig(msg)
        state = path.stat()
        # By size and time, as with make: to read gigabytes at each load
        # would cost more than it is worth.
        key = _key(str(path.resolve()).encode(), state.st_size, state.st_mtime_ns)

        def make(target: Path) -> None:
            log.info("%s: unpacking it", place)
            # Somebody may have packed an environment of ours: with its mark, the folder would be
            # taken for complete while it is unpacked, and after a crash.
            unpack(path, target, Limits(timeout_s=self.timeout_s), place, without=DONE)
            # Part of what makes the folder, so that one which does not work is never kept.
            self._finish(_top(target), place)

        return self._from_cache(key, make, place)

    def _finish(self, folder: Path, place: str) -> None:
        """Run conda-unpack to fix the packed paths, and try the environment out."""
        environment = environment_in(folder, place, self.confinement)
        program = folder / "bin" / "conda-unpack"
        if program.is_file():
            run_command(
                environment.command(str(program), writable=(str(folder),)),
                place,
                folder=folder,
                timeout_s=self.timeout_s,
                variables=environment.all_variables(),
            )
        try_out(environment, place)

    def _made(self, folder: Path, source: Path | None, python: str, model: str) -> Environment:
        name = source.name if source is not None else f"parameter {PYTHON_PARAMETER}"
        place = f"{model}: the environment of its {name}"
        if self.confinement is not None:
            raise InvalidConfig(
                f"{place} is not made with --confine-workers=on, as that may run code of whoever "
                f"wrote it: pack an environment and name it with {PATH_PARAMETER}"
            )
        content = source.read_bytes() if source is not None else b""
        uv = Uv(folder, self.timeout_s, place)
        wanted = python or _wanted_python(folder, name, content)
        interpreter = uv.interpreter(wanted)
        # A Python that is updated in place gives another environment.
        state = interpreter.stat()
        key = _key(content, name, interpreter, state.st_size, state.st_mtime_ns)

        def make(target: Path) -> None:
            uv.make(target, interpreter, "" if source is None else name)
            try_out(environment_in(target, place, self.confinement), place)

        return self._from_cache(key, make, place)

    def _from_cache(self, key: str, make: Callable[[Path], None], place: str) -> Environment:
        """Return the environment of `key`, created if need be. Raises InvalidConfig."""
        try:
            cache = self.cache or default_cache()
        except RuntimeError as error:
            raise InvalidConfig(
                f"{place}: there is no home folder to keep it in; "
                f"--backend-config=python,{CACHE_SETTING}=FOLDER names one"
            ) from error
        use = FolderCache(cache, self.count).use(key, make, self.timeout_s, place)
        return replace(environment_in(_top(use.folder), place, self.confinement), in_use=use)


def requested_environment(files: ModelFiles, config: ModelConfig) -> str:
    """Return what asks for an interpreter other than the server's, "" for nothing.

    Raises InvalidConfig for files that contradict each other.
    """
    for name in (PATH_PARAMETER, PYTHON_PARAMETER):
        if config.parameters.get(name):
            return f"parameter {name}"
    if config.parameters.get(CHOICE_PARAMETER) == "server":
        return ""
    source = _source(files, f"model '{config.name}'")
    return source.name if source is not None else ""


def default_cache() -> Path:
    """Return the default folder of kept environments.

    Raises RuntimeError if there is no home folder.
    """
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "inferd" / "environments"


def _source(files: ModelFiles, model: str) -> Path | None:
    """Return the file that describes the environment, None if there is none.

    A pyproject.toml that only configures tools does not count, nor does a file next to a model
    served without a repository: it belongs to the user's project. Raises InvalidConfig.
    """
    if files.folder == files.version_folder:
        return None
    requirements, project = files.folder / REQUIREMENTS, files.folder / PROJECT
    found = [path for path in (requirements, project) if path.is_file()]
    for path in found:
        if path.stat().st_size > _MAX_FILE_BYTES:
            raise InvalidConfig(f"{model}: its {path.name} has more than {_MAX_FILE_BYTES} bytes")
    if project in found and not isinstance(_table(project, model).get("project"), dict):
        found.remove(project)
    if len(found) > 1:
        msg = f"{model} has a {REQUIREMENTS} and a {PROJECT} with a project; keep one of them"
        raise InvalidConfig(msg)
    return found[0] if found else None


def _table(project: Path, model: str) -> dict[str, object]:
    try:
        return tomllib.loads(project.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidConfig(f"{model}: its {PROJECT} is not TOML: {error}") from error


def _wanted_python(folder: Path, name: str, content: bytes) -> str:
    """Return the Python that `folder`, or its file `name`, asks for, or the server's own."""
    file = folder / VERSION_FILE
    if file.is_file():
        with file.open(encoding="utf-8", errors="replace") as text:
            words = text.read(_MAX_VERSION).split()
        if words:
            return words[0]
    if name == PROJECT:
        wanted = tomllib.loads(content.decode())["project"].get("requires-python")
        if isinstance(wanted, str) and wanted:
            return wanted
    return sys.executable


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # no valid file name
        return False


def _key(content: bytes, *parts: object) -> str:
    mark = hashlib.sha256(_LAYOUT)
    for part in (content, *(str(one).encode() for one in (platform.machine(), *parts))):
        mark.update(hashlib.sha256(part).digest())
    return mark.hexdigest()[:32]


def _top(folder: Path) -> Path:
    """Return the root of an environment: `folder`, or the only folder in it."""
    inside = [one for one in folder.iterdir() if one.is_dir()]
    has_one = len(inside) == 1 and not (folder / "bin").is_dir()
    return inside[0] if has_one else folder


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
        raise Unsupported(f"{place} needs uv to be made: pip install 'inferd[environments]'")
    return found
