"""What a version's files tell without the framework, and how it would run."""

import pytest
from good import onnx_model
from onnx import TensorProto, helper

from inferd.backends.onnx.signature import declared_signature
from inferd.check.places import check_paths
from inferd.core.offline import BadCode, OfflineReport
from inferd.formats.onnx_graph import read_model
from inferd.repository.local import Reading
from inferd.tensor.dtype import DataType


def model(inputs, outputs, constants=(), nodes=()):
    graph = helper.make_graph(list(nodes), "g", inputs, outputs, list(constants))
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


def port(name, kind=TensorProto.FLOAT, shape=("n", 3)):
    return helper.make_tensor_value_info(name, kind, shape)


def signature(*given, **said):
    return declared_signature(read_model(model(*given, **said)))


def test_a_file_is_read_as_onnx_runtime_would_report_it():
    weights = helper.make_tensor("w", TensorProto.FLOAT, [1], [1.0])
    found = signature(
        [port("x"), port("w", shape=[1]), port("any", shape=None)],
        [port("y", TensorProto.STRING, ["rows", None, 2])],
        [weights],
    )
    assert list(found.inputs) == ["x", "any"]
    assert (found.inputs["x"].shape, found.inputs["x"].first_dim) == ((-1, 3), "n")
    assert found.inputs["any"].is_unranked
    assert list(found.defaulted) == ["w"]
    assert found.outputs["y"].datatype is DataType.BYTES
    assert found.outputs["y"].shape == (-1, -1, 2)


def test_what_is_no_tensor_has_no_datatype():
    sequence = helper.make_tensor_sequence_value_info("y", TensorProto.FLOAT, None)
    assert signature([port("x")], [sequence]).outputs["y"].datatype is None
    odd = port("y", TensorProto.COMPLEX64)
    assert signature([port("x")], [odd]).outputs["y"].datatype is None


def test_an_output_without_a_type_is_left_to_onnx_runtime():
    untyped = helper.make_empty_tensor_value_info("y")
    assert signature([port("x")], [untyped]) is None


def check(repository, files, *, gpu_count=0):
    return check_paths([repository(files)], Reading(gpu_count=gpu_count)).findings


def test_rows_that_nobody_knows_apart_are_warned_of(repository):
    node = helper.make_node("Softmax", ["x"], ["y"], axis=0)
    mixed = model([port("x")], [port("y")], nodes=[node])
    adaptive = "max_batch_size: 4 dynamic_batching { }"
    [one] = check(repository, {"m/1/model.onnx": mixed, "m/config.pbtxt": adaptive})
    assert (one.level, one.rule, one.line) == ("warning", "surprise", 1)
    assert one.text.startswith("dynamic_batching has no effect, each request runs alone: ")
    sized = "max_batch_size: 4\ndynamic_batching { max_queue_delay_microseconds: 9 }"
    [one] = check(repository, {"m/config.pbtxt": sized})
    assert (one.level, one.line) == ("warning", 2)
    assert "one client's data may change the answers to others" in one.text
    assert "inferd_join" in one.fix


def test_batching_that_will_be_proved_first_is_warned_of(repository):
    node = helper.make_node("NoSuchOperator", ["x"], ["y"], domain="com.example")
    unknown = model([port("x")], [port("y")], nodes=[node])
    [one] = check(repository, {"m/1/model.onnx": unknown})
    assert (one.level, one.rule, one.line) == ("warning", "surprise", 0)
    assert "until comparisons have shown that joining changes no answer" in one.text


def test_a_gpu_that_is_not_there_is_warned_of(repository):
    files = {"m/1/model.onnx": onnx_model(), "m/config.pbtxt": "instance_group { kind: KIND_GPU }"}
    [one] = check(repository, files)
    assert (one.level, one.line) == ("warning", 1)
    assert "asks for a GPU, there is none" in one.text
    assert check(repository, files, gpu_count=1) == []


def test_a_package_that_is_not_installed_here_is_a_warning(repository, monkeypatch):
    monkeypatch.setattr("inferd.backends.estimator.backend.find_spec", lambda _package: None)
    files = {"m/1/model.joblib": "x", "m/config.pbtxt": '\nbackend: "sklearn"'}
    [one] = [one for one in check(repository, files) if one.rule == "package"]
    assert (one.level, one.line) == ("warning", 2)
    assert "pip install" in one.text


def test_of_a_pickle_only_what_may_run_is_told(repository, monkeypatch):
    monkeypatch.setattr("inferd.backends.estimator.backend.find_spec", lambda package: package)

    def found(files):  # whether its packages are installed here is another matter
        return [one for one in check(repository, files) if one.rule != "package"]

    [one] = found({"m/1/model.joblib": "x"})
    assert (one.level, one.rule) == ("error", "file")
    assert "is a pickle, which can run any code" in one.text
    allowed = 'parameters { key: "inferd_allow_pickle" value { string_value: "true" } }'
    assert found({"m/config.pbtxt": allowed}) == []


@pytest.mark.parametrize(
    ("parameter", "value", "words"),
    [
        ("inferd_process", "nowhere", "expected server or worker"),
        ("inferd_join", "perhaps", "expected auto, quantised, always or never"),
        ("inferd_execution", "elsewhere", "expected auto, inline or threads"),
        ("inferd_placement", "here", "expected auto, copy, single or spread"),
        ("inferd_execution_timeout_seconds", "soon", "expected a number of 0 or more"),
        ("inferd_convert", "onnx", "parameter inferd_convert is for models of sklearn"),
    ],
)
def test_a_parameter_is_blamed_by_its_key(repository, parameter, value, words):
    text = f'\nparameters {{ key: "{parameter}" value {{ string_value: "{value}" }} }}'
    findings = check(repository, {"m/1/model.onnx": onnx_model(), "m/config.pbtxt": text})
    assert {(one.level, one.line, one.column) for one in findings} == {("error", 2, 1)}
    assert words in findings[0].text


def test_told_is_complete_or_not():
    assert OfflineReport(None, is_complete=True).complaints == ()
    assert BadCode("x", None, 3).line == 3
