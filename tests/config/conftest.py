"""ModelConfig messages to test with: one that says everything, and any number of random ones."""

import random
import string

import pytest
from google.protobuf.descriptor import FieldDescriptor

from inferd.config.message import is_map, value_field
from inferd.config.proto import MODEL_CONFIG, config_pool, message_class

LIMITS = {
    FieldDescriptor.TYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.TYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.TYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.TYPE_UINT64: (0, 2**64 - 1),
}
ALPHABET = string.printable + "\0äß漢\U0001f600\u2028"


@pytest.fixture(scope="session")
def empty_message():
    """Makes an empty message."""
    return message_class(config_pool(), MODEL_CONFIG)


@pytest.fixture(scope="session")
def full_message(empty_message):
    """Makes a message with every field set, and of each oneof the member with the given number."""

    def make(choice):
        return _fill(empty_message(), random.Random(choice), 1.0, choice)

    return make


@pytest.fixture(scope="session")
def random_message(empty_message):
    """Makes, from a seed, a message with some fields set, to any value they take."""

    def make(seed):
        chooser = random.Random(seed)
        return _fill(empty_message(), chooser, chooser.choice([0.2, 0.5, 0.9]), None)

    return make


def _fill(message, chooser, share, choice):
    chosen = set()
    for oneof in message.DESCRIPTOR.oneofs:
        number = chooser.randrange(len(oneof.fields)) if choice is None else choice
        chosen.add(oneof.fields[number % len(oneof.fields)].name)
    for field in message.DESCRIPTOR.fields:
        if field.containing_oneof is not None and field.name not in chosen:
            continue
        must = field.name == "data_type"
        if must or chooser.random() < share:
            _set(message, field, chooser, share, choice)
    return message


def _set(message, field, chooser, share, choice):
    target = getattr(message, field.name)
    if is_map(field):
        values = value_field(field)
        for _ in range(chooser.randrange(1, 3)):
            key = _value(field.message_type.fields_by_name["key"], chooser, choice)
            if values.message_type is None:
                target[key] = _value(values, chooser, choice)
            else:
                _fill(target[key], chooser, share, choice)
    elif field.is_repeated and field.message_type is not None:
        for _ in range(chooser.randrange(1, 3)):
            _fill(target.add(), chooser, share, choice)
    elif field.is_repeated:
        target.extend(_value(field, chooser, choice) for _ in range(chooser.randrange(1, 4)))
    elif field.message_type is not None:
        target.SetInParent()
        _fill(target, chooser, share, choice)
    else:
        setattr(message, field.name, _value(field, chooser, choice))


def _value(field, chooser, choice):
    """Return a value `field` takes; one that is not its default if `choice` is given."""
    if field.enum_type is not None:
        numbers = [value.number for value in field.enum_type.values]
        # A tensor without datatype is refused, so no datatype is 0.
        has_default = field.enum_type.name != "DataType" and (choice is None or len(numbers) == 1)
        return chooser.choice(numbers if has_default else numbers[1:])
    if field.type == FieldDescriptor.TYPE_BOOL:
        return choice is not None or chooser.random() < 0.5
    if field.type == FieldDescriptor.TYPE_STRING:
        least = 0 if choice is None else 1
        return "".join(chooser.choices(ALPHABET, k=chooser.randrange(least, 5)))
    if field.type in LIMITS:
        low, high = LIMITS[field.type]
        return chooser.choice([high, low if choice is None else 7, chooser.randint(1, 2**31 - 1)])
    return chooser.choice([0.1, 1e-20, 2.0**20]) * chooser.randint(1, 9)


ROOT = config_pool().FindMessageTypeByName(MODEL_CONFIG)
MOST_LEVELS = 6


def fields_below(message, way=()):
    """Yield each field of `message` and of those in it, and the way there: names and wrappings."""
    for field in message.fields:
        yield field, way
        inner = value_field(field).message_type if is_map(field) else field.message_type
        if inner is None or len(way) >= MOST_LEVELS:
            continue
        wrap = "map" if is_map(field) else "list" if field.is_repeated else "one"
        yield from fields_below(inner, (*way, (field.name, wrap)))


@pytest.fixture(scope="session")
def config_fields():
    """Every field of a configuration, and the way to it."""
    found = list(fields_below(ROOT))
    assert len(found) > 100
    return found
