"""Names: which tensor of the configuration is which argument or output of a TorchScript model.

A file has names for forward's arguments, but not for its outputs. So an input may have the name of
its argument, tensors may be named <anything>__<index>, and otherwise the configuration's order
counts (Triton, PyTorch backend, naming conventions).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from inferd.backends.pytorch.structure import BY_NAME, TENSORS, TorchArgument, leaves
from inferd.config.model import ModelConfig
from inferd.errors import InvalidConfig

# At most four digits: a list as long as the largest number is made of them.
_NUMBERED = re.compile(r".*__(\d{1,4})", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Binding:
    """Which inputs go to which arguments of forward.

    `names` maps each leaf (see `leaves`) that has an input to its name. `many` is the argument
    that takes a list or dict of tensors, if there is one, and `rest` are the inputs that go to it.
    """

    arguments: tuple[TorchArgument, ...]
    names: dict[str, str]
    many: TorchArgument | None
    rest: tuple[str, ...]


def binding(config: ModelConfig, arguments: Sequence[TorchArgument]) -> Binding:
    """Return which inputs of the configuration go to which of `arguments`.

    Optional arguments that cannot be made from inputs are left out. Raises InvalidConfig if names
    and arguments do not match.
    """
    used = tuple(each for each in arguments if not each.optional or _can_be_made(each))
    takers = [each for each in used if each.plain_kind in (TENSORS, BY_NAME)]
    names = [tensor.name for tensor in config.input]
    fixed = leaves([each for each in used if each not in takers])
    if not takers:
        order = inputs_in_order(config, fixed)
        known = [leaf.name for leaf in fixed]
        # If the inputs are called as the arguments are, their order in the configuration is free.
        by_name = set(order) <= set(known)
        return Binding(used, dict(zip(order if by_name else known, order, strict=False)), None, ())
    if len(takers) > 1:
        raise _mismatch(config, "only one can take many tensors", [each.name for each in takers])
    if missing := [leaf.name for leaf in fixed if not leaf.optional and leaf.name not in names]:
        known = [each.name for each in arguments]
        raise _mismatch(config, f"its argument '{missing[0]}' is no input", known)
    taken = {leaf.name: leaf.name for leaf in fixed if leaf.name in names}
    rest = [name for name in names if name not in taken]
    rest = _numbered(config, rest, len(rest)) or rest
    return Binding(used, taken, takers[0], tuple(rest))


def _can_be_made(argument: TorchArgument) -> bool:
    if argument.plain_kind in (TENSORS, BY_NAME):
        return True
    return all(leaf.datatypes for leaf in leaves([argument]))


def inputs_in_order(config: ModelConfig, arguments: Sequence[TorchArgument]) -> list[str]:
    """Return the configuration's input names in the order of their arguments.

    If the only argument takes many tensors, it gets them by number, or else in the configuration's
    order. Raises InvalidConfig if names and arguments do not match.
    """
    names = [tensor.name for tensor in config.input]
    if len(arguments) == 1 and arguments[0].kind in (TENSORS, BY_NAME):
        return _numbered(config, names, len(names)) or names
    known = [argument.name for argument in arguments]
    needed = [argument.name for argument in arguments if not argument.optional]
    if set(names) <= set(known):
        if missing := [name for name in needed if name not in names]:
            raise _mismatch(config, f"its argument '{missing[0]}' is no input", known)
        return [name for name in known if name in names]
    if not len(needed) <= len(names) <= len(known):
        raise _mismatch(config, f"the configuration has {len(names)} inputs", known)
    return _numbered(config, names, len(known)) or names


def outputs_in_order(config: ModelConfig) -> list[str]:
    """Return the configuration's output names in the order in which the model returns them.

    Raises InvalidConfig for duplicate numbers.
    """
    names = [tensor.name for tensor in config.output]
    numbers = _numbers(names)
    if not numbers:
        return names
    if len(set(numbers)) < len(numbers):
        raise InvalidConfig(f"model '{config.name}': two outputs have the same number after '__'")
    by_number = dict(zip(numbers, names, strict=True))
    # "" for outputs that the configuration leaves out: the model returns them all the same.
    return [by_number.get(number, "") for number in range(max(numbers) + 1)]


def _numbers(names: list[str]) -> list[int] | None:
    """Return the numbers at the ends of `names`, None if one has none."""
    found = [_NUMBERED.fullmatch(name) for name in names]
    return [int(match[1]) for match in found if match] if all(found) else None


def _numbered(config: ModelConfig, names: list[str], count: int) -> list[str] | None:
    numbers = _numbers(names)
    if numbers is None:
        return None
    if sorted(numbers) != list(range(len(names))) or len(names) > count:
        raise InvalidConfig(
            f"model '{config.name}': the numbers of inputs {', '.join(names)} are not 0 to "
            f"{len(names) - 1}, each once"
        )
    return [name for _, name in sorted(zip(numbers, names, strict=True))]


def _mismatch(config: ModelConfig, what: str, known: Sequence[str]) -> InvalidConfig:
    return InvalidConfig(
        f"model '{config.name}': {what}, but forward takes {', '.join(known) or 'nothing'}"
    )
