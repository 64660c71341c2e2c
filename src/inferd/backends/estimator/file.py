"""Estimator: loads a scikit-learn model; the file must not run code unless allowed to."""

import re
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from threading import Lock
from types import ModuleType
from typing import Any

from inferd.config.model import ModelConfig
from inferd.config.parameter import is_on
from inferd.config.parameter_names import TRUSTED
from inferd.errors import BackendFailed, InvalidConfig, Unsupported, foreign_text

ALLOW_PICKLE = "inferd_allow_pickle"
"""The config parameter that allows a model file to be a pickle, which can run any code."""

PICKLES = (".joblib", ".pkl", ".pickle")

_PACKAGES = ("sklearn", "joblib", "skops.io")

_importing = Lock()
"""Guards imports: the modules of these packages import each other, so two threads that start at
different ends would deadlock, and Python raises an error in one. One lock for the process."""

# With the pauses, 2.25 s in all: an import of scikit-learn takes that long.
_MOST_TRIES = 10
_PAUSE_S = 0.05
_PARTIAL = "partially initialized module"

# Types that hold only numbers, which skops leaves to its callers to judge.
_HARMLESS = re.compile(
    r"sklearn\.(tree\._tree\.Tree|_loss\.(link|loss)\.\w+|"
    r"neural_network\._stochastic_optimizers\.\w+|"
    r"ensemble\._hist_gradient_boosting\.predictor\.TreePredictor|"
    r"ensemble\._hist_gradient_boosting\.binning\._BinMapper|"
    r"neighbors\._(kd|ball)_tree\.(KD|Ball)Tree(64|32)?|"
    # PyFuncDistance calls a function that the file names.
    r"metrics\._dist_metrics\.(?!PyFunc)\w+Distance(64|32)?|"
    r"utils\._bunch\.Bunch)"
)


def read_estimator(file: Path, config: ModelConfig) -> object:
    """Return the estimator in `file`. Raises InvalidConfig, Unsupported, BackendFailed."""
    what = f"'{file.name}'"
    check_pickle(file, config)
    try:
        with _importing:  # loading a file imports modules as well
            estimator = _untangled(lambda: _read(file, config))
    except (InvalidConfig, ModuleNotFoundError):
        raise
    except Exception as error:
        raise BackendFailed(f"{what} cannot be loaded: {foreign_text(error)}") from error
    # A pickle may hold anything, a dictionary of models too.
    if not any(callable(getattr(estimator, call, None)) for call in ("predict", "transform")):
        msg = f"{what} holds a {type(estimator).__name__}, which can neither predict nor transform"
        raise InvalidConfig(msg)
    return estimator


def check_pickle(file: Path, config: ModelConfig) -> None:
    """Raise Unsupported if `file` is a pickle, and these are not allowed for the model."""
    if file.suffix in PICKLES and not is_on(config, ALLOW_PICKLE):
        raise Unsupported(
            f"'{file.name}' is a pickle, which can run any code when it is loaded; set parameter "
            f"{ALLOW_PICKLE} to true if you trust it, or save the model with skops"
        )


def _read(file: Path, config: ModelConfig) -> Any:
    _, joblib, io = map(import_module, _PACKAGES)
    if file.suffix in PICKLES:
        # joblib's loader reads plain pickles as well.
        return joblib.load(file)
    return io.load(file, trusted=_trusted(io, file, config))


def _untangled(load: Callable[[], object]) -> object:
    """Return the result of `load`; retry if it lost an import race against another thread.

    Python reports that with an error of its own, or exposes a partially initialized module.
    """
    for turn in range(_MOST_TRIES):
        try:
            return load()
        except (RuntimeError, ImportError, AttributeError) as error:
            # Python's importlib raises it, but does not export the class.
            if type(error).__name__ != "_DeadlockError" and _PARTIAL not in str(error):
                raise
            time.sleep(turn * _PAUSE_S)  # until the other import has finished
    return load()


def _trusted(io: ModuleType, file: Path, config: ModelConfig) -> list[str]:
    listed = {name.strip() for name in config.parameters.get(TRUSTED, "").split(",")}
    # Reads the schema in the archive alone; nothing is built from it yet.
    flagged = list(io.get_untrusted_types(file=file))
    unknown = [name for name in flagged if name not in listed and not _HARMLESS.fullmatch(name)]
    if unknown:
        raise InvalidConfig(
            f"'{file.name}' has types that are not trusted: {', '.join(sorted(unknown)[:5])}; "
            f"parameter {TRUSTED} may list those that you trust"
        )
    return flagged
