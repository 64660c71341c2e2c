from pathlib import Path

import pytest

from inferd.config.contradictions import check_server_config
from inferd.config.server import ServerConfig
from inferd.config.sources import GivenFlag, read_options, read_settings
from inferd.errors import InvalidConfig


def flag(name, text):
    return GivenFlag(name, text, "--" + name.replace("_", "-"))


def test_nothing_given_is_the_default():
    settings = read_settings([], {})
    assert settings.config == ServerConfig()
    assert settings.warnings == ()


@pytest.mark.parametrize(
    ("sources", "port"),
    [("flag variable file", 1), ("variable file", 2), ("file", 3), ("flag file", 1), ("", 8000)],
)
def test_flag_goes_before_variable_before_file_before_default(tmp_path, sources, port):
    file = tmp_path / "inferd.toml"
    file.write_text("http-port = 3\n" if "file" in sources else "")
    environ = {"INFERD_CONFIG": str(file)}
    if "variable" in sources:
        environ["INFERD_HTTP_PORT"] = "2"
    flags = [flag("http_port", "1")] if "flag" in sources else []
    assert read_settings(flags, environ).config.http_port == port


def test_the_file_of_the_flag_goes_before_that_of_the_variable(tmp_path):
    file = tmp_path / "inferd.toml"
    file.write_text('model-repository = ["a", "b"]\nexit-on-error = true\ndrain-delay = 5\n')
    flags = [flag("config", str(file))]
    config = read_settings(flags, {"INFERD_CONFIG": "/nowhere.toml"}).config
    assert config.model_repository == ("a", "b")
    assert config.exit_on_error is True
    assert config.drain_delay == 5.0


def test_the_last_of_several_flags_counts_and_lists_grow():
    flags = [
        flag("http_port", "1"),
        flag("http_port", "2"),
        flag("model_repository", "a"),
        flag("model_repository", "b"),
    ]
    config = read_settings(flags, {"INFERD_MODEL_REPOSITORY": "c"}).config
    assert config.http_port == 2
    assert config.model_repository == ("a", "b")


def test_a_list_in_a_variable_is_separated_by_semicolons():
    config = read_settings([], {"INFERD_MODEL_REPOSITORY": "s3://bucket/a;/b;"}).config
    assert config.model_repository == ("s3://bucket/a", "/b")


def test_an_empty_variable_is_not_set():
    assert read_settings([], {"INFERD_HTTP_PORT": ""}).config.http_port == 8000


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("http-prot = 1\n", "{file}: 'http-prot' is not an option, did you mean http-port?"),
        ("http_port = 1\n", "{file}: 'http_port' is not an option, did you mean http-port?"),
        ("http-port = '1'\n", "{file}: http-port: '1' is not a whole number"),
        ("http-port = 70000\n", "{file}: http-port: 70000 is too large, the most is 65535"),
        ("[http]\nport = 1\n", "{file}: 'http' is not an option"),
        ("config = 'other'\n", "{file}: 'config' is not an option"),
        ("x = " + "[" * 10_000, "{file} nests too deeply, or has a number of too many digits"),
        ("x = " + "1" * 5000, "{file} nests too deeply, or has a number of too many digits"),
        ("http-port = \n", "{file} is not TOML: Invalid value (at line 1, column 13)"),
    ],
)
def test_a_wrong_file_is_refused_by_file_and_key(tmp_path, text, complaint):
    file = tmp_path / "inferd.toml"
    file.write_text(text)
    with pytest.raises(InvalidConfig) as caught:
        read_settings([flag("config", str(file))], {})
    assert caught.value.message.startswith(complaint.format(file=file))


def test_a_missing_file_is_refused_by_name(tmp_path):
    file = tmp_path / "none.toml"
    with pytest.raises(InvalidConfig) as caught:
        read_settings([flag("config", str(file))], {})
    assert caught.value.message == (
        f"cannot read the options file {file}: No such file or directory"
    )


def test_a_wrong_flag_and_a_wrong_variable_are_refused_by_name():
    with pytest.raises(InvalidConfig, match=r"^--http-port: 'x' is not a whole number"):
        read_settings([flag("http_port", "x")], {})
    with pytest.raises(InvalidConfig, match=r"^INFERD_HTTP_PORT: 'x' is not a whole number"):
        read_settings([], {"INFERD_HTTP_PORT": "x"})


def test_a_misspelled_variable_is_reported():
    settings = read_settings([], {"INFERD_HTTP_PROT": "1", "OTHER": "1"})
    assert settings.warnings == (
        "the variable INFERD_HTTP_PROT is not known, did you mean INFERD_HTTP_PORT?",
    )


def test_a_misspelled_port_is_reported_though_kubernetes_sets_ports_too():
    settings = read_settings([], {"INFERD_HTPP_PORT": "8080"})
    assert settings.warnings == (
        "the variable INFERD_HTPP_PORT is not known, did you mean INFERD_HTTP_PORT?",
    )


def test_what_kubernetes_sets_for_a_service_called_inferd_is_no_option():
    environ = {
        "INFERD_PORT": "tcp://10.0.0.1:8000",
        "INFERD_PORT_8000_TCP": "tcp://10.0.0.1:8000",
        "INFERD_PORT_8000_TCP_ADDR": "10.0.0.1",
        "INFERD_SERVICE_HOST": "10.0.0.1",
        "INFERD_SERVICE_PORT": "8000",
    }
    assert read_settings([], environ).warnings == ()


def test_what_kubernetes_sets_for_a_service_called_inferd_http_is_left_aside():
    settings = read_settings([], {"INFERD_HTTP_PORT": "tcp://10.0.0.1:8000"})
    assert settings.config.http_port == 8000
    assert settings.warnings == (
        "INFERD_HTTP_PORT is left aside: 'tcp://10.0.0.1:8000' was put there by Kubernetes",
    )


def test_ports_are_those_that_kserve_gives_mlserver():
    environ = {"MLSERVER_HTTP_PORT": "8080", "MLSERVER_GRPC_PORT": "9000"}
    config = read_settings([], environ).config
    assert (config.http_port, config.grpc_port) == (8080, 9000)
    assert read_settings([], environ | {"INFERD_HTTP_PORT": "1"}).config.http_port == 1


def test_what_kubernetes_sets_for_a_service_called_mlserver_http_is_left_aside():
    settings = read_settings([], {"MLSERVER_HTTP_PORT": "tcp://10.0.0.1:8080"})
    assert settings.config.http_port == 8000
    assert settings.warnings == (
        "MLSERVER_HTTP_PORT is left aside: 'tcp://10.0.0.1:8080' was put there by Kubernetes",
    )


def test_options_without_effect_are_reported_in_one_warning_when_they_differ_from_the_default():
    flags = [
        flag("http_thread_count", "4"),
        flag("sagemaker_thread_count", "4"),
        flag("vertex_ai_thread_count", "8"),
    ]
    assert read_settings(flags, {}).warnings == (
        "accepted, but without effect in this version: --http-thread-count, "
        "--sagemaker-thread-count",
    )


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_tls_needs_its_files(protocol):
    def check(**given):
        check_server_config(ServerConfig(**{f"{protocol}_{key}": v for key, v in given.items()}))

    with pytest.raises(InvalidConfig, match=f"--{protocol}-use-ssl needs --{protocol}-server-cert"):
        check(use_ssl=True, server_key="k")
    with pytest.raises(InvalidConfig, match=f"--{protocol}-use-ssl needs --{protocol}-server-key"):
        check(use_ssl=True, server_cert="c")
    with pytest.raises(
        InvalidConfig, match=f"--{protocol}-use-ssl-mutual needs --{protocol}-root-cert"
    ):
        check(use_ssl_mutual=True, server_cert="c", server_key="k")
    check(use_ssl_mutual=True, server_cert="c", server_key="k", root_cert="r")


def test_a_server_that_serves_nothing_is_refused():
    with pytest.raises(InvalidConfig, match="leave nothing to serve"):
        check_server_config(ServerConfig(allow_http=False, allow_grpc=False))


def test_a_socket_for_http_is_refused_without_http():
    check_server_config(ServerConfig(http_unix_socket="/s", allow_grpc=False))
    with pytest.raises(InvalidConfig, match="--http-unix-socket needs HTTP, which --allow-http"):
        check_server_config(ServerConfig(http_unix_socket="/s", allow_http=False))


def test_a_unix_socket_for_grpc_needs_our_own_transport():
    check_server_config(ServerConfig(grpc_unix_socket="/s", allow_http=False))
    with pytest.raises(InvalidConfig, match="--grpc-unix-socket needs gRPC, which --allow-grpc"):
        check_server_config(ServerConfig(grpc_unix_socket="/s", allow_grpc=False))
    with pytest.raises(InvalidConfig, match="needs --grpc-transport=own, not grpcio"):
        check_server_config(ServerConfig(grpc_unix_socket="/s", grpc_transport="grpcio"))
    with pytest.raises(InvalidConfig, match="are the same"):
        check_server_config(ServerConfig(grpc_unix_socket="/s", http_unix_socket="/s"))


@pytest.mark.parametrize("name", ["http_restricted_api", "grpc_restricted_protocol"])
def test_a_restriction_spelled_wrong_is_refused_by_the_name_of_its_flag(name):
    spelled = f"--{name.replace('_', '-')}"
    with pytest.raises(InvalidConfig, match=f"^{spelled}: "):
        read_settings([flag(name, "inferense:key=value")], {})
    read_settings([flag(name, "inference:key=value")], {})


def test_metrics_settings_are_checked():
    with pytest.raises(InvalidConfig, match=r"^--metrics-config: 'nothing=1' is no SETTING=VALUE"):
        check_server_config(ServerConfig(metrics_config=("nothing=1",)))


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("http_header_forward_pattern", "(", "--http-header-forward-pattern: '(' is not a regular"),
        ("grpc_header_forward_pattern", "(", "--grpc-header-forward-pattern: '(' is not a regular"),
        (
            "http_header_forward_pattern",
            "^[[:alpha:]]+-id$",
            "--http-header-forward-pattern: '^[[:alpha:]]+-id$' has a set within a set",
        ),
        ("rate_limit_resource", "R", "--rate-limit-resource is 'R', expected NAME:COUNT"),
        ("host_policy", "x", "--host-policy is 'x', expected POLICY,SETTING=VALUE"),
        ("cache_config", "x", "--cache-config is 'x', expected CACHE,SETTING=VALUE"),
        ("backend_config", "x", "--backend-config is 'x', expected SETTING=VALUE or BACKEND,"),
        ("backend_config", "a,b,c=d", "--backend-config is 'a,b,c=d', expected"),
        ("backend_config", "=1", "--backend-config is '=1', expected"),
    ],
)
def test_settings_in_texts_are_read_before_the_server_is_made(name, text, complaint):
    with pytest.raises(InvalidConfig) as caught:
        read_settings([flag(name, text)], {})
    assert caught.value.message.startswith(complaint)


@pytest.mark.parametrize("text", ["process=server", "python,shm=1", "mxnet,library=/a,b=c", "x="])
def test_settings_of_backends_are_taken_as_they_are(text):
    assert read_settings([flag("backend_config", text)], {}).config.backend_config == (text,)


@pytest.mark.parametrize(
    ("control", "complaint"),
    [
        ({"load_model": ("m",)}, "--load-model needs --model-control-mode=explicit"),
        ({"load_model": ("m",), "model_control_mode": "poll"}, "in mode poll all models load"),
        (
            {"load_model": ("m", "*"), "model_control_mode": "explicit"},
            "it must be the only --load-model",
        ),
    ],
)
def test_models_to_begin_with_must_make_sense(control, complaint):
    with pytest.raises(InvalidConfig) as caught:
        check_server_config(ServerConfig(**control))
    assert complaint in caught.value.message


@pytest.mark.parametrize("name", ["", " ", "a/b", "..", ".a", "a\n"])
def test_a_models_name_must_be_one(name):
    with pytest.raises(InvalidConfig, match=r"^--model-name: .* is no name of a model, expected"):
        check_server_config(ServerConfig(model_name=name))


def test_a_repository_without_a_name_is_not_the_working_directory():
    with pytest.raises(InvalidConfig, match="names no folder"):
        check_server_config(ServerConfig(model_repository=("models", "")))


def test_a_file_of_keys_without_a_name_does_not_open_the_server_to_all():
    with pytest.raises(InvalidConfig, match="--api-key-file names no file"):
        read_settings([flag("api_key_file", "")], {})
    assert read_settings([], {"INFERD_API_KEY_FILE": ""}).config.api_key_file is None


@pytest.mark.parametrize("models", [(), ("*",), ("m", "n")])
def test_explicit_mode_begins_with_any_models(models):
    check_server_config(ServerConfig(load_model=models, model_control_mode="explicit"))


def test_a_program_gives_options_by_name_in_pythons_own_types():
    config = read_options(
        {"model_repository": [Path("a"), "b"], "http_port": 1, "allow_grpc": False}
    )
    assert config.model_repository == ("a", "b")
    assert (config.http_port, config.allow_grpc) == (1, False)
    assert read_options({"model_repository": Path("a")}).model_repository == ("a",)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"http_prot": 1}, "'http_prot' is not an option, did you mean http_port?"),
        ({"http_port": "1"}, "http_port: '1' is not a whole number"),
        ({"http_port": 1 << 20}, "http_port: 1048576 is too large"),
        ({"allow_http": False, "allow_grpc": False}, "leave nothing to serve"),
    ],
)
def test_options_a_program_gets_wrong_are_reported(given, complaint):
    with pytest.raises(InvalidConfig, match=complaint):
        read_options(given)
