"""SharedMemoryControlRequest, whose layout changed with each of its first versions.

1.5 and 1.6 have a type and one region; 1.7 has a region's key, offset and size in other fields
than 1.8 and later. Read by the later layout, a request to register in 1.6 would unregister.
"""

from typing import Any

from inferd.errors import UnknownCall
from inferd.wire.proto import message_class, parse
from inferd.wire.proto.fields import decode_text
from inferd.wire.trtis.fields import decode_fields
from inferd.wire.trtis.status import PACKAGE

_REQUEST = f"{PACKAGE}.SharedMemoryControlRequest"
_WHAT = "a SharedMemoryControlRequest"

_REGISTER, _UNREGISTER, _UNREGISTER_ALL = 0, 1, 2
"""The type in 1.6. In 1.5, where none of it worked, the first two are swapped."""

# Tags: number and wire type of a field. First those of the request, then those of a region.
_TYPE, _NEWER_REGISTER, _REGION = 0x08, 0x0A, 0x12
_NAME, _KEY, _OFFSET_1_6, _SIZE_1_6 = 0x0A, 0x12, 0x18, 0x20
_SYSTEM, _OFFSET_1_7, _SIZE_1_7 = 0x12, 0x20, 0x28


def decode_memory_call(data: bytes) -> Any:
    """Return the SharedMemoryControlRequest in `data` in the layout of 1.8.

    Raises InvalidRequest, and UnknownCall for an unknown type.
    """
    fields = decode_fields(memoryview(data), _WHAT)
    region = _inner(fields, _REGION)
    # Only 1.5 and 1.6 have a type, and only there the key stands in the region itself.
    if _TYPE in fields or _KEY in region:
        return _of_1_6(fields.get(_TYPE, [_REGISTER])[-1], region)
    register = _inner(fields, _NEWER_REGISTER)
    where = _inner(register, _SYSTEM)
    if _KEY in where:
        return _registering(register, _text(where, _KEY), _OFFSET_1_7, _SIZE_1_7)
    return parse(_REQUEST, data)


def _of_1_6(kind: int, region: dict[int, list[Any]]) -> Any:
    if kind == _REGISTER:
        return _registering(region, _text(region, _KEY), _OFFSET_1_6, _SIZE_1_6)
    if kind == _UNREGISTER:
        return message_class(_REQUEST)(unregister={"name": _text(region, _NAME)})
    if kind == _UNREGISTER_ALL:
        return message_class(_REQUEST)(unregister_all={})
    msg = f"unknown sharedmemorycontrol request type: it is {kind}"
    raise UnknownCall(msg)


def _registering(region: dict[int, list[Any]], key: str, offset: int, size: int) -> Any:
    request = message_class(_REQUEST)()
    register = request.register
    register.name = _text(region, _NAME)
    register.system_shared_memory.shared_memory_key = key
    # Of a field given twice the last value counts (protobuf, encoding).
    register.system_shared_memory.offset = region.get(offset, [0])[-1]
    register.byte_size = region.get(size, [0])[-1]
    return request


def _inner(fields: dict[int, list[Any]], tag: int) -> dict[int, list[Any]]:
    """Return the fields of the message in field `tag`, none if that is missing."""
    return decode_fields(fields[tag][-1], _WHAT) if tag in fields else {}


def _text(fields: dict[int, list[Any]], tag: int) -> str:
    return decode_text(bytes(fields.get(tag, (b"",))[-1]))
