"""Ways to break each field of a good config.pbtxt, and where what is wrong then stands."""

import re
from typing import NamedTuple

from google.protobuf import text_format
from google.protobuf.descriptor import FieldDescriptor

from inferd.config.positions import Positions
from inferd.config.proto import MODEL_CONFIG, config_pool, message_class


class Mutation(NamedTuple):
    """A broken text; what is wrong stands in it from `begin` to `end`, at `path` before that.

    `names` is the path without numbers and keys.
    """

    what: str
    path: tuple
    names: tuple
    text: str
    begin: int
    end: int


def config_message(text):
    """Return the message in a config.pbtxt."""
    return text_format.Parse(text, message_class(config_pool(), MODEL_CONFIG)())


def is_map(field):
    """Tell whether a field is a map."""
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def fields_in(text):
    """Yield path, descriptor and value of each field in a config.pbtxt, one of several each."""
    yield from _fields_in(config_message(text), text, Positions(text), ())


def _fields_in(message, text, positions, path):
    for field in message.DESCRIPTOR.fields:
        here = (*path, field.name)
        found = positions.without(here)
        if found is None or not re.match(rf"{field.name}\b", text[found.begin :]):
            continue
        if path and found.begin == positions.without(path).begin:  # of the message it would be in
            continue
        value = getattr(message, field.name)
        yield here, field, value
        if is_map(field):
            if field.message_type.fields_by_name["value"].message_type is not None:
                for key in value:
                    yield from _fields_in(value[key], text, positions, (*here, key))
        elif field.message_type is not None:
            for number, one in enumerate(value if field.is_repeated else [value]):
                inner = (*here, number) if field.is_repeated else here
                yield from _fields_in(one, text, positions, inner)


def wrong_value(field):
    """Return a value of another type than that of a field, as it is written."""
    if field.message_type is not None:
        return ': "no block"'
    if field.enum_type is not None:
        return ": NO_SUCH_VALUE"
    return ": { }" if field.cpp_type == FieldDescriptor.CPPTYPE_STRING else ': "text"'


def mutations_of(text):
    """Yield each field of a good text with a wrong name, a wrong value, too large, and twice."""
    positions = Positions(text)
    for path, field, value in fields_in(text):
        found = positions.without(path)
        begin, end = found.begin, found.end
        statement = text[begin:end]
        name = field.name
        names = names_of(path)
        assert statement.startswith(name), (path, statement)
        spoiled = {
            "misspelled": f"{name}_x{statement[len(name) :]}",
            "of another type": name + wrong_value(field),
        }
        is_number = field.cpp_type in (
            FieldDescriptor.CPPTYPE_INT32,
            FieldDescriptor.CPPTYPE_INT64,
            FieldDescriptor.CPPTYPE_UINT32,
            FieldDescriptor.CPPTYPE_UINT64,
        )
        if is_number:
            spoiled["too large"] = f"{name}: 99999999999999999999"
        # The parser does not notice that one with its default value was given before.
        is_noticed = field.has_presence or value != field.default_value
        if is_noticed and not field.is_repeated and field.message_type is None:
            spoiled["given twice"] = f"{statement} {statement}"
        for what, instead in spoiled.items():
            broken = text[:begin] + instead + text[end:]
            yield Mutation(what, path, names, broken, begin, begin + len(instead))


def names_of(path):
    """Return a path without numbers and keys."""
    message, names, is_keyed = config_pool().FindMessageTypeByName(MODEL_CONFIG), [], False
    for step in path:
        if is_keyed or isinstance(step, int):
            is_keyed = False
            continue
        names.append(step)
        field = message.fields_by_name[step]
        message, is_keyed = field.message_type, is_map(field)
        if is_keyed:
            message = message.fields_by_name["value"].message_type
    return tuple(names)


def offset_of(text, line, column):
    """Return the offset of a line and a column, both from 1."""
    starts = [0, *(found.end() for found in re.finditer("\n", text))]
    return starts[line - 1] + column - 1


def all_fields(descriptor, path=(), seen=()):
    """Yield the names of all fields of a message, without numbers and keys."""
    for field in descriptor.fields:
        inner = field.message_type
        yield (*path, field.name)
        if inner is not None and is_map(field):
            inner = inner.fields_by_name["value"].message_type
        if inner is not None and inner.full_name not in seen:
            yield from all_fields(inner, (*path, field.name), (*seen, inner.full_name))
