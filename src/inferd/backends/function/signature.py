"""FunctionSignature: a function's inputs and outputs, from its parameters and annotations."""

import dataclasses
import functools
import inspect
import typing
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Generator,
    Iterable,
    Iterator,
    Mapping,
)
from typing import Annotated, Any, get_args, get_origin

import msgspec

from inferd.backends.function.annotation import SPELLINGS, Spec, port_of, unaliased
from inferd.backends.function.port import FunctionPort
from inferd.core.request import InferRequest
from inferd.errors import BackendFailed, InvalidConfig
from inferd.tensor.tensor import Tensor

_STREAMS = (Iterator, Generator)
_ASYNC_STREAMS = (AsyncIterator, AsyncGenerator)
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_NAMED_ONLY = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD)
_NAMELESS = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL)
_ANY_NUMBER = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)

Ports = Mapping[str, Spec] | None


class FunctionSignature(msgspec.Struct, frozen=True):
    """The inputs and outputs of a function.

    `inputs` are by parameter name, or passed in order if `is_positional`. `outputs` are by the
    function's own names; with `is_tuple` it returns them as a tuple, even a single one. `streams`:
    it yields any number of answers.
    """

    inputs: dict[str, FunctionPort]
    outputs: dict[str, FunctionPort]
    is_positional: bool = False
    is_tuple: bool = False
    streams: bool = False
    is_async: bool = False

    def arguments(self, request: InferRequest) -> tuple[list[Any], dict[str, Any]]:
        """Return the function's positional and keyword arguments. Raises InvalidRequest."""
        tensors = {tensor.name: tensor for tensor in request.inputs}
        values = {
            parameter: port.value(tensors[port.name])
            for parameter, port in self.inputs.items()
            if port.name in tensors
        }
        return (list(values.values()), {}) if self.is_positional else ([], values)

    def tensors(self, value: object, model: str) -> list[Tensor]:
        """Return the outputs in the function's result `value`.

        Raises BackendFailed, which names `model` and the output.
        """
        given = self._by_name(value, model)
        return [port.tensor(given[name], model) for name, port in self.outputs.items()]

    def _by_name(self, value: object, model: str) -> Mapping[str, object]:
        names = list(self.outputs)
        named = _named_values(value)
        if named is None:
            takes_tuple = self.is_tuple or len(names) > 1
            values = value if isinstance(value, tuple) and takes_tuple else (value,)
            if len(values) == len(names):
                return dict(zip(names, values, strict=True))
            expected = f"{len(names)} outputs: {', '.join(names)}"
            got = "None" if value is None else f"{len(values)} of type {type(value).__name__}"
            raise BackendFailed(f"model '{model}' gave {got}, expected {expected}")
        if set(named) != set(names):
            missing = ", ".join(f"'{name}'" for name in names if name not in named) or "none"
            more = ", ".join(f"'{name}'" for name in named if name not in names) or "none"
            msg = f"model '{model}': of its outputs these are missing: {missing}; unknown: {more}"
            raise BackendFailed(msg)
        return named


def _named_values(value: object) -> Mapping[str, object] | None:
    """Return the values by name, if they have names."""
    if isinstance(value, Mapping):
        return value
    # A NamedTuple, by its names, before it would count as a tuple.
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        named: Mapping[str, object] = value._asdict()
        return named
    # Not asdict(), which copies arrays, and everything in them, deeply.
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return None


def read_signature(
    function: Callable[..., object],
    place: str,
    *,
    batched: bool = False,
    inputs: Ports = None,
    outputs: Ports = None,
) -> FunctionSignature:
    """Return the signature of `function`; `place` begins every error text.

    `inputs` and `outputs` replace annotations. Raises InvalidConfig.
    """
    hints = _hints(function, place, is_needed=inputs is None or outputs is None)
    kind = _Kind(function, unaliased(hints.get("return")))
    if kind.streams and batched:
        raise InvalidConfig(f"{place} gives any number of answers, so it cannot be batched")
    reader = _Reader(place, batched)
    taken, is_positional = reader.inputs(function, hints, inputs)
    given, is_tuple = reader.outputs(kind.returned, outputs)
    for ports, what in ((taken, "inputs"), (given, "outputs")):
        # Specs may rename: two parameters could become one input.
        names = [port.name for port in ports.values()]
        if len(set(names)) < len(names):
            raise InvalidConfig(f"{place} has two {what} of one name")
    return FunctionSignature(taken, given, is_positional, is_tuple, kind.streams, kind.is_async)


class _Kind:
    """Which of the four kinds a function is, and the type of each value it returns or yields."""

    def __init__(self, function: Callable[..., object], returned: object) -> None:
        code = _unwrapped(function)
        is_coroutine = inspect.iscoroutinefunction(code)
        is_generator = inspect.isgeneratorfunction(code) or inspect.isasyncgenfunction(code)
        # What a coroutine function says it returns is what awaiting it gives.
        origin = None if is_coroutine else get_origin(returned)
        if is_generator and origin in (Iterable, AsyncIterable):  # a looser annotation
            origin = Iterator if origin is Iterable else AsyncIterator
        self.streams = is_generator or origin in (*_STREAMS, *_ASYNC_STREAMS)
        self.is_async = is_coroutine or inspect.isasyncgenfunction(code) or origin in _ASYNC_STREAMS
        self.returned = returned
        if origin in (*_STREAMS, *_ASYNC_STREAMS):
            self.returned = unaliased(get_args(returned)[0])


class _Reader:
    """Makes ports from parameters and return annotations."""

    def __init__(self, place: str, batched: bool) -> None:  # noqa: FBT001
        self._place = place
        self._batched = batched

    def inputs(
        self, function: Callable[..., object], hints: Mapping[str, object], given: Ports
    ) -> tuple[dict[str, FunctionPort], bool]:
        """Return the ports by parameter, and whether they are passed in order."""
        parameters = _parameters(function, self._place, is_needed=given is None)
        if given is None:
            return {
                name: self._input(name, hints.get(name, inspect.Parameter.empty), one.default)
                for name, one in parameters.items()
                if self._is_taken(one)
            }, False
        empty = inspect.Parameter.empty
        # Names that are not those of the parameters can only be meant in
        # their order, as with functions in C.
        is_positional = not given.keys() <= parameters.keys()
        required = {
            name
            for name, one in parameters.items()
            if one.default is empty and one.kind not in _ANY_NUMBER
        }
        if missing := () if is_positional else required - given.keys():
            raise InvalidConfig(f"{self._place}: inputs= leaves out {', '.join(sorted(missing))}")
        if not is_positional and any(parameters[name].kind in _NAMELESS for name in given):
            given = self._in_order(given, parameters)
            is_positional = True
        ports = {
            name: self._input(
                name,
                Annotated[Any, spec],
                empty if is_positional else parameters[name].default,
            )
            for name, spec in given.items()
        }
        return ports, is_positional

    def _in_order(
        self, given: Mapping[str, Spec], parameters: Mapping[str, inspect.Parameter]
    ) -> dict[str, Spec]:
        """Return `given` in the order of the parameters. Raises InvalidConfig for a gap."""
        first = list(parameters)[: len(given)]
        for name in given:
            if name not in first or parameters[name].kind in _NAMED_ONLY:
                msg = f"{self._place}: parameter '{name}' cannot be given by its position"
                raise InvalidConfig(msg)
        return {name: given[name] for name in first}

    def outputs(self, returned: object, given: Ports) -> tuple[dict[str, FunctionPort], bool]:
        """Return the ports by the function's names, and whether they come as a tuple."""
        place = f"{self._place}: what it returns"
        if given is not None:
            named = {name: Annotated[Any, spec] for name, spec in given.items()}
            return self._ports(named), False
        if returned in (None, type(None)):
            msg = f"{self._place} does not say what it returns; write -> and {SPELLINGS}"
            raise InvalidConfig(msg)
        if fields := _fields(returned):
            return self._ports(fields), False
        if get_origin(returned) is tuple:
            parts = get_args(returned)
            if Ellipsis in parts:
                raise InvalidConfig(f"{place} is a tuple of any length; name each output's type")
            named = {f"output_{number}": part for number, part in enumerate(parts)}
            return self._ports(named), True
        if (get_origin(returned) or returned) is dict:
            msg = f"{place} is a dict; name its outputs with a TypedDict, or with outputs="
            raise InvalidConfig(msg)
        return {"output": port_of("output", returned, place, batched=self._batched)}, False

    def _ports(self, named: Mapping[str, object]) -> dict[str, FunctionPort]:
        if not named:
            raise InvalidConfig(f"{self._place} has no outputs")
        return {
            name: port_of(name, one, f"{self._place}: output '{name}'", batched=self._batched)
            for name, one in named.items()
        }

    def _input(self, name: str, annotation: object, default: object) -> FunctionPort:
        place = f"{self._place}: parameter '{name}'"
        port = port_of(name, annotation, place, batched=self._batched)
        is_optional = default is not inspect.Parameter.empty
        return msgspec.structs.replace(port, optional=is_optional)

    def _is_taken(self, parameter: inspect.Parameter) -> bool:
        """Return whether clients send the parameter; others need defaults. Raises InvalidConfig."""
        if parameter.kind in _NAMED:
            return True
        has_default = parameter.default is not inspect.Parameter.empty
        if parameter.kind is inspect.Parameter.POSITIONAL_ONLY and not has_default:
            msg = f"{self._place}: parameter '{parameter.name}' cannot be given by its name"
            raise InvalidConfig(msg)
        if parameter.kind in _ANY_NUMBER:
            raise InvalidConfig(
                f"{self._place} takes *{parameter.name}, and a model has a fixed number of inputs; "
                f"name them"
            )
        return False


def _fields(returned: object) -> dict[str, object]:
    """Return the fields of a TypedDict, NamedTuple or dataclass, {} for other types."""
    if not isinstance(returned, type):
        return {}
    is_named = typing.is_typeddict(returned) or hasattr(returned, "_fields")
    if not is_named and not dataclasses.is_dataclass(returned):
        return {}
    return typing.get_type_hints(returned, include_extras=True)


def _parameters(
    function: Callable[..., object], place: str, *, is_needed: bool
) -> Mapping[str, inspect.Parameter]:
    try:
        found = inspect.signature(function).parameters
    except (TypeError, ValueError) as error:  # some functions in C have none
        if not is_needed:
            return {}
        msg = f"{place} does not tell its parameters; name them with inputs= and outputs="
        raise InvalidConfig(msg) from error
    # inspect still lists what a partial has bound by keyword, as something that may be overridden.
    bound = function.keywords if isinstance(function, functools.partial) else {}
    return {name: one for name, one in found.items() if name not in bound}


def _hints(function: Callable[..., object], place: str, *, is_needed: bool) -> dict[str, object]:
    try:
        return typing.get_type_hints(_unwrapped(function), include_extras=True)
    # Names in annotations are evaluated, so anything may be raised.
    except Exception as error:
        if not is_needed:
            return {}
        raise InvalidConfig(
            f"{place} has annotations that cannot be read: {type(error).__name__}: {error}; "
            f"what they name must stand at the top of its module"
        ) from error


def without_partial(function: Any) -> Any:
    """Return what is behind any partial."""
    while isinstance(function, functools.partial):
        function = function.func
    return function


def _unwrapped(function: Any) -> Any:
    """Return the function itself, behind any partial or callable object."""
    function = without_partial(function)
    if inspect.isroutine(function) or inspect.isclass(function):
        return function
    return function.__call__
