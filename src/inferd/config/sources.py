"""Reads options: a flag overrides a variable, a variable the TOML file, the file a default."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from inferd.config.contradictions import check_server_config
from inferd.config.options.option import Option, options_of
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
            raise InvalidConfig(f"{name!r} is not an option{nearest(name, list(options))}")
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


def nearest(word: str, known: Sequence[str]) -> str:
    """Return ", did you mean ...?" with the word of `known` closest to `word`, or ""."""
    import difflib  # only needed for an error message

    found = difflib.get_close_matches(word, known, n=1)
    return f", did you mean {found[0]}?" if found else ""


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
        raise InvalidConfig(f"cannot read the options file {path}: {error.strerror}") from error
    # TOML is UTF-8 by its specification.
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidConfig(f"{path} is not TOML: {error}") from error
    except (RecursionError, ValueError) as error:  # a number with thousands of digits
        msg = f"{path} nests too deeply, or has a number of too many digits"
        raise InvalidConfig(msg) from error
    # A file that names a file would leave open which one wins.
    by_key = {each.key: each for each in options.values() if each.name != "config"}
    chosen = {}
    for key, value in table.items():
        if key not in by_key:
            raise InvalidConfig(f"{path}: {key!r} is not an option{nearest(key, list(by_key))}")
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
