"""The code of a Python model: where it lies, perhaps outside of its folder, and a look at it."""

import ast
import warnings
from collections.abc import Iterator
from pathlib import Path

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
        msg = f"this is no Python: {error.msg}"
        raise BadCode(msg, *place) from error
    except ValueError as error:  # a null byte
        msg = f"this is no Python: {error}"
        raise BadCode(msg, files.file) from error
    if _MODEL_CLASS not in _names(tree):
        msg = f"it defines no class {_MODEL_CLASS}"
        raise BadCode(msg, files.file)


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
