"""Forests configured as for Triton's FIL backend, asked by its clients."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http

FILES = Path(__file__).resolve().parents[1] / "formats" / "trees" / "files"
ANSWERS = dict(np.load(FILES / "answers.npz"))
MODELS = {
    "binary": ("binary.model", 1, {"output_class": "false"}),
    "binary_class": ("binary.model", 1, {"output_class": "true"}),
    "binary_high": ("binary.model", 1, {"output_class": "true", "threshold": "0.75"}),
    "binary_proba": ("binary.model", 1, {"output_class": "true", "predict_proba": "true"}),
    "binary_pair": ("binary.model", 2, {"output_class": "true", "predict_proba": "true"}),
    "classes": ("classes.model", 1, {"is_classifier": "true", "model_type": "xgboost"}),
    "classes_proba": ("classes.model", 3, {"predict_proba": "true"}),
    "random_class": ("random.tl", 1, {"output_class": "true"}),
    "random_proba": ("random.tl", 3, {"predict_proba": "true"}),
}
CONFIG = """
backend: "fil"
max_batch_size: 32768
input [ {{ name: "input__0" data_type: TYPE_FP32 dims: [ 4 ] }} ]
output [ {{ name: "output__0" data_type: TYPE_FP32 dims: [ {columns} ] }} ]
instance_group [ {{ kind: KIND_AUTO }} ]
dynamic_batching {{ max_queue_delay_microseconds: 100 }}
"""


def parameters(values):
    lines = (
        f'parameters [ {{ key: "{key}" value: {{ string_value: "{value}" }} }} ]'
        for key, value in values.items()
    )
    return "\n".join(lines)


def write(root, name, file, columns, values):
    to = {"model": "xgboost.model", "tl": "checkpoint.tl"}[file.rpartition(".")[2]]
    usual = {"model_type": "treelite_checkpoint"} if to == "checkpoint.tl" else {}
    (root / name / "1").mkdir(parents=True)
    shutil.copy(FILES / file, root / name / "1" / to)
    config = CONFIG.format(columns=columns) + parameters({**usual, **values})
    (root / name / "config.pbtxt").write_text(config)


@pytest.fixture(scope="module")
def server(tmp_path_factory, start_for_module):
    root = tmp_path_factory.mktemp("forests")
    for name, model in MODELS.items():
        write(root, name, *model)
    write(root, "unknown", "binary.model", 1, {"model_type": "catboost"})
    write(root, "unclear", "binary.model", 1, {"output_class": "maybe"})
    write(root, "absent", "binary.model", 1, {"model_type": "lightgbm"})
    write(root, "foreign", "random.tl", 3, {"default": ""})
    shutil.copy(FILES / "answers.npz", root / "foreign" / "1" / "checkpoint.tl")
    return start_for_module(models=root)


@pytest.fixture(params=[tritonclient.http, tritonclient.grpc], ids=["http", "grpc"])
def ask(request, server):
    package = request.param
    address = server.http if package is tritonclient.http else server.grpc
    client = package.InferenceServerClient(address)

    def answer(model, rows):
        given = package.InferInput("input__0", rows.shape, "FP32")
        given.set_data_from_numpy(rows)
        return client.infer(model, [given]).as_numpy("output__0")

    yield answer
    client.close()


def test_values_are_those_of_the_library(ask):
    rows, chance = ANSWERS["binary.model asked"], ANSWERS["binary.model"]
    for model in ("binary", "binary_proba"):
        np.testing.assert_allclose(ask(model, rows), chance, rtol=1e-6)
    pair = np.concatenate([1 - chance, chance], axis=1)
    np.testing.assert_allclose(ask("binary_pair", rows), pair, rtol=1e-5)
    np.testing.assert_allclose(
        ask("random_proba", ANSWERS["random.tl asked"]), ANSWERS["random.tl"], 1e-6
    )


def test_a_classifier_answers_with_the_number_of_the_class(ask):
    rows, chance = ANSWERS["binary.model asked"], ANSWERS["binary.model"]
    assert ask("binary_class", rows).tolist() == (chance > 0.5).astype(float).tolist()
    high = (chance > 0.75).astype(float).tolist()
    assert ask("binary_high", rows).tolist() == high != (chance > 0.5).astype(float).tolist()
    assert ask("classes", rows).tolist() == ANSWERS["classes.model"].tolist()
    best = ANSWERS["random.tl"].argmax(axis=1, keepdims=True)
    assert ask("random_class", ANSWERS["random.tl asked"]).tolist() == best.astype(float).tolist()


def test_probabilities_of_a_forest_of_classes_add_up(ask):
    chances = ask("classes_proba", ANSWERS["binary.model asked"])
    np.testing.assert_allclose(chances.sum(axis=1), 1, rtol=1e-6)
    assert chances.argmax(axis=1).tolist() == ANSWERS["classes.model"][:, 0].tolist()


def test_what_is_wrong_is_told(server):
    client = tritonclient.http.InferenceServerClient(server.http)
    index = client.get_model_repository_index()
    reasons = {one["name"]: one["reason"] for one in index if one.get("state") == "UNAVAILABLE"}
    assert "parameter model_type is 'catboost', expected one of xgboost," in reasons["unknown"]
    assert "parameter output_class is 'maybe', expected true or false" in reasons["unclear"]
    assert "there is no file '1/model.txt', which belongs" in reasons["absent"]
    assert "'1/checkpoint.tl': the file is no checkpoint of Treelite" in reasons["foreign"]
    assert len(reasons) == 4
