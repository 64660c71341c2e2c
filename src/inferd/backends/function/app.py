"""App files: Python files that define models, for `inferd serve app.py`."""

import hashlib
import importlib.util
import os
import sys
import traceback
from pathlib import Path

from inferd.backends.function.model import Model
from inferd.core.interfaces import GivenModel
from inferd.errors import InvalidConfig


def read_app(path: Path) -> list[GivenModel]:
    """Run the file and return the models it defines, in order.

    Its folder comes first in sys.path, as when Python runs it. Raises InvalidConfig with file and
    line if it fails, or if it defines no model.
    """
    path = path.absolute()
    folder = str(path.parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    mark = hashlib.sha256(os.fsencode(path)).hexdigest()[:8]
    name = f"inferd_app_{mark}_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        msg = f"'{path.name}' is no Python file"
        raise InvalidConfig(msg)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and annotations look up their module there
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        raise InvalidConfig(_complaint(path, error)) from error
    found = {id(one): one.given for one in vars(module).values() if isinstance(one, Model)}
    if not found:
        msg = (
            f"{path.name} defines no model: put @inferd.model over a function, or write "
            f"inferd.Model(function) at the top level"
        )
        raise InvalidConfig(msg)
    return list(found.values())


def _complaint(path: Path, error: BaseException) -> str:
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return f"{path.name}, line {error.lineno}: SyntaxError: {error.msg}"
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == str(path)
    ]
    where = f"{path.name}, line {lines[-1]}" if lines else path.name
    return f"{where}: {type(error).__name__}: {error}"
