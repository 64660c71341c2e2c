"""Reads the parameters of a model's configuration, which are strings, as typed values.

An empty parameter counts as not given.
"""

from collections.abc import Mapping

import msgspec

from inferd.config.model import ModelConfig
from inferd.config.parameter_names import ALLOW_NATIVE, CONVERT, TABLE
from inferd.errors import InvalidConfig, Unsupported

MAX_SHOWN = 100
"""How many characters of a wrong value an error message quotes."""

_DIGITS = 20  # more than any valid number has, and few enough for int() to be fast
_SETTING_DIGITS = 9
# Parameters are texts of people's, not of Triton's command line, hence also yes and no.
_BOOLEANS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


def whole_number(config: ModelConfig, key: str, default: int, least: int, most: int) -> int:
    """Return parameter `key` of the model, `default` if it is not given.

    Raises InvalidConfig unless it is a whole number from `least` to `most`.
    """
    text = config.parameters.get(key)
    if not text:
        return default
    is_number = text.isascii() and text.isdigit() and len(text) <= _DIGITS
    if not (is_number and least <= int(text) <= most):
        raise _refused(config, key, f"a whole number from {least} to {most}")
    return int(text)


def whole_setting(settings: Mapping[str, str], name: str, usual: int) -> int:
    """Return a setting of a backend, `usual` if it is not given. Raises InvalidConfig."""
    text = settings.get(name)
    if text is None:
        return usual
    if not (text.isascii() and text.isdigit() and len(text) <= _SETTING_DIGITS):
        raise InvalidConfig(
            f"--backend-config: {name} is '{text[:MAX_SHOWN]}', expected 0 or a number of at most "
            f"{_SETTING_DIGITS} digits"
        )
    return int(text)


def number(config: ModelConfig, key: str, most: float = 2**53, *, default: float = 0.0) -> float:
    """Return parameter `key` of the model, `default` if it is not given.

    Raises InvalidConfig unless it is a number from 0 to `most`.
    """
    text = config.parameters.get(key)
    if not text:
        return default
    try:
        found = float(text)
    except ValueError:
        found = -1
    # False for NaN, too.
    if not 0 <= found <= most:
        limit = "of 0 or more" if most > 2**52 else f"from 0 to {most:g}"
        raise _refused(config, key, f"a number {limit}")
    return found


def is_on(config: ModelConfig, key: str, *, default: bool = False) -> bool:
    """Tell whether parameter `key` of the model is true, `default` if it is not given.

    Raises InvalidConfig if it is neither true nor false.
    """
    text = config.parameters.get(key)
    if not text:
        return default
    if text.lower() not in _BOOLEANS:
        raise _refused(config, key, "true or false")
    return _BOOLEANS[text.lower()]


def texts(config: ModelConfig, key: str) -> list[str]:
    """Return parameter `key` of the model, [] if it is not given.

    Raises InvalidConfig unless it is a JSON array of texts.
    """
    text = config.parameters.get(key)
    if not text:
        return []
    try:
        return msgspec.json.decode(text, type=list[str])
    except msgspec.MsgspecError as error:
        raise _refused(config, key, "a JSON array of texts") from error


def is_converted(config: ModelConfig) -> bool:
    """Tell whether the model asks to be converted to ONNX. Raises InvalidConfig."""
    # A word and not "true": other formats may come.
    wanted = config.parameters.get(CONVERT)
    if wanted not in (None, "", "onnx"):
        raise _refused(config, CONVERT, "onnx")
    return bool(wanted)


def takes_table(config: ModelConfig) -> bool:
    """Tell whether the model takes rows as clients have them. Raises InvalidConfig."""
    return is_on(config, TABLE)


def check_native(config: ModelConfig, what: str) -> None:
    """Raise Unsupported, saying `what` is compiled code, unless ALLOW_NATIVE is true."""
    # Compiled code that a client or a hub supplies can do all that the server's user can; who runs
    # the server has to say that this is meant.
    if not is_on(config, ALLOW_NATIVE):
        raise Unsupported(
            f"model '{config.name}': {what}, which is run only if parameter {ALLOW_NATIVE} is true"
        )


def _refused(config: ModelConfig, key: str, expected: str) -> InvalidConfig:
    text = config.parameters[key][:MAX_SHOWN]
    msg = f"model '{config.name}': parameter {key} is '{text}', expected {expected}"
    return InvalidConfig(msg, ("parameters", key))
