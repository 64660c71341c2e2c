"""Lookup: the names of backends and their classes, which are imported when needed."""

import re
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from inferd.config.model import ModelConfig
from inferd.config.parameter import MAX_SHOWN, is_converted
from inferd.config.parameter_names import CONVERT
from inferd.config.platform import PYTHON_RUNTIME, is_python_based, platform_named
from inferd.core.interfaces import Backend, GivenModel
from inferd.core.offline import OfflineBackend
from inferd.core.traits import Traits
from inferd.errors import InvalidConfig, Unsupported

ENTRY_POINTS = "inferd.backends"
"""The entry point group through which other packages add backends."""

# As texts: importing them all would import every framework.
_BACKENDS = {
    "caffe2": "inferd_convert.caffe2.backend:Caffe2Backend",
    "mxnet": "inferd_convert.mxnet.backend:MxnetBackend",
    "onnxruntime": "inferd.backends.onnx.backend:OnnxBackend",
    "pytorch": "inferd.backends.pytorch.backend:PytorchBackend",
    "tensorrt": "inferd.backends.tensorrt.backend:TensorrtBackend",
    "tensorflow": "inferd.backends.tensorflow.backend:TensorflowBackend",
    "lightgbm": "inferd.backends.estimator.boosters:LightgbmBackend",
    "sklearn": "inferd.backends.estimator.sklearn:SklearnBackend",
    "catboost": "inferd.backends.estimator.boosters:CatboostBackend",
    "fil": "inferd.backends.onnx.trees:FilBackend",
    "xgboost": "inferd.backends.estimator.boosters:XgboostBackend",
    "openvino": "inferd.backends.openvino.backend:OpenvinoBackend",
    "litert": "inferd.backends.litert.backend:LitertBackend",
    "identity": "inferd.backends.identity:IdentityBackend",
    "repeat": "inferd.backends.decoupled:RepeatBackend",
    "square": "inferd.backends.decoupled:SquareBackend",
    "python": "inferd.backends.python.backend:PythonBackend",
}

_GIVEN_MODEL = "inferd.backends.function.model:given_model"
_READ_APP = "inferd.backends.function.app:read_app"


def given_model(target: Callable[..., object]) -> GivenModel:
    """Return the model of an inferd.Model, or of a callable that one can be made of.

    Raises InvalidConfig.
    """
    found: GivenModel = EntryPoint("", _GIVEN_MODEL, ENTRY_POINTS).load()(target)
    return found


def models_in(app: Path) -> list[GivenModel]:
    """Run a Python file and return the models it defines. Raises InvalidConfig."""
    found: list[GivenModel] = EntryPoint("", _READ_APP, ENTRY_POINTS).load()(app)
    return found


_EXTRAS = {
    "pytorch": "torch",
    "tensorflow": "tensorflow",
    "openvino": "openvino",
    "litert": "litert",
    "sklearn": "sklearn",
    "xgboost": "xgboost",
    "lightgbm": "lightgbm",
    "catboost": "catboost",
}
"""Our own backends that need more than the core packages, and the extra of inferd to install."""

_HOSTED = {
    "pytorch": ("worker", "torch"),
    "tensorflow": ("worker", "tensorflow"),
    "onnxruntime": ("server", "onnxruntime"),
    "caffe2": ("server", "onnxruntime"),
    "xgboost": ("worker", "xgboost"),
    "lightgbm": ("worker", "lightgbm"),
    "catboost": ("worker", "catboost"),
    "fil": ("server", "onnxruntime"),
    "sklearn": ("worker", "sklearn", "skops"),
    "openvino": ("worker", "openvino"),
    "litert": ("worker", "ai_edge_litert"),
}
"""Backends whose models may run in worker processes: where they run by default, and the packages
each needs."""

_OWN_PYTHON_BASED = {"pytorch": Path(__file__).parents[2] / "backends/based/pytorch/model.py"}
"""The Python-based backends that are built in, used when --backend-directory has none."""

_BACKEND_NAME = re.compile(r"[\w-][\w.-]*")
"""Names that are safe as the name of a backend's folder: they lead nowhere else."""

_PYTHON_BASED_OF_TRITON = ("vllm",)
"""Triton's backends whose code is Python."""

_COMPILED_OF_TRITON = (
    "dali",
    "fastertransformer",
    "hugectr",
    "paddle",
    "paddlepaddle",
    "rapids",
    "stateful",
    "tensorrtllm",
)
"""Backends for Triton, its own and others', that are C++ libraries."""

_HOSTED_BACKEND = "inferd.backends.worker.hosting:HostedBackend"

_CONVERTIBLE = ("sklearn", "xgboost", "lightgbm", "catboost")
"""Backends whose models can be converted to ONNX when they load."""

_TRANSLATED_BACKEND = "inferd.backends.onnx.converted:TranslatedBackend"

# OpenVINO reads SavedModels and frozen graphs by itself.
_INSTEAD = {"tensorflow": "openvino"}
"""Backends whose package may not be installed, and the ones that run their files then."""


def backend_named(name: str, directory: Path | None = None) -> Backend:
    """Return a new backend for the backend or platform called `name`.

    Our own come first, then those of other packages (entry points in group `inferd.backends`,
    each naming a class), then the Python-based ones in `directory`. Instances opened by one backend
    object may share what they load. Raises InvalidConfig when the name is unknown, Unsupported
    when a package it needs is missing.
    """
    backend = _backend_of(name)
    # Our own win, so that a package cannot take over a known name unseen.
    target = _BACKENDS.get(backend)
    if target is None and _code_of(backend, directory) and backend not in _foreign():
        return python_based(backend, directory)
    entry = EntryPoint(backend, target, ENTRY_POINTS) if target else _of_package(backend, directory)
    hosted = _HOSTED.get(backend) if target else None
    try:
        if hosted is None:
            found: Backend = entry.load()()
        else:
            place, *packages = hosted
            found = EntryPoint("", _HOSTED_BACKEND, "").load()(entry.value, packages, place)
    except ModuleNotFoundError as error:
        if target and backend in _INSTEAD:
            with suppress(Unsupported):
                return backend_named(_INSTEAD[backend])
        extra = _EXTRAS.get(backend) if target else None
        wanted = f"'inferd[{extra}]'" if extra else error.name
        msg = f"backend '{backend}' needs the Python package '{error.name}': pip install {wanted}"
        raise Unsupported(msg) from error
    if target is None:
        _check_traits(found, entry)
    return found


def _check_traits(backend: object, entry: EntryPoint) -> None:
    """Raise Unsupported for a backend of another package that does not say what it promises."""
    if not isinstance(getattr(backend, "traits", None), Traits):
        raise Unsupported(
            f"backend '{entry.name}', {entry.value}, has no attribute 'traits' that is "
            f"inferd.core.traits.Traits"
        )


def finder_of(config: ModelConfig) -> Callable[[str, Path | None], Backend]:
    """Return which of the functions here finds the backend of a model. Raises InvalidConfig."""
    if is_python_based(config):
        return python_based
    return translating if is_converted(config) else backend_named


def offline_backend(name: str) -> OfflineBackend | None:
    """Return a new backend that tells of models without its framework, None if it cannot.

    Raises as `backend_named` does.
    """
    target = _BACKENDS.get(_backend_of(name))
    try:
        found = EntryPoint("", target, "").load()() if target else backend_named(name)
    except ModuleNotFoundError:
        return None
    return found if isinstance(found, OfflineBackend) else None


def translating(name: str, directory: Path | None) -> Backend:
    """Return a new backend that converts models of the library `name` to ONNX when they load.

    Raises InvalidConfig for what is no such library, Unsupported when its package is missing.
    """
    library = _backend_of(name)
    if library not in _CONVERTIBLE:
        msg = (
            f"parameter {CONVERT} is for models of {', '.join(_CONVERTIBLE)}, not for backend "
            f"'{name[:MAX_SHOWN]}'"
        )
        raise InvalidConfig(msg, ("parameters", CONVERT))
    found: Backend = EntryPoint("", _TRANSLATED_BACKEND, "").load()(
        backend_named(library, directory)
    )
    return found


def python_based(name: str, directory: Path | None) -> Backend:
    """Return a new backend that runs <directory>/<name>/model.py, or our own of that name.

    Raises InvalidConfig.
    """
    code = _code_of(name, directory) or _OWN_PYTHON_BASED.get(name)
    if code is None:
        raise InvalidConfig(
            f"runtime '{PYTHON_RUNTIME}' asks for a Python-based backend, but "
            f"{_not_in_directory(name, directory)}"
        )
    found: Backend = EntryPoint("", _BACKENDS["python"], ENTRY_POINTS).load()(code)
    return found


def code_folder(config: ModelConfig | None, directory: Path | None) -> Path | None:
    """Return the folder in `directory` of the Python-based backend that runs a model of `config`.

    Returns None when another backend runs it, or none does.
    """
    if config is None:
        return None
    name, is_based = config.backend, is_python_based(config)
    if not is_based and _backend_of(name) in _BACKENDS:
        return None
    code = _code_of(name, directory)
    if code is None or (not is_based and name in _foreign()):
        return None
    return code.parent


def _backend_of(name: str) -> str:
    """Return the backend called `name`, or that of the platform which old configurations name."""
    platform = platform_named(name)
    return platform.backend if platform else name


def _code_of(name: str, directory: Path | None) -> Path | None:
    # The name comes from a configuration, maybe a client's: it must not lead out of the directory.
    if directory is None or not _BACKEND_NAME.fullmatch(name):
        return None
    code = directory.absolute() / name / PYTHON_RUNTIME
    return code if code.is_file() else None


def _not_in_directory(name: str, directory: Path | None) -> str:
    """Return why there is no Python-based backend called `name`."""
    if directory is None:
        return "no --backend-directory is given, where such are"
    library = f"libtriton_{name}.so"
    if _BACKEND_NAME.fullmatch(name) and (directory / name / library).is_file():
        return f"{name}/{library} in --backend-directory is compiled, which cannot be used here"
    return f"there is no {name}/{PYTHON_RUNTIME} in --backend-directory"


def _foreign() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=ENTRY_POINTS)}


def _of_package(backend: str, directory: Path | None) -> EntryPoint:
    entries = _foreign()
    if backend not in entries:
        known = ", ".join(sorted({*_BACKENDS, *entries}))
        msg = f"there is no backend '{backend}', known are: {known}"
        if directory is not None:
            msg += f"; {_not_in_directory(backend, directory)}"
        elif backend in _PYTHON_BASED_OF_TRITON:
            msg += "; its model.py would have to lie in a --backend-directory, which is not given"
        elif backend in _COMPILED_OF_TRITON:
            msg += "; Triton's is a library in C++, which cannot be used here"
        raise InvalidConfig(msg)
    return entries[backend]
