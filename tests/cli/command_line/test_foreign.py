import pytest

from inferd.cli.command_line.flags import read_command_line
from inferd.cli.command_line.foreign import FOREIGN, is_program, understand
from inferd.cli.main import main
from inferd.config.sources import read_settings


@pytest.mark.parametrize(
    ("arguments", "ours"),
    [
        (["tritonserver", "--model-store=m"], ["--model-store=m"]),
        (["/opt/tritonserver/bin/tritonserver", "--http-port", "1"], ["--http-port", "1"]),
        (["mlserver", "start", "m"], ["m"]),
        (["--model_path=m", "--port=1", "--rest_port=2"],
         ["--model-repository=m", "--grpc-port=1", "--http-port=2"]),
        (["--model-path", "m", "--port", "1"], ["--model-repository=m", "--grpc-port=1"]),
        (["ovms", "--port=1", "m"], ["--grpc-port=1", "m"]),
        (["--model_path=m", "--rest_bind_address=::1", "--grpc_bind_address=::2"],
         ["--model-repository=m", "--http-address=::1", "--grpc-address=::2"]),
        (["--rest_port=1", "--file_system_poll_wait_seconds=0"], ["--http-port=1"]),
        (["--rest_port=1", "--file_system_poll_wait_seconds=9"],
         ["--http-port=1", "--model-control-mode=poll", "--repository-poll-secs=9"]),
        (["--model_base_path=m", "--port=1", "--rest_api_port=2", "--max_num_load_retries=3"],
         ["--model-repository=m", "--grpc-port=1", "--http-port=2", "--model-load-retry-count=3"]),
        (["--model_dir=m", "--nthread=2"], ["--model_dir=m"]),
        (["--model_dir=m", "--nthread", "2", "x"], ["--model_dir=m", "x"]),
        (["--model_dir=m", "--enable_grpc", "--http_port=1"],
         ["--model_dir=m", "--allow-grpc", "--http_port=1"]),
        (["--model_dir=m", "--enable_grpc", "false"],
         ["--model_dir=m", "--allow-grpc=false"]),
    ],
)  # fmt: skip
def test_arguments_of_other_servers_become_ours(arguments, ours):
    assert understand(arguments, {}).arguments == ours


@pytest.mark.parametrize(
    "arguments",
    [
        ["models", "--http-port=1"],
        ["--model-repository", "m", "--model_name=x"],
        [],
        ["--", "ovms"],
    ],
)
def test_our_own_arguments_stay_as_they_are(arguments):
    assert understand(arguments, {}) == (arguments, [], ())


def test_a_flag_of_one_server_means_nothing_in_the_arguments_of_another():
    assert understand(["models", "--port=1"], {}).arguments == ["models", "--port=1"]
    assert understand(["tritonserver", "--port=1"], {}).arguments == ["--port=1"]


def test_what_is_not_served_and_what_has_no_effect_is_told():
    served, idle = understand(["--model_base_path=m", "--rest_api_timeout_in_ms", "9"], {}).warnings
    assert served.startswith("the arguments are those of TensorFlow Serving: ")
    assert "/v1/models/NAME:predict" in served and "/v2/models/NAME/infer" in served
    assert idle == "accepted, but without effect here: --rest_api_timeout_in_ms"
    assert understand(["tritonserver", "m"], {}).warnings == []


AS_THERE = (
    "xgboost,inferd_model_class=xgboost.core.Booster",
    "catboost,inferd_model_class=CatBoost",
)


def test_models_answer_as_those_of_kserves_own_servers():
    understood = understand(["--model_dir=m", "--nthread=2"], {"PREDICT_PROBA": "True"})
    assert understood.backend_config == (
        *AS_THERE,
        "sklearn,inferd_default_outputs=predict_proba",
        "xgboost,num_threads=2",
        "lightgbm,num_threads=2",
    )
    assert f"--backend-config={AS_THERE[0]} --backend-config={AS_THERE[1]} " in str(understood)
    for no in ({}, {"PREDICT_PROBA": ""}, {"PREDICT_PROBA": "1"}):  # only "true" counts there
        assert understand(["--model_dir=m"], no).backend_config == AS_THERE
    assert understand(["ovms", "--port=1"], {"PREDICT_PROBA": "true"}).backend_config == ()


def test_a_folder_called_like_a_program_is_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert is_program("ovms")
    (tmp_path / "ovms").mkdir()
    assert not is_program("ovms")
    assert understand(["ovms"], {}) == (["ovms"], [], ())


def test_each_flag_becomes_options_that_are_there():
    for one in FOREIGN:
        for name in one.flags:
            value = {"enable-grpc": "true"}.get(name, "1")
            understood = understand([one.programs[0], "m", f"--{name}={value}"], {})
            line = read_command_line(understood.arguments)
            assert read_settings(line.flags, {}).config.model_repository[0] == "m"


def test_a_directory_of_compiled_models_is_none_of_the_response_cache():
    understood = understand(["--rest_port=1", "--cache_dir", "c"], {})
    assert understood.arguments == ["--http-port=1"]
    assert "without effect here: --cache_dir" in understood.warnings[-1]


@pytest.mark.parametrize(
    "flag",
    ["--layout=NHWC:NCHW", "--shape=auto", "--batch_size=4", "--mean=1", "--scale=255",
     "--color_format=RGB:BGR", "--precision=FP16", "--model_version_policy={}", "--stateful=true",
     "--plugin_config={}", "--config_path=c.json"],
)  # fmt: skip
def test_what_changes_answers_in_openvino_model_server_is_refused_by_its_name(flag, capsys):
    assert main(["ovms", "--model_path=m", flag]) == 2
    name = flag.partition("=")[0].replace("_", "-")
    assert capsys.readouterr().err.startswith(f"inferd serve: there is no option {name}")


@pytest.mark.parametrize(
    "flag",
    ["--enable_batching=true", "--batching_parameters_file=b", "--model_config_file=c",
     "--saved_model_tags=gpu", "--prefer_tflite_model=true", "--mixed_precision=bfloat16"],
)  # fmt: skip
def test_what_changes_answers_in_tensorflow_serving_is_refused_by_its_name(flag, capsys):
    assert main(["tensorflow_model_server", "--model_base_path=m", flag]) == 2
    name = flag.partition("=")[0].replace("_", "-")
    assert capsys.readouterr().err.startswith(f"inferd serve: there is no option {name}")


def test_a_program_of_another_server_in_place_of_a_verb_serves(capsys):
    assert main(["tritonserver", "--help"]) == 0
    assert capsys.readouterr().out.startswith("inferd serve PATH")
    assert main(["mlserver", "start", "--no-such=1"]) == 2
    assert capsys.readouterr().err.startswith("inferd serve: there is no option --no-such")
