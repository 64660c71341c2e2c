import pytest

from inferd.config.contradictions import check_server_config
from inferd.config.server import ServerConfig
from inferd.config.sources import GivenFlag, read_settings
from inferd.errors import InvalidConfig

SAFE = {"allow_sagemaker": True, "sagemaker_safe_port_range": "8000-8100"}


def settings(environ, *flags):
    given = [GivenFlag(name, text, f"--{name}") for name, text in flags]
    return read_settings(given, environ).config


def test_sagemakers_variables_are_options():
    config = settings(
        {
            "INFERD_ALLOW_SAGEMAKER": "true",
            "SAGEMAKER_BIND_TO_PORT": "8090",
            "SAGEMAKER_SAFE_PORT_RANGE": "8000-8100",
            "SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": "m",
            "SAGEMAKER_TRITON_INFERENCE_TYPE": "generate",
        }
    )
    assert (config.sagemaker_port, config.sagemaker_default_model) == (8090, "m")
    assert config.sagemaker_safe_port_range == "8000-8100"
    assert config.sagemaker_inference_type == "generate"


def test_our_own_variable_and_the_flag_go_before_the_platforms():
    environ = {"SAGEMAKER_BIND_TO_PORT": "1", "INFERD_SAGEMAKER_PORT": "2"}
    assert settings(environ).sagemaker_port == 2
    assert settings(environ, ("sagemaker_port", "3")).sagemaker_port == 3


def test_a_platforms_variable_with_a_wrong_value_is_named():
    with pytest.raises(InvalidConfig, match=r"^AIP_HTTP_PORT: 'x' is not a whole number"):
        settings({"AIP_HTTP_PORT": "x"})


def test_vertex_ai_turns_itself_on_and_the_other_ports_off():
    environ = {
        "AIP_MODE": "PREDICTION",
        "AIP_HTTP_PORT": "9090",
        "AIP_HEALTH_ROUTE": "/v1/endpoints/1/deployedModels/2",
        "AIP_PREDICT_ROUTE": "/v1/endpoints/1/deployedModels/2:predict",
        "AIP_STORAGE_URI": "gs://bucket/models",
    }
    config = settings(environ)
    assert (config.allow_vertex_ai, config.vertex_ai_port) == (True, 9090)
    assert config.vertex_ai_address == "0.0.0.0"
    assert (config.allow_http, config.allow_grpc) == (False, False)
    assert config.vertex_ai_predict_route.endswith("/2:predict")
    assert config.model_repository == ("gs://bucket/models",)


def test_explicit_options_win_on_vertex_ai():
    flags = [("allow_http", "true"), ("allow_vertex_ai", "false"), ("model_repository", "models")]
    environ = {"AIP_MODE": "PREDICTION", "AIP_STORAGE_URI": "gs://x", "INFERD_ALLOW_GRPC": "1"}
    config = settings(environ, *flags)
    assert (config.allow_http, config.allow_grpc, config.allow_vertex_ai) == (True, True, False)
    assert config.model_repository == ("models",)


def test_another_mode_of_vertex_ai_changes_nothing():
    assert settings({"AIP_MODE": "TRAINING", "AIP_STORAGE_URI": "gs://x"}) == ServerConfig()


@pytest.mark.parametrize("platform", ["allow_sagemaker", "allow_vertex_ai"])
def test_a_platforms_port_is_enough_to_serve(platform):
    off = {"allow_http": False, "allow_grpc": False}
    check_server_config(ServerConfig(**off, **{platform: True}))
    with pytest.raises(InvalidConfig, match="leave nothing to serve"):
        check_server_config(ServerConfig(**off))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"sagemaker_port": 8101}, "--sagemaker-port 8101 is not in .* 8000-8100"),
        ({"http_port": 7000}, "--http-port 7000 .*give HTTP another port"),
        ({"grpc_port": 0}, "--grpc-port 0 .*give gRPC another port"),
        ({"metrics_port": 9002}, "--metrics-port 9002 .*give metrics another port"),
        ({"sagemaker_safe_port_range": "8100-8000"}, "is '8100-8000', expected LOW-HIGH"),
        ({"sagemaker_safe_port_range": "all"}, "is 'all', expected LOW-HIGH"),
    ],
)
def test_a_port_outside_of_the_safe_range_is_refused(given, words):
    with pytest.raises(InvalidConfig, match=words):
        check_server_config(ServerConfig(**(SAFE | given)))


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"http_port": 1, "allow_http": False},
        {"metrics_port": 1, "allow_metrics": False},
        {"http_port": 1, "allow_sagemaker": False},
    ],
)
def test_ports_that_are_not_open_may_be_outside_of_the_range(given):
    check_server_config(ServerConfig(**(SAFE | given)))


@pytest.mark.parametrize("route", ["", "predict", "/a/{b}", "/a//b", "/a?b", "/é"])
def test_a_route_of_vertex_ai_must_be_a_path(route):
    with pytest.raises(InvalidConfig, match=r"--vertex-ai-predict-route is .*, expected a path"):
        check_server_config(ServerConfig(vertex_ai_predict_route=route))


def test_the_two_routes_of_vertex_ai_must_differ():
    with pytest.raises(InvalidConfig, match="are the same, /health"):
        check_server_config(ServerConfig(vertex_ai_predict_route="/health"))


def test_multi_model_mode_makes_model_control_explicit_unless_said_otherwise():
    environ = {"SAGEMAKER_MULTI_MODEL": "true", "INFERD_ALLOW_SAGEMAKER": "true"}
    assert settings(environ).model_control_mode == "explicit"
    with pytest.raises(InvalidConfig, match="needs --model-control-mode=explicit"):
        settings(environ, ("model_control_mode", "poll"))
