"""The code of a Python model: where it lies, perhaps outside of its folder, a look, its imports."""

import ast
import builtins
import importlib
import sys
import uuid
import warnings
from collections.abc import Iterator, Mapping, Sequence
from importlib.machinery import (
    SOURCE_SUFFIXES,
    FileFinder,
    ModuleSpec,
    PathFinder,
    SourceFileLoader,
)
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import inferd_worker
from inferd.core.interfaces import ModelFiles
from inferd.core.offline import BadCode

_MODEL_CLASS = "TritonPythonModel"


def code_folders(files: ModelFiles) -> tuple[Path, Path]:
    """Return the folder with the model's code, and its parent, relative to which texts name files.

    These are the version's folder and the model's; for a Python-based backend, the backend's
    folder and the one that holds all backends.
    """
    if files.file.is_relative_to(files.folder):
        return files.version_folder, files.folder
    return files.file.parent, files.file.parent.parent


def check_code(source: bytes, files: ModelFiles) -> None:
    """Raise BadCode for code that no Python reads, or that cannot define the class of a model."""
    try:
        # Invalid escapes in a string warn as it is parsed; they are no error of the model.
        with warnings.catch_warnings(action="ignore"):
            tree = ast.parse(source)
    except SyntaxError as error:
        place = files.file, error.lineno or 0, error.offset or 0
        raise BadCode(f"this is no Python: {error.msg}", *place) from error
    except ValueError as error:  # a null byte
        raise BadCode(f"this is no Python: {error}", files.file) from error
    if _MODEL_CLASS not in _names(tree):
        raise BadCode(f"it defines no class {_MODEL_CLASS}", files.file)


def _names(tree: ast.Module) -> Iterator[str]:
    """Yield the names that a module may define; the class's own if that cannot be told."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.alias):
            yield _MODEL_CLASS if node.name == "*" else node.asname or node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        # Whatever is executed there may define the class: better no complaint than a wrong one.
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("exec", "globals"):
            yield _MODEL_CLASS


API = ("triton_python_backend_utils", "c_python_backend_utils")


class PrivateModules:
    """Separate imports for a model.py in the server's own process, from `open` to `close`.

    Each instance has its own copy of triton_python_backend_utils, which knows its instance: a
    function like Logger.log_info has no object to tell it. The name leads to the copy only in the
    model's own modules, whose `import` statements are handled here. So are imports of files beside
    model.py, whose names two models may share. What is compiled can be imported once alone, so the
    copies are of the sources.

    The modules belong to two packages with unique names: the copy of the API and the modules it
    needs, and the files of the model.
    """

    def __init__(self) -> None:
        self._name = f"inferd_model_{uuid.uuid4().hex}"
        self._files = f"{self._name}.files"
        self._api = f"{self._name}.inferd_worker"
        # An `import` statement calls the __import__ of its module's own __builtins__ (Python
        # reference, The import statement): so only the model's modules are redirected.
        self._builtins = vars(builtins) | {"__import__": self._import}

    def open(self, folders: Sequence[Path]) -> None:
        """Register the packages; the model's files lie in `folders`."""
        _package(self._name, [])
        _package(self._api, list(inferd_worker.__path__))
        _package(self._files, [str(folder) for folder in folders])
        # First, as Python's own finders would not know the names, but would search for them.
        sys.meta_path.insert(0, self)

    def close(self) -> None:
        """Remove the modules."""
        sys.meta_path.remove(self)
        for name in list(sys.modules):
            if name == self._name or name.startswith(f"{self._name}."):
                del sys.modules[name]

    def ours(self, name: str) -> Any:
        """Return this instance's copy of a module of inferd_worker."""
        return importlib.import_module(f"{self._api}.{name}")

    def find_class(self, file: str, code_folder: str, folder: str) -> Any:
        """Return the model's class; see inferd_worker.model.import_class."""
        del code_folder
        name = f"{self._files}.{Path(file).stem}"
        spec = spec_from_file_location(name, file, loader=_Loader(name, file, self._builtins))
        return self.ours("model").class_of(spec, file, folder)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find the model's files and the sources of the API; called by the import system."""
        if name.startswith(f"{self._api}.") and path:
            # Sources only: the compiled modules of the same folder initialise once per process.
            return FileFinder(path[0], (SourceFileLoader, SOURCE_SUFFIXES)).find_spec(name)
        if not name.startswith(f"{self._files}."):
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and type(spec.loader) is SourceFileLoader:
            spec.loader = _Loader(name, spec.loader.path, self._builtins)
        return spec

    def _import(
        self,
        name: str,
        globals: Mapping[str, object] | None = None,
        locals: Mapping[str, object] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> Any:
        """Carry out an `import` statement in the model."""
        if level == 0 and name in API:
            return self.ours("api")
        top = name.partition(".")[0]
        # Installed packages come first, as without a server, unless the
        # model has imported its own before.
        is_file = level == 0 and f"{self._files}.{top}" in sys.modules
        if not is_file:
            try:
                return builtins.__import__(name, globals, locals, fromlist or (), level)
            except ModuleNotFoundError as error:
                # error.name tells a missing module from one that is found and misses another.
                if level or error.name != top or not self._has(top):
                    raise
        whole = f"{self._files}.{name}"
        # `import a.b` binds a, `from a.b import c` needs a.b: what __import__ returns differs.
        if fromlist:
            return builtins.__import__(whole, globals, locals, fromlist, 0)
        importlib.import_module(whole)
        return sys.modules[f"{self._files}.{top}"]

    def _has(self, top: str) -> bool:
        name = f"{self._files}.{top}"
        return self.find_spec(name, sys.modules[self._files].__path__) is not None


class _Loader(SourceFileLoader):
    """Runs the source with its own builtins, including the `__import__` of import statements."""

    def __init__(self, name: str, path: str, builtins: dict[str, Any]) -> None:
        super().__init__(name, path)
        self._builtins = builtins

    def exec_module(self, module: ModuleType) -> None:
        """Run the source as `module`."""
        vars(module)["__builtins__"] = self._builtins
        super().exec_module(module)


def _package(name: str, path: list[str]) -> None:
    package = ModuleType(name)
    package.__path__ = path
    sys.modules[name] = package
