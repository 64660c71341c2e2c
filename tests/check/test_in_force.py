"""What is in force of a configuration, beside what its file says."""

import pytest
from good import BASES, onnx_model

import inferd
from inferd.check.in_force import commented, diff, said_by
from inferd.check.places import check_model, check_paths
from inferd.client import Client
from inferd.config.pbtxt import parse_pbtxt, to_json
from inferd.errors import InvalidConfig
from inferd.repository.local import Reading

GPUS = Reading(gpu_count=2)


def signs(check):
    return {sign: [] for sign in "+- "} | {
        sign: [text for found, text in diff(said_by(check), check.config) if found == sign]
        for sign in "+- "
    }


def test_what_is_filled_in_is_marked(repository):
    files = {"m/1/model.onnx": onnx_model(), "m/config.pbtxt": "max_batch_size: 9"}
    lines = signs(check_model(repository(files) / "m", Reading()))
    assert lines[" "] == ["max_batch_size: 9"]
    assert lines["-"] == []
    assert {'name: "m"', 'backend: "onnxruntime"', '  name: "x"', "  dims: [4]"} <= set(lines["+"])


def test_without_a_file_everything_is_filled_in(repository):
    check = check_model(repository({"m/1/model.onnx": onnx_model()}) / "m", Reading())
    lines = signs(check)
    assert lines[" "] == lines["-"] == []


def test_it_is_what_a_server_has_in_force(repository):
    folder = repository({"m/1/model.onnx": onnx_model(), "m/config.pbtxt": "max_batch_size: 9"})
    check = check_model(folder / "m", Reading())
    options = {"model_repository": [str(folder)], "log_info": False}
    with inferd.Server(**options) as server, Client(server.http_url) as client:
        found = client.config("m")
    # What the server says of how it joins requests is no part of the configuration.
    assert found["parameters"].keys() == {"inferd_joined", "inferd_joining_reason"}
    assert found | {"parameters": {}} == to_json(check.config)


@pytest.mark.parametrize("name", [base for base in BASES if base != "ensemble"])
def test_the_file_with_comments_says_the_same(repository, name):
    folder = repository(BASES[name])
    model = next(iter(BASES[name])).partition("/")[0]
    check = check_model(folder, GPUS, model)
    before = to_json(check.config)
    text = commented(check, check.config)
    assert text.startswith("# ")
    parse_pbtxt(text, "config.pbtxt")
    (folder / model / "config.pbtxt").write_text(text)
    assert to_json(check_model(folder, GPUS, model).config) == before
    assert all(one.level != "error" for one in check_paths([folder], GPUS).findings)


def test_a_file_is_written_of_nothing_but_a_model(repository):
    folder = repository({"m/1/model.onnx": onnx_model()})
    check = check_model(folder, Reading())
    text = commented(check, check.config)
    assert '\n# instance_group {\n#   name: "m"\n' in text
    assert "\ndynamic_batching {\n}\n" in text
    assert "optimization" not in text


def test_a_model_that_is_not_there_is_told(repository):
    folder = repository({"abc/1/model.onnx": onnx_model(), "b/1/model.onnx": onnx_model()})
    with pytest.raises(InvalidConfig, match=r"there is no model 'abd' at .*; did you mean 'abc'"):
        check_model(folder, Reading(), "abd")
    with pytest.raises(InvalidConfig, match=r"has 2 models \(abc, b\), name the one"):
        check_model(folder, Reading())
