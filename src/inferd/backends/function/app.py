"""App files: Python files that define models, for `inferd serve app.py`."""

import hashlib
import importlib.util
import os
import pkgutil
import sys
import traceback
from pathlib import Path
from types import ModuleType

from inferd.backends.function.model import Model
from inferd.core.interfaces import GivenModel
from inferd.errors import InvalidConfig

_PREFIX = "inferd_app_"
"""How the names of app files begin among the modules."""


def read_app(path: Path) -> list[GivenModel]:
    """Run the file and return the models it defines, in order.

    Its folder comes first in sys.path, as when Python runs it, and what it imports from there is
    its own, also if another app file has imported a module of that name. Raises InvalidConfig with
    file and line if it fails, or if it defines no model.
    """
    path = path.absolute()
    folder = str(path.parent)
    if sys.path[:1] != [folder]:
        sys.path.insert(0, folder)
    _forget_namesakes(folder)
    # Two app files of one name, in other folders, are two modules.
    mark = hashlib.sha256(os.fsencode(path)).hexdigest()[:8]
    name = f"{_PREFIX}{mark}_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InvalidConfig(f"'{path.name}' is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and annotations look up their module there
    try:
        spec.loader.exec_module(module)
    # BaseException: an app file may call sys.exit(), which must not end the server.
    except BaseException as error:
        del sys.modules[name]
        raise InvalidConfig(_complaint(path, error)) from error
    # By id: a model that is bound to two names is one model.
    found = {id(one): one.given for one in vars(module).values() if isinstance(one, Model)}
    if not found:
        raise InvalidConfig(
            f"{path.name} defines no model: put @inferd.model over a function, or write "
            f"inferd.Model(function) at the top level"
        )
    return list(found.values())


def _forget_namesakes(folder: str) -> None:
    """Forget the modules beside app files elsewhere that have the name of a module in `folder`.

    What has imported them keeps them.
    """
    loaded = list(sys.modules.items())
    apps = {_folder_of(module) for name, module in loaded if name.startswith(_PREFIX)} - {folder}
    if not apps:
        return
    for one in pkgutil.iter_modules([folder]):
        if one.name in sys.modules and _folder_of(sys.modules[one.name]) in apps:
            for name, _ in loaded:
                if name.partition(".")[0] == one.name:
                    # Only forgotten, with submodules: whoever has imported
                    # them goes on with the old ones.
                    sys.modules.pop(name, None)


def _folder_of(module: ModuleType) -> str:
    """Return the folder in which the module or package lies, "" if it does not say."""
    place = next(iter(getattr(module, "__path__", ())), None) or getattr(module, "__file__", None)
    return os.path.dirname(place) if place else ""


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
