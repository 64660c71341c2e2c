"""Parts: the estimators inside an estimator, and what they tell of rows.

That a row's answer depends on that row alone is true of all of scikit-learn's estimators but the
few listed here; a test of all of them compares rows together with rows alone.
"""

from collections.abc import Callable, Iterator, Mapping
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import numpy as np

from inferd.core.rows import DEPENDENT, INDEPENDENT, OPEN, Verdict

LIBRARIES = ("sklearn", "xgboost", "lightgbm", "catboost")

_TESTED = (1, 9)
"""The newest version of scikit-learn whose estimators were all compared."""

MIXING = {
    "NMF": "solves for all rows of a request at once, until their sum has converged",
    "MiniBatchNMF": "solves for all rows of a request at once, until their sum has converged",
    "PatchExtractor": "gives several rows for each image",
}
"""Estimators of scikit-learn whose answer to a row depends on the other rows of a request."""

UNKNOWN = {"FunctionTransformer": "calls a function that may do anything"}
"""Estimators of which nobody can tell."""

# A forest has an object for each tree; more than this leaves the search, never the answer, short.
_MOST = 100_000

_SETTINGS: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "DummyClassifier": (
        lambda part: getattr(part, "strategy", "") in ("stratified", "uniform"),
        "draws what it answers by the places of rows in a request",
    ),
    "IterativeImputer": (
        lambda part: getattr(part, "sample_posterior", False),
        "draws what it answers by the places of rows in a request",
    ),
    "VotingClassifier": (
        lambda part: not getattr(part, "flatten_transform", True),
        "transforms to an array for each of its estimators, not for each row",
    ),
}
"""Estimators that mix rows if they are set so."""


def verdict_on(estimator: Any) -> Verdict:
    """Return whether the rows that `estimator` gets are independent, by what it consists of."""
    opens: list[str] = []
    for part in parts_of(estimator):
        kind = type(part)
        root = kind.__module__.partition(".")[0]
        if isinstance(part, FunctionType | MethodType | BuiltinFunctionType):
            if root_of_function(part) not in (*LIBRARIES, "numpy", "scipy"):
                opens.append(f"it calls the function {part.__qualname__}")
        elif root == "sklearn" and kind.__name__ in MIXING:
            return Verdict(DEPENDENT, f"{kind.__name__} {MIXING[kind.__name__]}")
        elif root == "sklearn" and is_set_to_mix(part):
            return Verdict(DEPENDENT, f"{kind.__name__} {_SETTINGS[kind.__name__][1]}")
        elif root == "sklearn" and kind.__name__ in UNKNOWN:
            opens.append(f"{kind.__name__} {UNKNOWN[kind.__name__]}")
        elif root not in LIBRARIES and is_estimator(part):
            opens.append(f"{kind.__name__} is not scikit-learn's own")
        elif root == "sklearn" and is_estimator(part) and _is_newer():
            opens.append("this version of scikit-learn is newer than those that were compared")
    if opens:
        return Verdict(OPEN, opens[0])
    return Verdict(INDEPENDENT, "estimators that compute each row by itself")


def is_set_to_mix(part: Any) -> bool:
    """Tell whether an estimator of scikit-learn has settings by which rows depend on others."""
    setting = _SETTINGS.get(type(part).__name__)
    return setting is not None and setting[0](part)


def is_estimator(part: Any) -> bool:
    """Tell whether `part` can predict or transform."""
    return any(callable(getattr(type(part), name, None)) for name in ("predict", "transform"))


def root_of_function(function: Any) -> str:
    """Return the package that a function is from, "" if it does not tell."""
    return str(getattr(function, "__module__", "") or "").partition(".")[0]


def parts_of(estimator: Any) -> Iterator[object]:
    """Yield `estimator` and all objects in it that are no plain data, functions among them."""
    seen: set[int] = set()
    waiting = [estimator]
    while waiting and len(seen) < _MOST:
        part = waiting.pop()
        # By id, as not all objects can be hashed.
        if id(part) in seen or isinstance(part, str | bytes | int | float | complex | type(None)):
            continue
        seen.add(id(part))
        if isinstance(part, np.ndarray):
            # Arrays of estimators, as gradient boosting keeps its trees. Others hold numbers.
            if part.dtype == object:
                waiting += part.ravel().tolist()
        elif isinstance(part, Mapping):
            waiting += part.values()
        elif isinstance(part, list | tuple | set | frozenset):
            waiting += part
        elif not isinstance(part, type | np.generic):
            yield part
            # Fitted estimators keep what they have learnt, other estimators too, as attributes;
            # there is no list of them.
            waiting += getattr(part, "__dict__", {}).values()


def _is_newer() -> bool:
    import sklearn

    numbers = sklearn.__version__.split(".")[:2]
    return tuple(int(number) for number in numbers) > _TESTED
