"""Names: which tensor of the configuration is which argument or output of a TorchScript model.

A file tells the names of forward's arguments, but not of its outputs. So an input may be called as
its argument is, tensors may be called <anything>__<index>, and else the configuration's order
counts (Triton, PyTorch backend, naming conventions).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from inferd.config.model import ModelConfig
from inferd.errors import InvalidConfig

_NUMBERED = re.compile(r".*__(\d{1,4})", re.DOTALL)

TENSOR = "Tensor"
TEXTS = "List[str]"
TENSORS = "List[Tensor]"
BY_NAME = "Dict[str, Tensor]"


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of forward: its TorchScript type, and whether it may be left out."""

    name: str
    kind: str
    optional: bool = False


def inputs_in_order(config: ModelConfig, arguments: Sequence[Argument]) -> list[str]:
    """Return the configuration's input names in the order of the arguments they are for.

    A model with one argument that takes many tensors gets them in the configuration's order.
    Raises InvalidConfig when names and arguments do not match.
    """
    names = [tensor.name for tensor in config.input]
    if len(arguments) == 1 and arguments[0].kind in (TENSORS, BY_NAME):
        return _numbered(config, "input", names, len(names)) or names
    known = [argument.name for argument in arguments]
    needed = [argument.name for argument in arguments if not argument.optional]
    if set(names) <= set(known):
        if missing := [name for name in needed if name not in names]:
            raise _mismatch(config, f"its argument '{missing[0]}' is no input", known)
        return [name for name in known if name in names]
    if not len(needed) <= len(names) <= len(known):
        raise _mismatch(config, f"the configuration has {len(names)} inputs", known)
    return _numbered(config, "input", names, len(known)) or names


def outputs_in_order(config: ModelConfig) -> list[str]:
    """Return the configuration's output names in the order in which the model gives them.

    Raises InvalidConfig for numbers that are there twice.
    """
    names = [tensor.name for tensor in config.output]
    found = [_NUMBERED.fullmatch(name) for name in names]
    if not names or not all(found):
        return names
    numbers = [int(match[1]) for match in found if match]
    if len(set(numbers)) < len(numbers):
        msg = f"model '{config.name}': two outputs have the same number after '__'"
        raise InvalidConfig(msg)
    by_number = dict(zip(numbers, names, strict=True))
    return [by_number.get(number, "") for number in range(max(numbers) + 1)]


def _numbered(config: ModelConfig, role: str, names: list[str], count: int) -> list[str] | None:
    found = [_NUMBERED.fullmatch(name) for name in names]
    if not all(found):
        return None
    numbers = [int(match[1]) for match in found if match]
    if sorted(numbers) != list(range(len(names))) or len(names) > count:
        msg = (
            f"model '{config.name}': the numbers of {role}s {', '.join(names)} are not 0 to "
            f"{len(names) - 1}, each once"
        )
        raise InvalidConfig(msg)
    return [name for _, name in sorted(zip(numbers, names, strict=True))]


def _mismatch(config: ModelConfig, what: str, known: Sequence[str]) -> InvalidConfig:
    return InvalidConfig(
        f"model '{config.name}': {what}, but forward takes {', '.join(known) or 'nothing'}"
    )
