"""Platforms: the backend that runs each, the name of its model file, its name in metadata.

The protocol names seven platforms (V2, Platforms); model repositories use Triton's names for the
same formats. One table has both.
"""

from typing import NamedTuple

from inferd.config.model import ModelConfig

ENSEMBLE = "ensemble"
"""The platform, and backend, of models that consist of calls of other models."""

PYTHON_RUNTIME = "model.py"
"""The runtime of a Python-based backend: a model.py in the backend's folder, not the model's."""


class Platform(NamedTuple):
    """One format of model files.

    `reported` is its name in metadata, <project>_<format>; formats of our own are called
    inferd_<backend>. `names` are its names in config.pbtxt: none if only the backend can be named.
    `filename` is the file or folder in a version folder, "" if none is needed.
    """

    reported: str
    backend: str
    filename: str
    names: tuple[str, ...] = ()


PLATFORMS: tuple[Platform, ...] = (
    Platform("tensorflow_savedmodel", "tensorflow", "model.savedmodel", ("tensorflow_savedmodel",)),
    Platform("tensorflow_graphdef", "tensorflow", "model.graphdef", ("tensorflow_graphdef",)),
    Platform("tensorrt_plan", "tensorrt", "model.plan", ("tensorrt_plan",)),
    Platform("onnx_onnxv1", "onnxruntime", "model.onnx", ("onnx_onnxv1", "onnxruntime_onnx")),
    Platform("openvino_ir", "openvino", "model.xml", ("openvino_ir",)),
    Platform("litert_tflite", "litert", "model.tflite", ("litert_tflite",)),
    Platform(
        "pytorch_torchscript", "pytorch", "model.pt", ("pytorch_torchscript", "pytorch_libtorch")
    ),
    Platform("torch_aoti", "pytorch", "model.pt2", ("torch_aoti",)),
    Platform("mxnet_mxnet", "mxnet", "model-symbol.json", ("mxnet_mxnet",)),
    Platform("caffe2_netdef", "caffe2", "model.netdef", ("caffe2_netdef",)),
    Platform("sklearn_skops", "sklearn", "model.skops", ("sklearn_skops",)),
    Platform("sklearn_joblib", "sklearn", "model.joblib", ("sklearn_joblib",)),
    Platform("xgboost_ubj", "xgboost", "model.ubj", ("xgboost_ubj",)),
    Platform("xgboost_json", "xgboost", "xgboost.json", ("xgboost_json",)),
    Platform("lightgbm_txt", "lightgbm", "lightgbm.txt", ("lightgbm_txt",)),
    Platform("catboost_cbm", "catboost", "model.cbm", ("catboost_cbm",)),
    Platform("fil_forest", "fil", ""),  # its parameters give the format, and so the file
    Platform("inferd_python", "python", "model.py"),
    Platform("ensemble", ENSEMBLE, "", (ENSEMBLE,)),
    Platform("inferd_identity", "identity", ""),
    Platform("inferd_repeat", "repeat", ""),
    Platform("inferd_square", "square", ""),
)
"""Every format inferd knows, in the order in which a version folder is searched for them."""


def platform_named(name: str) -> Platform | None:
    """Return the platform that config.pbtxt calls `name`, or None."""
    return next((known for known in PLATFORMS if name in known.names), None)


def is_python_based(config: ModelConfig) -> bool:
    """Tell whether a model asks for a Python-based backend, by the name of its backend."""
    return config.runtime == PYTHON_RUNTIME and config.backend not in ("", "python")


def platforms_of(backend: str) -> tuple[Platform, ...]:
    """Return the platforms that `backend` runs, the usual one first; () if it is unknown."""
    return tuple(known for known in PLATFORMS if known.backend == backend)


def platform_of_file(filename: str) -> Platform | None:
    """Return the platform of a model file or folder by the ending of its name, or None."""
    for known in PLATFORMS:
        if known.filename and filename.endswith(known.filename.removeprefix("model")):
            return known
    return None


def filename_of(platform: str, backend: str) -> str:
    """Return the usual name of the model file, "" if none is needed or known."""
    known = platform_named(platform) or next(iter(platforms_of(backend)), None)
    return known.filename if known else ""


def reported_platform(config: ModelConfig) -> str:
    """Return the platform of a model in metadata (V2, Model Metadata: <project>_<format>).

    A platform in the configuration is returned as it is. Otherwise it is the protocol's name for
    the backend's format, chosen by the model file if the backend runs several.
    """
    if config.platform:
        return config.platform
    if is_python_based(config):
        return f"inferd_{config.backend}"
    known = platforms_of(config.backend)
    by_file = (one for one in known if one.filename == config.default_model_filename)
    found = next(by_file, None) or next(iter(known), None)
    return found.reported if found else f"inferd_{config.backend}"
