"""Bare: model files that lie in no version folder, and which libraries they are for.

Most are known by the ending of their names. Endings that several libraries use, or that anything
may have, are looked into. A folder of such a file is a model only where a server was given that
folder itself, as KServe mounts it; in a repository, models have version folders.
"""

from collections.abc import Iterator
from pathlib import Path

from inferd.config.platform import PLATFORMS, Platform, platform_named, platform_of_file
from inferd.errors import InvalidConfig
from inferd.repository.slips import shown
from inferd.repository.tree import is_noise

PYTHON_CLASS = b"TritonPythonModel"
"""A Python file with this word is a model itself, not an app file that defines models."""

_SAVED_MODEL = PLATFORMS[0]  # of TensorFlow; the only one that is a folder
_SAVED_MODEL_FILES = ("saved_model.pb", "saved_model.pbtxt")

_MAX_PYTHON_BYTES = 16 * 1024 * 1024  # searched for PYTHON_CLASS: no real file is larger
_HEAD_BYTES = 4096
_MOST_SHOWN = 5
_PICKLES = (".pkl", ".pickle")
_LOOKED_INTO = (".json", ".txt", ".bst")
_TREES = {
    b"tree\n": "lightgbm_txt",
    b"tree\r\n": "lightgbm_txt",
    b"CBM1": "catboost_cbm",
    b"{L": "xgboost_ubj",
}
"""How a file of trees begins -> its platform."""


def platform_of(path: Path) -> Platform | None:
    """Return the platform of the model file or SavedModel `path`, None if it is no model.

    Raises OSError.
    """
    known = platform_of_file(path.name)
    if path.is_dir():
        has_one = any((path / name).is_file() for name in _SAVED_MODEL_FILES)
        # By the ending alone if need be: a SavedModel that lacks its file is then refused as a
        # broken SavedModel, and not taken for a folder without a model.
        return _SAVED_MODEL if has_one or known == _SAVED_MODEL else None
    if known is not None or not path.is_file():
        return known
    # A pickle does not say which library made it without being run. Joblib's loader, which
    # scikit-learn's backend uses, reads plain pickles too.
    if path.suffix in _PICKLES:
        return platform_named("sklearn_joblib")
    # .json, .txt and .bst are not in the table of endings, as most files that end so are no models.
    return platform_named(_trees_in(path)) if path.suffix in _LOOKED_INTO else None


def _trees_in(path: Path) -> str:
    """Return the name of the platform of the file of trees `path`, "" if it is none."""
    with path.open("rb") as source:
        head = source.read(_HEAD_BYTES)
    # Most JSON files beside models are settings of something; only XGBoost's models have this key.
    if head.lstrip().startswith(b"{") and b'"learner"' in head:
        return "xgboost_json"
    return next((name for begin, name in _TREES.items() if head.startswith(begin)), "")


def is_python_model(path: Path) -> bool:
    """Tell whether the Python file `path` is a model by itself. Raises OSError."""
    with path.open("rb") as source:
        # It is not imported to find out: that would run it.
        return PYTHON_CLASS in source.read(_MAX_PYTHON_BYTES)


def bare_file(folder: Path, backend: str = "") -> tuple[Path, Platform] | None:
    """Return the model file in `folder`, or `folder` if it is a SavedModel; None if it has none.

    With `backend`, only its files count. Of several, a model.py is the model, and the others are
    its data; else the one called model. Raises InvalidConfig when none of that tells, and OSError.
    """
    if platform_of(folder) and backend in ("", _SAVED_MODEL.backend):
        return folder, _SAVED_MODEL
    found = [one for one in _files(folder) if backend in ("", one[1].backend)]
    usual = [one for one in found if one[0].name.startswith("model.")]
    # model.py first: code loads weights that lie beside it, whereas no other model file loads code.
    python = [one for one in usual if one[1].backend == "python"]
    for candidates in (python, usual, found):
        if len(candidates) == 1:
            return candidates[0]
    if not found:
        return None
    names = ", ".join(f"'{shown(path.name)}'" for path, _ in found[:_MOST_SHOWN])
    raise InvalidConfig(
        f"'{shown(folder.name)}' holds {len(found)} model files: {names}; name the one to serve, "
        f"or give each its own folder: NAME/1/"
    )


def _files(folder: Path) -> Iterator[tuple[Path, Platform]]:
    for path in sorted(folder.iterdir()):
        platform = None if is_noise(path.name) else platform_of(path)
        if platform is None or (platform.backend == "python" and not is_python_model(path)):
            continue
        if path.is_file() or path.suffix == ".savedmodel":  # another folder may be a version
            yield path, platform
