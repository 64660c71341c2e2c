"""Platforms: the backend that runs each, the name of its model file, its name in metadata.

The protocol names seven platforms (V2, Platforms); model repositories use Triton's names for the
same formats. One table has both. Metadata says what the configuration says, otherwise what Triton
would: its name for the format, or just that of the backend where it has none.
"""

from typing import NamedTuple

from inferd.config.model import ModelConfig

ENSEMBLE = "ensemble"
"""The platform, and backend, of models that consist of calls of other models."""

PYTHON_RUNTIME = "model.py"
"""The runtime of a Python-based backend: a model.py in the backend's folder, not the model's."""


class Platform(NamedTuple):
    """One format of model files.

    `reported` is its name in metadata: Triton's if it has one, for formats that Triton lacks
    <project>_<format> (V2, Platforms). `names` are its names in config.pbtxt: none if only the
    backend can be named. `filename` is the file or folder in a version folder, "" if none is
    needed. One that `is_filled` is the platform in the configuration, too, where that names none.
    """

    reported: str
    backend: str
    filename: str
    names: tuple[str, ...] = ()
    is_filled: bool = False


def _of_triton(reported: str, backend: str, filename: str, *others: str) -> Platform:
    """Return a platform that Triton has, too: configurations call it as metadata does."""
    return Platform(reported, backend, filename, (reported, *others), is_filled=True)


# The order matters where a folder holds files of two formats: as in Triton, frozen TensorFlow
# before plans before ONNX.
PLATFORMS: tuple[Platform, ...] = (
    _of_triton("tensorflow_savedmodel", "tensorflow", "model.savedmodel"),
    _of_triton("tensorflow_graphdef", "tensorflow", "model.graphdef"),
    _of_triton("tensorrt_plan", "tensorrt", "model.plan"),
    _of_triton("onnxruntime_onnx", "onnxruntime", "model.onnx", "onnx_onnxv1"),
    # Not filled in: Triton has no platform for it, so clients that compare configurations see "".
    Platform("openvino", "openvino", "model.xml", ("openvino_ir",)),
    Platform("litert_tflite", "litert", "model.tflite", ("litert_tflite",)),
    _of_triton("pytorch_libtorch", "pytorch", "model.pt", "pytorch_torchscript"),
    _of_triton("torch_aoti", "pytorch", "model.pt2"),
    Platform("mxnet_mxnet", "mxnet", "model-symbol.json", ("mxnet_mxnet",)),
    Platform("caffe2_netdef", "caffe2", "model.netdef", ("caffe2_netdef",)),
    Platform("sklearn_skops", "sklearn", "model.skops", ("sklearn_skops",)),
    Platform("sklearn_joblib", "sklearn", "model.joblib", ("sklearn_joblib",)),
    Platform("xgboost_ubj", "xgboost", "model.ubj", ("xgboost_ubj",)),
    Platform("xgboost_json", "xgboost", "xgboost.json", ("xgboost_json",)),
    Platform("lightgbm_txt", "lightgbm", "lightgbm.txt", ("lightgbm_txt",)),
    Platform("catboost_cbm", "catboost", "model.cbm", ("catboost_cbm",)),
    Platform("fil", "fil", ""),  # its parameters give the format, and so the file
    Platform("python", "python", "model.py"),
    Platform("ensemble", ENSEMBLE, "", (ENSEMBLE,)),
    Platform("identity", "identity", ""),
    Platform("repeat", "repeat", ""),
    Platform("square", "square", ""),
)
"""Every format inferd knows, in the order in which a version folder is searched for them."""


def platform_named(name: str) -> Platform | None:
    """Return the platform that config.pbtxt calls `name`, or None."""
    return next((known for known in PLATFORMS if name in known.names), None)


def is_python_based(config: ModelConfig) -> bool:
    """Tell whether a model asks for a Python-based backend, by the name of its backend."""
    # The "python" backend has model.py as its model, not as its runtime.
    return config.runtime == PYTHON_RUNTIME and config.backend not in ("", "python")


def platforms_of(backend: str) -> tuple[Platform, ...]:
    """Return the platforms that `backend` runs, the usual one first; () if it is unknown."""
    return tuple(known for known in PLATFORMS if known.backend == backend)


def platform_of_file(filename: str) -> Platform | None:
    """Return the platform of a model file or folder by the ending of its name, or None."""
    for known in PLATFORMS:
        # A suffix, since people name files by what they hold; for model.py that is .py.
        if known.filename and filename.endswith(known.filename.removeprefix("model")):
            return known
    return None


def filename_of(platform: str, backend: str) -> str:
    """Return the usual name of the model file, "" if none is needed or known."""
    known = platform_named(platform) or next(iter(platforms_of(backend)), None)
    return known.filename if known else ""


def reported_platform(config: ModelConfig) -> str:
    """Return the platform of a model in metadata (V2, Model Metadata).

    A platform in the configuration is returned as it is. Otherwise the model file tells, where the
    backend runs several formats; a backend without a known format gives its own name.
    """
    if config.platform:
        return config.platform
    found = _format_of(config)
    return found.reported if found is not None else config.backend


def filled_platform(config: ModelConfig) -> str:
    """Return the platform of a configuration in which the backend and model file are filled in.

    It is "" where Triton fills none in either, as for model.py.
    """
    found = _format_of(config)
    if config.platform or found is None or not found.is_filled:
        return config.platform
    return found.reported


def _format_of(config: ModelConfig) -> Platform | None:
    """Return the format of a model by backend and file, the backend's usual one if none fits."""
    known = platforms_of(config.backend)
    by_file = platform_of_file(config.default_model_filename)
    return by_file if by_file in known else next(iter(known), None)
