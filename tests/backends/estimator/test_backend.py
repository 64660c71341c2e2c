from pathlib import Path

import pytest

from inferd.backends.estimator.backend import EstimatorBackend
from inferd.backends.estimator.model import Features, LoadedModel, Method
from inferd.config.model import ModelConfig, ModelInput, ModelOutput
from inferd.core.interfaces import BackendContext, ModelFiles
from inferd.core.rows import INDEPENDENT, Verdict
from inferd.tensor.dtype import DataType

FILES = ModelFiles(Path("m"), 1, Path("m/1"), Path("m/1/model"))
SETTINGS = {
    "num_threads": "3",
    "inferd_allow_pickle": "true",
    "inferd_trusted_types": "a.B",
    "inferd_any_input_name": "true",
    "inferd_default_outputs": "predict_proba",
    "inferd_model_class": "c.D",
    "default-max-batch-size": "9",
    "other": "x",
}


class Recorder(EstimatorBackend):
    """A backend whose models are all the same; it keeps the parameters that they are read with."""

    def _read(self, files, config):
        self.parameters = config.parameters
        same = {"predict": Method("predict", DataType.FP64, (1,), lambda rows: rows)}
        features = Features(2, ("a", "b"))
        rows = Verdict(INDEPENDENT, "")
        return LoadedModel(same, features, lambda rows: rows, None, (), rows, self)


@pytest.fixture
def backend():
    made = Recorder()
    made.connect(BackendContext(settings=SETTINGS))
    return made


def test_settings_are_parameters_of_models_that_do_not_say_otherwise(backend):
    backend.load(FILES, ModelConfig("m", parameters={"num_threads": "1"}))
    known = {key: value for key, value in SETTINGS.items() if "-" not in key and key != "other"}
    assert backend.parameters == known | {"num_threads": "1"}


def test_completed_models_take_what_the_settings_say(backend):
    found = backend.complete(FILES, ModelConfig("m"))
    assert found.parameters["inferd_any_input_name"] == "true"
    assert found.max_batch_size == 9


def test_a_model_that_is_whole_is_completed_without_its_file(backend):
    whole = ModelConfig(
        "m",
        input=(ModelInput("x", "TYPE_FP32", (2,)),),
        output=(ModelOutput("y", "TYPE_FP64", (1,)),),
    )
    found = backend.complete_alone(FILES, whole)
    assert found.parameters["inferd_any_input_name"] == "true"
    assert backend.complete_alone(FILES, ModelConfig("m")) is None


def test_without_settings_nothing_is_added():
    backend = Recorder()
    backend.load(FILES, ModelConfig("m"))
    assert backend.parameters == {}


def test_default_outputs_of_the_settings_are_not_those_of_a_model_without_them(backend):
    assert "inferd_default_outputs" not in backend.complete(FILES, ModelConfig("m")).parameters
    own = ModelConfig("m", parameters={"inferd_default_outputs": "predict"})
    assert backend.complete(FILES, own).parameters["inferd_default_outputs"] == "predict"
