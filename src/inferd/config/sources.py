"""Reads options: a flag overrides a variable, a variable the TOML file, the file a default."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from inferd.config.cloud_port import check_cloud
from inferd.config.model_name import is_model_name
from inferd.config.options.access import read_restrictions
from inferd.config.options.backends import read_gpu_limits, read_host_policies, read_resources
from inferd.config.options.browser import read_origins, read_ui_hosts
from inferd.config.options.cache import read_cache_config
from inferd.config.options.header_forward import read_header_pattern
from inferd.config.options.metrics import read_metrics_config
from inferd.config.options.option import Option, options_of
from inferd.config.options.trace import read_trace_config
from inferd.config.ports import are_metrics_on_http, is_one_port, ports_of
from inferd.config.server import ServerConfig
from inferd.errors import InvalidConfig

Chosen = dict[str, Any]
"""The values of options by name."""

_PREFIX = "INFERD_"

_PREDICTION = {
    "allow_vertex_ai": True,
    "vertex_ai_address": "0.0.0.0",  # the platform calls from outside the container
    "allow_http": False,
    "allow_grpc": False,
}


class GivenFlag(NamedTuple):
    """One value of an option on the command line; `text` is that of the current flag."""

    name: str
    text: str
    spelling: str


class Settings(NamedTuple):
    """The configuration, and warnings for the person who wrote it."""

    config: ServerConfig
    warnings: tuple[str, ...]


def read_settings(
    flags: Sequence[GivenFlag],
    environ: Mapping[str, str],
    kind: type = ServerConfig,
) -> Settings:
    """Return the server's configuration from `flags`, `environ` and the TOML file they name.

    An empty variable counts as not set; a list in a variable is separated by ";". Raises
    InvalidConfig, which names the flag, the variable, or the file and key.
    """
    options = options_of(kind)
    warnings = _misspelled_variables(options, environ)
    chosen = _read_variables(options, environ, warnings)
    chosen |= _read_flags(options, flags)
    # After the variables, which may name the file as well.
    if "config" in chosen:
        chosen = _read_file(options, Path(chosen["config"])) | chosen
    # Only a default: a mode that contradicts is refused below, by name, rather than changed.
    if chosen.get("sagemaker_multi_model"):
        chosen.setdefault("model_control_mode", "explicit")
    # Below all that somebody chose.
    config: ServerConfig = kind(**(vertex_ai_defaults(environ) | chosen))
    check_server_config(config)
    warnings += _without_effect(options, config)
    return Settings(config, tuple(warnings))


def read_options(given: Mapping[str, object]) -> ServerConfig:
    """Return the configuration given in Python, by names of options.

    Lists may be lists or tuples, and paths may be path objects. Raises InvalidConfig.
    """
    options = options_of(ServerConfig)
    chosen = {}
    for name, value in given.items():
        if name not in options:
            msg = f"{name!r} is not an option{nearest(name, list(options))}"
            raise InvalidConfig(msg)
        plain = [_text(one) for one in value] if isinstance(value, list | tuple) else _text(value)
        chosen[name] = options[name].read_toml(plain, name)
    config = ServerConfig(**chosen)
    check_server_config(config)
    return config


def vertex_ai_defaults(environ: Mapping[str, str]) -> Chosen:
    """Return the defaults that differ when Vertex AI runs the server, by option."""
    if environ.get("AIP_MODE") != "PREDICTION":
        return {}
    # Where the platform has copied the model to.
    models = environ.get("AIP_STORAGE_URI")
    return _PREDICTION | ({"model_repository": (models,)} if models else {})


def _text(value: object) -> object:
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def check_server_config(config: ServerConfig) -> None:
    """Raise InvalidConfig when options contradict each other."""
    # Results of these readers are thrown away: each is read again where it is used, but a mistake
    # has to be told at the start, in one line.
    read_trace_config(config.trace_config)
    _check_ports(config)
    if "" in config.model_repository:  # as from PATH="$UNSET": must not mean the working directory
        msg = "a model repository (PATH, --model-repository) is an empty text, and names no folder"
        raise InvalidConfig(msg)
    check_cloud(config)
    _check_control(config)
    _check_model_name(config.model_name)
    if config.api_key_file == "":  # as from --api-key-file=$UNSET: must not mean "open to all"
        msg = "--api-key-file names no file; leave it out if calls need no key"
        raise InvalidConfig(msg)
    for protocol in ("http", "grpc"):
        _check_tls(config, protocol)
    if is_one_port(config):
        _check_one_port(config)
    # One socket has one address.
    if are_metrics_on_http(config) and config.metrics_address not in (None, config.http_address):
        msg = (
            "--metrics-port equals --http-port, so --metrics-address must be left out, or equal "
            "--http-address"
        )
        raise InvalidConfig(msg)
    read_restrictions("--http-restricted-api", config.http_restricted_api)
    read_origins(config.http_cors_origin)
    read_ui_hosts(config.ui_hosts)
    read_restrictions("--grpc-restricted-protocol", config.grpc_restricted_protocol)
    for protocol in ("http", "grpc"):
        if pattern := getattr(config, f"{protocol}_header_forward_pattern"):
            read_header_pattern(f"--{protocol}-header-forward-pattern", pattern)
    read_metrics_config(config.metrics_config)
    read_resources(config.rate_limit_resource)
    read_gpu_limits(config.model_load_gpu_limit)
    read_host_policies(config.host_policy)
    read_cache_config(config.cache_config)
    for text in config.backend_config:
        # The value is a backend's affair, line breaks included.
        if not re.fullmatch(r"([^,=]+,)?[^,=]+=.*", text, re.DOTALL):
            msg = f"--backend-config is '{text}', expected SETTING=VALUE or BACKEND,SETTING=VALUE"
            raise InvalidConfig(msg)


def nearest(word: str, known: Sequence[str]) -> str:
    """Return ", did you mean ...?" with the word of `known` closest to `word`, or ""."""
    import difflib  # only needed for an error message

    found = difflib.get_close_matches(word, known, n=1)
    return f", did you mean {found[0]}?" if found else ""


def _check_ports(config: ServerConfig) -> None:
    if not any(each.is_open for each in ports_of(config)):
        msg = "--allow-http=false and --allow-grpc=false leave nothing to serve; allow one of them"
        raise InvalidConfig(msg)
    if config.http_unix_socket and not config.allow_http:
        msg = (
            "--http-unix-socket needs HTTP, which --allow-http=false turns off; choose one of them"
        )
        raise InvalidConfig(msg)
    if config.grpc_unix_socket and not config.allow_grpc:
        msg = (
            "--grpc-unix-socket needs gRPC, which --allow-grpc=false turns off; choose one of them"
        )
        raise InvalidConfig(msg)
    # On one port it is the HTTP server that accepts, also on the socket.
    if config.grpc_unix_socket and config.grpc_transport != "own" and not is_one_port(config):
        msg = f"--grpc-unix-socket needs --grpc-transport=own, not {config.grpc_transport}"
        raise InvalidConfig(msg)
    if config.grpc_unix_socket and config.grpc_unix_socket == config.http_unix_socket:
        msg = "--http-unix-socket and --grpc-unix-socket are the same; choose another for one"
        raise InvalidConfig(msg)


def _check_control(config: ServerConfig) -> None:
    # Triton leaves these aside in the other modes; who names models there expects only them.
    if config.load_model and config.model_control_mode != "explicit":
        msg = (
            f"--load-model needs --model-control-mode=explicit; "
            f"in mode {config.model_control_mode} all models load"
        )
        raise InvalidConfig(msg)
    if "*" in config.load_model and len(config.load_model) > 1:
        msg = "--load-model=* means all models, so it must be the only --load-model"
        raise InvalidConfig(msg)


def _check_model_name(name: str | None) -> None:
    if name is not None and not is_model_name(name):
        msg = (
            f"--model-name: {name!r} is no name of a model, expected a printable text without "
            f"slashes that does not begin with a dot"
        )
        raise InvalidConfig(msg)


def _check_tls(config: ServerConfig, protocol: str) -> None:
    mutual = getattr(config, f"{protocol}_use_ssl_mutual")
    if not (mutual or getattr(config, f"{protocol}_use_ssl")):
        return
    flag = f"--{protocol}-use-ssl-mutual" if mutual else f"--{protocol}-use-ssl"
    # Without --…-root-cert every certificate, or none, would be trusted.
    needed = ("server_cert", "server_key", "root_cert") if mutual else ("server_cert", "server_key")
    for name in needed:
        if getattr(config, f"{protocol}_{name}") is None:
            msg = f"{flag} needs --{protocol}-{name.replace('_', '-')}"
            raise InvalidConfig(msg)


def _check_one_port(config: ServerConfig) -> None:
    if config.grpc_transport != "own":
        msg = "--grpc-port can only equal --http-port with --grpc-transport=own"
        raise InvalidConfig(msg)
    if config.http_address != config.grpc_address:
        msg = "--grpc-port equals --http-port, so --http-address and --grpc-address must be equal"
        raise InvalidConfig(msg)
    # Nothing said for gRPC is no contradiction.
    has_grpc_tls = config.grpc_use_ssl or config.grpc_use_ssl_mutual
    if has_grpc_tls and any(
        getattr(config, f"grpc_{name}") != getattr(config, f"http_{name}")
        for name in ("use_ssl", "use_ssl_mutual", "server_cert", "server_key", "root_cert")
    ):
        msg = "--grpc-port equals --http-port: TLS there is set by the --http-… options alone"
        raise InvalidConfig(msg)


def _read_flags(options: Mapping[str, Option], flags: Sequence[GivenFlag]) -> Chosen:
    chosen: Chosen = {}
    # Old spellings come from scripts that are wrapped by newer ones.
    named = {each.name for each in flags if not _is_old(options, each)}
    for given in flags:
        value = options[given.name].read_text(given.text, given.spelling)
        if options[given.name].kind is not tuple:
            if given.name in named and _is_old(options, given):
                continue  # Triton, too, lets the new spelling win, whichever comes last
        else:
            # Values of repeated flags add up in order; a file's or a variable's list is replaced as
            # a whole.
            value = (*chosen.get(given.name, ()), value)
        chosen[given.name] = value
    return chosen


def _is_old(options: Mapping[str, Option], given: GivenFlag) -> bool:
    return given.spelling.removeprefix("--") in options[given.name].old_flags


def _read_variables(
    options: Mapping[str, Option], environ: Mapping[str, str], warnings: list[str]
) -> Chosen:
    chosen = {}
    for name, each in options.items():
        # inferd's own name wins over a platform's.
        variable = each.variable if environ.get(each.variable) or not each.also else each.also
        text = environ.get(variable, "")
        if not text:
            continue
        if each.name.endswith("_port") and "://" in text:
            # A Kubernetes service called inferd-http puts INFERD_HTTP_PORT=tcp://... in every pod.
            warnings.append(f"{variable} is left aside: {text!r} was put there by Kubernetes")
        elif each.kind is tuple:
            # Not a comma, which stands within the values of most lists.
            parts = [part for part in text.split(";") if part]
            chosen[name] = tuple(each.read_text(part, variable) for part in parts)
        else:
            chosen[name] = each.read_text(text, variable)
    return chosen


def _misspelled_variables(options: Mapping[str, Option], environ: Mapping[str, str]) -> list[str]:
    known = [each.variable for each in options.values()]
    return [
        f"the variable {name} is not known{nearest(name, known)}"
        for name in sorted(environ)
        # A warning only: variables of other programs may begin so, and a start must not fail for
        # them.
        if name.startswith(_PREFIX)
        and name not in known
        and not _is_of_kubernetes(name, environ[name])
    ]


def _is_of_kubernetes(name: str, value: str) -> bool:
    # Kubernetes sets such variables for services called inferd or inferd-something.
    is_address = name.endswith("_PORT") and "://" in value
    return is_address or "_SERVICE_" in name or re.search(r"_PORT_\d+_", name) is not None


def _read_file(options: Mapping[str, Option], path: Path) -> Chosen:
    import tomllib  # a start without a file saves the import

    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        msg = f"cannot read the options file {path}: {error.strerror}"
        raise InvalidConfig(msg) from error
    # TOML is UTF-8 by its specification.
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        msg = f"{path} is not TOML: {error}"
        raise InvalidConfig(msg) from error
    except (RecursionError, ValueError) as error:  # a number with thousands of digits
        msg = f"{path} nests too deeply, or has a number of too many digits"
        raise InvalidConfig(msg) from error
    # A file that names a file would leave open which one wins.
    by_key = {each.key: each for each in options.values() if each.name != "config"}
    chosen = {}
    for key, value in table.items():
        if key not in by_key:
            msg = f"{path}: {key!r} is not an option{nearest(key, list(by_key))}"
            raise InvalidConfig(msg)
        chosen[by_key[key].name] = by_key[key].read_toml(value, f"{path}: {key}")
    return chosen


def _without_effect(options: Mapping[str, Option], config: ServerConfig) -> list[str]:
    idle = [
        each.flag
        for each in options.values()
        if not each.acted_on and getattr(config, each.name) != each.default
    ]
    if not idle:
        return []
    return [f"accepted, but without effect in this version: {', '.join(idle)}"]
