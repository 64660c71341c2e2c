"""A hundred repositories in which nothing is wrong, and nothing is found."""

import itertools
import re

import pytest
from good import BASES, onnx_model

from inferd.check.places import check_paths
from inferd.repository.local import Reading

WAYS = {
    "as it is": lambda text: text,
    "with other line ends": lambda text: text.replace("\n", "\r\n"),
    "with commas": lambda text: re.sub(r"(?m)(\w: [\w.\"-]+)$", r"\1,", text),
    "with semicolons": lambda text: re.sub(r"(?m)(\w: [\w.\"-]+)$", r"\1;", text),
    "in one line": lambda text: " ".join(re.sub(r"#.*", "", text).split()),
    "with angle brackets": lambda text: text.replace("{", "<").replace("}", ">"),
    "with colons before blocks": lambda text: re.sub(r"(\w) \{", r"\1: {", text),
    "with comments": lambda text: re.sub(r"(?m)^", "# a { comment: [\n", text),
    "without a name": lambda text: re.sub(r'(?m)^name: "\w"$', "", text),
    "with tabs": lambda text: text.replace("  ", "\t"),
    "with single quotes": lambda text: re.sub(r'"(\w+)"', r"'\1'", text),
}

CASES = [case for case in itertools.product(BASES, WAYS) if case[0] != "idle"]
MODELS = {
    "nothing but a file": {"a/1/model.onnx": onnx_model()},
    "several versions": {"a/1/model.onnx": onnx_model(), "a/2/model.onnx": onnx_model()},
    "no batch dim": {"a/1/model.onnx": onnx_model(batch=None)},
    "a fixed batch dim": {"a/1/model.onnx": onnx_model(batch=3)},
    "a part of a configuration": {
        "a/1/model.onnx": onnx_model(),
        "a/config.pbtxt": "max_batch_size: 2",
    },
    "the backend in the name": {"a.onnxruntime/1/model.onnx": onnx_model()},
    "a file of another name": {
        "a/1/net.onnx": onnx_model(),
        "a/config.pbtxt": 'default_model_filename: "net.onnx"',
    },
    "hidden folders": {"a/1/model.onnx": onnx_model(), ".git/x": "", "a/.cache/x": ""},
    "more models": {f"m{number}/1/model.onnx": onnx_model() for number in range(10)},
    "a number as a name": {"1/1/model.onnx": onnx_model()},
    "scripts beside models": {"a/1/model.onnx": onnx_model(), "make.py": "x"},
    "zero as a version": {"a/0/model.onnx": onnx_model()},
    "external data": {"a/1/model.onnx/model.onnx": onnx_model()},
    "dynamic batching": {
        "a/1/model.onnx": onnx_model(),
        "a/config.pbtxt": "max_batch_size: 64 dynamic_batching { }",
    },
    "a scalar": {
        "a/config.pbtxt": """
            backend: "identity"
            input { name: "x" data_type: TYPE_FP32 dims: 1 }
            output { name: "y" data_type: TYPE_FP32 dims: 1 }
        """,
        "a/1/x": "",
    },
    "a decoupled model without tensors": {"a/config.pbtxt": 'backend: "repeat"', "a/1/x": ""},
    "a model.py alone": {"a/1/model.py": "from b import TritonPythonModel\n"},
    "a model.py with other code": {
        "a/1/model.py": "import other\nTritonPythonModel = other.make()\n"
    },
    "an empty configuration": {"a/1/model.onnx": onnx_model(), "a/config.pbtxt": "# nothing"},
    "a passive group": {
        "a/1/model.onnx": onnx_model(),
        "a/config.pbtxt": "instance_group { count: 3 kind: KIND_CPU }",
    },
    "labels": {
        "a/1/model.onnx": onnx_model(),
        "a/l": "",
        "a/config.pbtxt": (
            'output { name: "y" data_type: TYPE_FP32 dims: 4 label_filename: "l" } '
            "max_batch_size: 2"
        ),
    },
    "a Python-based runtime named python": {
        "a/1/model.py": "class TritonPythonModel: pass",
        "a/config.pbtxt": 'backend: "python"',
    },
    "an old platform's name": {
        "a/1/model.onnx": onnx_model(),
        "a/config.pbtxt": 'platform: "onnx_onnxv1"',
    },
}


def test_there_are_a_hundred():
    assert len(CASES) + len(MODELS) >= 100


@pytest.mark.parametrize(("base", "way"), CASES)
def test_nothing_is_found_however_it_is_written(repository, base, way):
    files = dict(BASES[base])
    name = next(iter(files))
    files[name] = WAYS[way](files[name])
    assert check_paths([repository(files)], Reading(gpu_count=2)).findings == []


@pytest.mark.parametrize("name", MODELS)
def test_nothing_is_found_in_what_people_have(repository, name):
    assert check_paths([repository(MODELS[name])], Reading()).findings == []
