"""What is served, but perhaps not as its author thinks."""

import re
from pathlib import Path

import pytest
from good import BASES, IDLE, MODEL_PY, onnx_model

import inferd
from inferd.check.places import check_paths
from inferd.check.surprises import KNOWN_PARAMETERS, SAID_PARAMETERS
from inferd.repository.local import Reading

TENSORS = """
input { name: "x" data_type: TYPE_FP32 dims: 2 }
output { name: "y" data_type: TYPE_FP32 dims: 2 }
"""


def check(repository, files):
    return check_paths([repository(files)], Reading()).findings


def surprises(repository, text, name="m"):
    """Return what is said of the identity model with this configuration, by line."""
    files = {f"{name}/config.pbtxt": f'backend: "identity"{text}', f"{name}/1/x": ""}
    found = check(repository, files)
    assert {one.level for one in found} <= {"warning"}
    return {one.line: f"{one.text} [{one.fix}]" for one in found}


def test_each_field_without_effect_is_told(repository):
    found = check(repository, BASES["idle"])
    assert {(one.level, one.rule) for one in found} == {("warning", "surprise")}
    told = {IDLE.splitlines()[one.line - 1].split()[0] for one in found}
    assert told == {
        "instance_group",
        "graph",
        "priority:",
        "cuda",
        "execution_accelerators",
        "gather_kernel_buffer_threshold:",
        "eager_batching:",
        "cc_model_filenames",
    }
    assert all("has no effect" in one.text for one in found)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        (TENSORS + "max_batch_size: 1\ndynamic_batching { }", 5, "joins no requests, as max_batch"),
        (TENSORS + "\ndynamic_batching { }", 5, "as max_batch_size is 0"),
        (
            TENSORS + "max_batch_size: 4 model_transaction_policy { decoupled: true }\n"
            "dynamic_batching { }",
            *(5, "requests of a decoupled model are never joined"),
        ),
        (
            TENSORS + '\nparameters { key: "inferd_alow_pickle" value { string_value: "1" } }',
            *(5, "there is no parameter inferd_alow_pickle [did you mean inferd_allow_pickle?]"),
        ),
        (
            TENSORS + '\nparameters { key: "inferd_joined" value { string_value: "joined" } }',
            *(5, "parameter inferd_joined is what a server says; it has no effect here"),
        ),
        (
            TENSORS + "model_metrics { metric_control { metric_identifier { family: "
            '"nv_inference_first_response_histogram_ms" } '
            "histogram_options { buckets: [ 2, 1 ] } } }",
            *(4, "histograms cannot be counted (--metrics-config): the buckets of"),
        ),
        (TENSORS + "\nversion_policy { specific { versions: [1, 4] } }", 5, "version 4, which is"),
        (
            TENSORS + '\nmodel_warmup { name: "w" inputs { key: "x" value { data_type: TYPE_FP32 '
            "dims: 2 zero_data: true } } }",
            *(5, "model_warmup 'w' has no batch_size, so that it is not run"),
        ),
        (
            TENSORS.replace(
                "\noutput", '\ninput { name: "x" data_type: TYPE_FP32 dims: 2 }\noutput'
            )
            + 'output { name: "z" data_type: TYPE_FP32 dims: 2 }',
            *(3, "2 inputs are called 'x': clients can mean only one of them"),
        ),
    ],
)
def test_what_may_surprise_is_told_at_its_field(repository, text, line, words):
    found = surprises(repository, text)
    assert list(found) == [line]
    assert words in found[line]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("stats", "is that of another call, so that /v2/models/stats is not it"),
        ("my model", "have to write the name 'my model' as my%20model in URLs"),
        ("50%", "as 50%25 in URLs"),
    ],
)
def test_a_name_that_clients_hardly_write_is_told(repository, name, words):
    assert words in surprises(repository, TENSORS, name)[0]


def test_folders_that_are_ignored_are_told(repository):
    files = {"m/1/model.py": MODEL_PY, "m/v2/model.py": MODEL_PY, "m/old/config.pbtxt": ""}
    found = check(repository, files)
    assert [(one.level, one.rule) for one in found] == [("warning", "layout")] * 2
    assert "folder 'old' is no version" in found[0].text
    assert "it looks like a model itself" in found[0].text


def test_of_a_model_that_is_refused_no_surprises_are_told(repository):
    files = {"stats/1/model.onnx": onnx_model(), "stats/config.pbtxt": "max_batch_size: -1"}
    assert [one.level for one in check(repository, files)] == ["error"]


def test_each_parameter_of_models_that_is_read_is_known():
    source = Path(inferd.__file__).parents[1]
    constant = re.compile(r'^[A-Z_]+ = "(inferd_[a-z_]*[a-z])"$', re.MULTILINE)
    read = {
        name
        for part in ("inferd/config", "inferd/engine/loading", "inferd/backends", "inferd_convert")
        for file in (source / part).rglob("*.py")
        for name in constant.findall(file.read_text())
    }
    assert read - set(SAID_PARAMETERS) - set(KNOWN_PARAMETERS) == set()
    assert set(KNOWN_PARAMETERS) - read <= {"inferd_repeatable"}  # inferd route reads that
