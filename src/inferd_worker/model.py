"""The model's own code: its import, whether it calls itself ready, and its failures."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.machinery
import importlib.util
import inspect
import json
import os
import sys
import threading
import traceback
import types
from typing import TYPE_CHECKING, Any

import numpy as np

from .pb_utils.config import ModelConfig
from .pb_utils.error import TritonModelException, kind_of, text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MAX_TEXT = 2000

PATIENCE_S = 1.0
"""How long requests wait while the model is asked; then they run alongside its is_ready."""


class ModelFailed(Exception):
    """The model's code failed or is invalid; the text is for clients."""


def import_class(file: str, code_folder: str, folder: str) -> object:
    """Return the class TritonPythonModel of `file`, in `folder`. Raises ModelFailed.

    The module is named <code folder>.<stem>, such as 1.model, and belongs to a package, so that it
    can import its neighbours with `from . import x`.
    """
    # As in Triton, whose workers run in the server's working directory.
    sys.path[:0] = [""]
    sys.path += [code_folder, folder]
    version = os.path.basename(code_folder)
    package = types.ModuleType(version)
    package.__path__ = [code_folder]
    # Before the import, which looks relative imports up here.
    sys.modules[version] = package
    name = f"{version}.{os.path.splitext(os.path.basename(file))[0]}"
    # An explicit loader: with default_model_filename, the file need not be called *.py.
    loader = importlib.machinery.SourceFileLoader(name, file)
    spec = importlib.util.spec_from_file_location(name, file, loader=loader)
    return class_of(spec, file, folder)


def class_of(spec: Any, file: str, folder: str) -> Any:
    """Import `file` as the module `spec` and return its class. Raises ModelFailed."""
    if spec is None or spec.loader is None or not os.path.isfile(file):
        raise ModelFailed(f"there is no file {shown(file, folder)}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        raise ModelFailed(error_text(error, folder)) from error
    found = getattr(module, "TritonPythonModel", None)
    if not isinstance(found, type):
        raise ModelFailed(f"{shown(file, folder)} defines no class TritonPythonModel")
    if not callable(getattr(found, "execute", None)):
        raise ModelFailed(f"class TritonPythonModel in {shown(file, folder)} has no method execute")
    return found


def error_text(error: BaseException, folder: str) -> str:
    """Return type and text of `error`, and the place in the model's folder that raised it."""
    text = text_of(error)
    # A file that cannot be parsed has no frame in the traceback.
    if isinstance(error, SyntaxError) and error.filename:
        text = f"{type(error).__name__}: {error.msg}"
        return f"{text[:MAX_TEXT]} ({shown(error.filename, folder)}, line {error.lineno})"
    text = text.replace(folder + os.sep, "")
    if len(text) > MAX_TEXT:
        # Both ends: frameworks put what went wrong first or last.
        text = f"{text[: MAX_TEXT // 2]} ... {text[-MAX_TEXT // 2 :]}"
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.filename.startswith(folder + os.sep):
            return f"{text} ({shown(frame.filename, folder)}, line {frame.lineno}, in {frame.name})"
    return text


def full(error: BaseException) -> str:
    """Return the traceback, for the log."""
    return "".join(traceback.format_exception(type(error), error, error.__traceback__))


def shown(file: str, folder: str) -> str:
    """Return `file` relative to the model's folder, so that no path of this machine shows."""
    if file.startswith(folder + os.sep):
        return file[len(folder) + 1 :]
    return os.path.basename(file)


def complete(kind: Any, config: dict[str, Any]) -> str | None:
    """Return the configuration from auto_complete_config, as JSON; None without that method."""
    method = getattr(kind, "auto_complete_config", None)
    if method is None:
        return None
    given = ModelConfig(config)
    completed = method(given)
    if not isinstance(completed, ModelConfig):
        raise TritonModelException(
            f"auto_complete_config returned {kind_of(completed)}, expected the "
            f"ModelConfig it was given"
        )
    return json.dumps(completed.as_dict())


@contextlib.contextmanager
def deputed(work: Callable[[Callable[[], bool]], None]) -> Iterator[None]:
    """Have another thread do `work` if this one does not leave within PATIENCE_S.

    `work` is called with a function that returns whether this thread has come back. It should then
    end; leaving waits until it has.
    """
    is_back = threading.Event()

    def wait_then_work() -> None:
        if not is_back.wait(PATIENCE_S):
            work(is_back.is_set)

    # A daemon, as a model that hangs must not keep its process alive.
    deputy = threading.Thread(target=wait_then_work, daemon=True)
    deputy.start()
    try:
        yield
    finally:
        is_back.set()
        # Two threads must not run the model at once, unless is_ready itself takes that long.
        deputy.join()


def ask(model: Any) -> tuple[bool, str]:
    """Return whether `model` is ready, and a text to log if it gave no proper answer."""
    try:
        said = model.is_ready()
        if inspect.isawaitable(said):
            # Wrapped, as asyncio.run() takes coroutines only, not every awaitable.
            said = asyncio.run(_result(said))
    except (Exception, SystemExit) as error:  # noqa: BLE001  whatever a model raises
        return _failed(error)
    return _as_reply(said)


async def ask_async(model: Any) -> tuple[bool, str]:
    """Return the same as `ask`, on the event loop where the model executes."""
    try:
        said = model.is_ready()
        if inspect.isawaitable(said):
            said = await said
    # What a model raises here says that it is not ready; the process goes on.
    except (Exception, SystemExit) as error:  # noqa: BLE001
        return _failed(error)
    return _as_reply(said)


async def _result(said: Any) -> Any:
    return await said


def _failed(error: BaseException) -> tuple[bool, str]:
    return False, "is_ready failed: " + full(error)


def _as_reply(said: Any) -> tuple[bool, str]:
    if isinstance(said, (bool, np.bool_)):
        return bool(said), ""
    return False, f"is_ready returned {kind_of(said)}, expected True or False"
