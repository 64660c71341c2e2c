"""Model: a function, callable object or class as a model of the server."""

import functools
import inspect
import types
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Generic, ParamSpec, TypeVar, overload

import orjson

from inferd.backends.function.backend import FunctionBackend
from inferd.backends.function.signature import Ports, read_signature, without_partial
from inferd.config.model import DynamicBatching, InstanceGroup, ModelConfig
from inferd.core.interfaces import GivenModel
from inferd.errors import InvalidConfig

DEFAULT_MAX_BATCH_SIZE = 64
"""The default max_batch_size of a batched model."""

_OURS = {
    "name": "name=",
    "input": "inputs=, or annotations",
    "output": "outputs=, or annotations",
    "platform": "",
    "backend": "",
    "runtime": "",
    "ensemble_scheduling": "",
    "default_model_filename": "",
    "model_transaction_policy": "a generator function",
}
"""Configuration fields that a function's options must not set, and what to use instead."""

_Arguments = ParamSpec("_Arguments")
_Returned = TypeVar("_Returned")


class Model(Generic[_Arguments, _Returned]):
    """A model whose inputs and outputs come from the annotations of its target.

    `target` is a function, an object with `__call__`, or a class of such objects: each instance of
    the model then has its own object, and closes it if it has a method `close`. The target may be
    asynchronous (requests run concurrently, on an event loop other than the server's), and a
    generator (a decoupled model: any number of answers).

    `name` is the model's name for clients; by default the target's. A `batched` model takes and
    returns arrays whose first dim is the batch, and lists with one element per item. `instances`
    is how many may run at once, each in its own thread. `inputs` and `outputs`, Specs by name,
    replace annotations. Other options are fields of config.pbtxt, with messages as dictionaries:
    `max_batch_size=8, dynamic_batching={"max_queue_delay_microseconds": 100}`.

    Raises InvalidConfig, which says what is missing and how to write it. Calling the Model calls
    `target`.
    """

    def __init__(
        self,
        target: Callable[_Arguments, _Returned],
        name: str = "",
        *,
        batched: bool = False,
        instances: int = 1,
        inputs: Ports = None,
        outputs: Ports = None,
        **config: object,
    ) -> None:
        self.target = target
        function = _function_of(target)
        called = name or _name_of(target)
        place = _place_of(function, called)
        if not called:
            raise InvalidConfig(f"{place} has no name of its own; give it one: name=")
        signature = read_signature(function, place, batched=batched, inputs=inputs, outputs=outputs)
        self.name = called
        backend = FunctionBackend(target, signature)
        said = replace(_read_config(config, place), name=called, backend="function")
        if batched and not said.max_batch_size:
            said = replace(said, max_batch_size=DEFAULT_MAX_BATCH_SIZE)
        # Whoever says `batched` wants requests joined, as dynamic_batching {} asks for.
        if batched and said.dynamic_batching is None and said.sequence_batching is None:
            said = replace(said, dynamic_batching=DynamicBatching())
        if not said.instance_group:
            group = InstanceGroup(name=called, count=instances, kind="KIND_CPU")
            said = replace(said, instance_group=(group,))
        self.given = GivenModel(called, backend.completed(said), backend, _folder_of(function))
        # updated=(): the function's attributes must not overwrite those of this object.
        functools.update_wrapper(self, function, updated=())

    def __call__(self, *args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Returned:
        """Call the function itself, bypassing the server."""
        return self.target(*args, **kwargs)

    def __repr__(self) -> str:
        """Return a short description, for notebooks."""
        return f"<inferd.Model {self.name!r}>"


@overload
def model(target: Callable[_Arguments, _Returned], /) -> Model[_Arguments, _Returned]: ...


@overload
def model(
    **options: Any,
) -> Callable[[Callable[_Arguments, _Returned]], Model[_Arguments, _Returned]]: ...


def model(target: Any = None, /, **options: Any) -> Any:
    """Make a Model of the decorated function or class: `@model` or `@model(batched=True, ...)`."""
    if target is None:
        return functools.partial(Model, **options)
    return Model(target, **options)


def given_model(target: Callable[..., object]) -> GivenModel:
    """Return the GivenModel of a Model, or of a target for one. Raises InvalidConfig."""
    return (target if isinstance(target, Model) else Model(target)).given


def _function_of(target: Callable[..., object]) -> Callable[..., object]:
    """Return the function to be called; for a class, its `__call__`, bound to the class itself."""
    if isinstance(target, type):
        # Static: an ordinary look-up on a class finds type.__call__, which makes objects.
        call = inspect.getattr_static(target, "__call__", None)
        if not inspect.isfunction(call):
            msg = f"class {target.__name__} has no method __call__, which a model is made of"
            raise InvalidConfig(msg)
        _check_no_arguments(target)
        # Bound, so that inspect leaves self out; it is read here, and never called.
        return types.MethodType(call, target)
    if isinstance(target, Model):
        raise InvalidConfig(f"'{target.name}' is a model already")
    if not callable(target):
        kind = type(target).__name__
        msg = f"a model is made of what can be called, not of type {kind}; pass a method of it"
        raise InvalidConfig(msg)
    return target


def _check_no_arguments(target: type) -> None:
    try:
        # bind() without arguments fails just as calling the class would.
        inspect.signature(target).bind()
    except ValueError:  # its signature is unknown: calling it will tell
        return
    except TypeError as error:
        raise InvalidConfig(
            f"class {target.__name__}: {error}; a model makes its objects without arguments: give "
            f"them defaults, or pass an object of it"
        ) from error


def _name_of(target: object) -> str:
    target = without_partial(target)
    name = getattr(target, "__name__", type(target).__name__)
    return "" if name == "<lambda>" else str(name)


def _code_of(function: Any) -> types.CodeType | None:
    function = inspect.unwrap(without_partial(function))
    found = getattr(function, "__code__", None) or getattr(function.__call__, "__code__", None)
    return found if isinstance(found, types.CodeType) else None


def _place_of(function: Callable[..., object], name: str) -> str:
    code = _code_of(function)
    what = f"function '{name or '<lambda>'}'"
    if code is None:
        return what
    return f"{what} ({Path(code.co_filename).name}, line {code.co_firstlineno})"


def _folder_of(function: Callable[..., object]) -> Path:
    """Return the folder for files that the configuration names: the function's, or else the cwd."""
    code = _code_of(function)
    file = Path(code.co_filename) if code else Path()
    return file.parent if code and file.is_file() else Path.cwd()


def _read_config(options: Mapping[str, object], place: str) -> ModelConfig:
    """Return the configuration given by the options of a Model. Raises InvalidConfig."""
    if not options:
        return ModelConfig("")
    from inferd.config.pbtxt import parse_json  # imported late: most models need no protobuf

    for option in options:
        if option in _OURS:
            instead = _OURS[option]
            more = f"; that is said by {instead}" if instead else ""
            raise InvalidConfig(f"{place}: {option} cannot be said of a function{more}")
    document = dict(options)
    parameters = document.get("parameters")
    if isinstance(parameters, Mapping):
        document["parameters"] = {
            # config.pbtxt has a message there; in Python, plain texts are what one writes.
            key: {"string_value": value} if isinstance(value, str) else value
            for key, value in parameters.items()
        }
    try:
        # The keys of some maps are numbers, such as the levels of priority_queue_policy.
        text = orjson.dumps(document, option=orjson.OPT_NON_STR_KEYS)
    except TypeError as error:
        msg = f"{place}: its options are numbers, texts, lists and dictionaries: {error}"
        raise InvalidConfig(msg) from error
    return parse_json(text, place)
