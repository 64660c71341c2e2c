"""Parameters of a model's configuration are texts; here they are read as what they mean.

One that is empty is as one that is not given.
"""

from inferd.config.model import ModelConfig
from inferd.errors import InvalidConfig

MAX_SHOWN = 100
"""So much of a wrong value is repeated."""

_DIGITS = 20  # more than any of these numbers has, and few enough to be read at once
_BOOLEANS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}

ANY_INPUT_NAME = "inferd_any_input_name"
"""The parameter of a model with one input that, if "true", lets requests call it anything."""

TABLE = "inferd_table"
"""The parameter of a model with one input that, if "true", lets rows of it come as a table: any
number of them, of any type of numbers, a column in each input. It may also list the columns'
names, as JSON."""

DEFAULT_OUTPUTS = "inferd_default_outputs"
"""The parameter that names, separated by commas, the outputs of a request that asks for none."""

VERSION_NAME = "inferd_version_name"
"""The parameter that gives a model's version a name beside its number, such as v0.1.0."""


def whole_number(config: ModelConfig, key: str, default: int, least: int, most: int) -> int:
    """Return parameter `key` of the model, `default` where it has none.

    Raises InvalidConfig for what is no whole number from `least` to `most`.
    """
    text = config.parameters.get(key)
    if not text:
        return default
    is_number = text.isascii() and text.isdigit() and len(text) <= _DIGITS
    if not (is_number and least <= int(text) <= most):
        raise _refused(config, key, f"a whole number from {least} to {most}")
    return int(text)


def number(config: ModelConfig, key: str, most: float = 2**53, *, default: float = 0.0) -> float:
    """Return parameter `key` of the model, `default` where it has none.

    Raises InvalidConfig for what is no number from 0 to `most`.
    """
    text = config.parameters.get(key)
    if not text:
        return default
    try:
        found = float(text)
    except ValueError:
        found = -1
    if not 0 <= found <= most:
        limit = "of 0 or more" if most > 2**52 else f"from 0 to {most:g}"
        raise _refused(config, key, f"a number {limit}")
    return found


def is_on(config: ModelConfig, key: str, *, default: bool = False) -> bool:
    """Tell whether parameter `key` of the model is true, `default` where it has none.

    Raises InvalidConfig for what is neither true nor false.
    """
    text = config.parameters.get(key)
    if not text:
        return default
    if text.lower() not in _BOOLEANS:
        raise _refused(config, key, "true or false")
    return _BOOLEANS[text.lower()]


def _refused(config: ModelConfig, key: str, expected: str) -> InvalidConfig:
    text = config.parameters[key][:MAX_SHOWN]
    return InvalidConfig(f"model '{config.name}': parameter {key} is '{text}', expected {expected}")
