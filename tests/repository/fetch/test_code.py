"""Configurations that make code of files, whatever these are called."""

import pytest

from inferd.repository.fetch.code import configured_code

PARAMETER = 'parameters {{key: "{}" value {{string_value: "{}"}}}}'
SETTINGS = '{{"implementation": "mlserver_sklearn.SKLearnModel", "parameters": {{{}}}}}'


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("config.pbtxt", 'backend: "python" default_model_filename: "m.skops"'),
        ("a/config.pbtxt", 'backend: "pyth" "on"'),  # protobuf puts texts together
        ("a/configs/fast.pbtxt", PARAMETER.format("inferd_allow_native_code", "TRUE")),
        ("config.pbtxt", PARAMETER.format("inferd_trusted_types", "os.system")),
        (
            "model-settings.json",
            SETTINGS.format('"uri": "m.skops", "extra": {"inferd_trusted_types": "os.system"}'),
        ),
    ],
)
def test_a_configuration_that_has_code_run_is_named(tmp_path, file, text):
    (tmp_path / "m.skops").write_text("")
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text(text)
    assert configured_code(tmp_path) == file


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("config.pbtxt", 'backend: "onnxruntime"'),
        ("config.pbtxt", PARAMETER.format("inferd_allow_native_code", "false")),
        ("config.pbtxt", PARAMETER.format("inferd_allow_native_code", "perhaps")),
        ("config.pbtxt", 'backend: "python'),  # no configuration, and so no model
        ("python.pbtxt", 'backend: "python"'),
        ("model-settings.json", SETTINGS.format('"uri": "m.skops"')),
        ("MLmodel", "flavors: {}"),
    ],
)
def test_others_are_not(tmp_path, file, text):
    (tmp_path / "m.skops").write_text("")
    (tmp_path / file).write_text(text)
    assert configured_code(tmp_path) == ""
