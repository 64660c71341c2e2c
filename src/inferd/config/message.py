"""Converts ModelConfig to its protobuf message and back, whatever pool the message is from.

A field has the same name on both sides, unless _PATHS says otherwise. A message becomes an object
of the class that the attribute's type names; without one it stands for its single field, or for
True if it has no fields. Fields at their default are not written, but messages that were present
are.
"""

from dataclasses import MISSING, Field, fields, is_dataclass, replace
from functools import reduce
from typing import Any, get_args

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from inferd.config.model import ModelConfig
from inferd.errors import FieldPath, InvalidConfig, NoDatatype
from inferd.tensor.dtype import DATATYPES, DataType

# Where the protocol wraps a value in messages of their own, or has a name that Python reserves.
_PATHS = {
    "datatype": "data_type",
    "decoupled": "model_transaction_policy",
    "is_global": "global",
    "graph_level": "graph",
    "gpu_execution_accelerator": "execution_accelerators.gpu_execution_accelerator",
    "cpu_execution_accelerator": "execution_accelerators.cpu_execution_accelerator",
    "model_repository_agents": "model_repository_agents.agents",
    "model_metrics": "model_metrics.metric_control",
}
"""Attributes that have another name in the protocol; a dot leads into a message."""

# `optimization {}` and no optimization are different JSON (Triton shows only what is set), but
# equal objects.
_FOLDED = (
    "optimization",
    "optimization.graph",
    "optimization.execution_accelerators",
    "model_operations",
    "model_transaction_policy",
    "model_repository_agents",
    "response_cache",
    "model_metrics",
)
"""Messages whose presence, if they are empty, no attribute of a ModelConfig shows."""


def read_message(message: Message) -> ModelConfig:
    """Return the ModelConfig in `message`, an inference.ModelConfig.

    Raises InvalidConfig for an unknown enum value, and for an input or output without a type.
    """
    config: ModelConfig = _read(message, ModelConfig)
    given = frozenset(path for path in _FOLDED if _is_given(message, path))
    written = frozenset(field.name for field, _ in message.ListFields())
    return replace(config, given=given, written=written)


def write_message(config: ModelConfig, message: Message) -> None:
    """Write `config` into `message`, an empty inference.ModelConfig."""
    _write(message, config)
    for path in config.given:
        reduce(getattr, path.split("."), message).SetInParent()


def _is_given(message: Any, path: str) -> bool:
    for name in path.split("."):
        if not message.HasField(name):
            return False
        message = getattr(message, name)
    return True


def _read(message: Any, cls: Any) -> Any:
    if cls is None:
        # A wrapper such as ModelParameter{string_value} stands for its value, and one without
        # fields, such as VersionPolicy.All, for having been there.
        inner = message.DESCRIPTOR.fields
        return _read_field(message, inner[0], None) if inner else True
    values: dict[str, Any] = {}
    for attribute in _attributes(cls):
        owner, field = _place_of(attribute, message)
        if field.has_presence and not owner.HasField(field.name):
            continue
        values[attribute.name] = _read_field(owner, field, _class_in(attribute.type))
        # Only a datatype: TYPE_INVALID, protobuf's 0, is also what one reads that was never
        # written.
        if values[attribute.name] is None and attribute.default is MISSING:
            kind = message.DESCRIPTOR.name.removeprefix("Model").lower()
            raise NoDatatype(f"{kind} '{message.name}' has no {field.name}", (field.name,))
    return cls(**values)


def _read_field(owner: Any, field: FieldDescriptor, cls: Any) -> Any:
    value = getattr(owner, field.name)
    if is_map(field):
        # Protobuf gives the entries in an order that differs from one process to the next, and what
        # is made of a configuration, such as the keys of a shared cache, has to be the same in all.
        return {
            key: _read_at((field.name, key), value_field(field), value[key], cls)
            for key in sorted(value)
        }
    if field.is_repeated:
        return tuple(
            _read_at((field.name, number), field, item, cls) for number, item in enumerate(value)
        )
    return _read_at((field.name,), field, value, cls)


def _read_at(path: FieldPath, field: FieldDescriptor, value: Any, cls: Any) -> Any:
    """Return the value at `path` below its message; errors tell the way to it."""
    try:
        return _read_value(field, value, cls)
    # Each level puts its own step before the path, so that no path is made while all is well.
    except InvalidConfig as error:
        error.path = (*path, *error.path)
        raise


def _read_value(field: FieldDescriptor, value: Any, cls: Any) -> Any:
    if field.message_type is not None:
        return _read(value, cls)
    if field.enum_type is None:
        return value
    named = field.enum_type.values_by_number.get(value)
    # proto3's enums are open: any number is kept.
    if named is None:
        known = ", ".join(field.enum_type.values_by_name)
        raise InvalidConfig(f"{field.name} is {value}, expected one of {known}")
    if field.enum_type.name == "DataType":
        # None for TYPE_INVALID; whether that is wrong depends on the field.
        return DATATYPES.get(named.name.removeprefix("TYPE_"))
    return named.name


def _write(message: Any, value: Any) -> None:
    if not is_dataclass(value):
        for field in message.DESCRIPTOR.fields:
            _write_field(message, field, value)
        return
    for attribute in _attributes(value):
        one = getattr(value, attribute.name)
        # A field at its default that is written would become "set", and be shown by to_json.
        if one != _default_of(attribute):
            _write_field(*_place_of(attribute, message), one)


def _write_field(owner: Any, field: FieldDescriptor, value: Any) -> None:
    target = getattr(owner, field.name)
    if is_map(field):
        for key, item in value.items():
            if value_field(field).message_type is None:
                target[key] = item
            # Reading target[key] makes the entry, even for a message without content.
            else:
                _write(target[key], item)
    elif field.is_repeated:
        for item in value:
            if field.message_type is None:
                target.append(item)
            else:
                _write(target.add(), item)
    elif field.message_type is not None:
        # Presence counts: `cuda {}` is more than no cuda.
        target.SetInParent()
        _write(target, value)
    else:
        setattr(owner, field.name, _number_of(field, value))


def _number_of(field: FieldDescriptor, value: Any) -> Any:
    if field.enum_type is None:
        return value
    if isinstance(value, DataType):
        # The one datatype that configurations and the protocol call by different names.
        value = "TYPE_STRING" if value is DataType.BYTES else f"TYPE_{value.value}"
    return field.enum_type.values_by_name[value].number


def _attributes(described: Any) -> list[Field[Any]]:
    """Return the fields of a class or object that the protocol has, too."""
    return [field for field in fields(described) if not field.metadata.get("ours")]


def _class_in(annotation: Any) -> Any:
    """Return the dataclass in an attribute's type, such as `tuple[ModelInput, ...]`, or None."""
    return next(filter(is_dataclass, (annotation, *get_args(annotation))), None)


def _place_of(attribute: Field[Any], message: Any) -> tuple[Any, FieldDescriptor]:
    """Return the message, `message` or one in it, that holds `attribute`, and the field there."""
    *way, name = _PATHS.get(attribute.name, attribute.name).split(".")
    for step in way:
        message = getattr(message, step)
    return message, message.DESCRIPTOR.fields_by_name[name]


def _default_of(attribute: Field[Any]) -> Any:
    if attribute.default_factory is not MISSING:
        return attribute.default_factory()
    return attribute.default


def is_map(field: FieldDescriptor) -> bool:
    """Tell whether `field` is a map, which protobuf represents as repeated entries."""
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def value_field(field: FieldDescriptor) -> FieldDescriptor:
    """Return the field that holds the values of the map `field`."""
    entry: Any = field.message_type
    value: FieldDescriptor = entry.fields_by_name["value"]
    return value
