"""Folders of MLServer (model-settings.json, first byte S) and MLflow (MLmodel)."""

import tempfile
from pathlib import Path

from inferd.config.model import ModelConfig
from inferd.errors import InferdError
from inferd.repository.foreign import read_foreign

FOLDER = Path(tempfile.mkdtemp(prefix="inferd-fuzz-")) / "model"
FOLDER.mkdir()
(FOLDER / "model.joblib").touch()

SEEDS = [
    b'S{"name":"m","implementation":"mlserver_sklearn.SKLearnModel","max_batch_size":4,'
    b'"parameters":{"uri":"./model.joblib","version":"v0.1.0"},'
    b'"inputs":[{"name":"x","datatype":"FP32","shape":[-1,4]}]}',
    b'S{"implementation":"mlserver_sklearn.SKLearnModel","parameters":{"uri":"model.joblib"}}',
    b"Fflavors:\n  python_function:\n    loader_module: mlflow.sklearn\n"
    b"    model_path: model.joblib\n  sklearn:\n    pickled_model: model.joblib\n"
    b"    serialization_format: cloudpickle\nmodel_uuid: 1\n",
]


def target(data: bytes) -> bool:
    """Read; return whether it is such a folder."""
    settings, mlflow = FOLDER / "model-settings.json", FOLDER / "MLmodel"
    settings.unlink(missing_ok=True)
    mlflow.unlink(missing_ok=True)
    (settings if data[:1] == b"S" else mlflow).write_bytes(data[1:])
    try:
        read_foreign(FOLDER, ModelConfig("m"))
    except InferdError:
        return False
    return True
