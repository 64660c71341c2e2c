"""BYTES on the wire: each element is a little-endian uint32 length, then that many bytes.

Binary Tensor Data extension; one element has at most 2^32 - 1 bytes.
"""

import struct
from collections.abc import Iterable, Sequence
from typing import Any

from inferd.errors import InvalidRequest

MAX_ELEMENT_BYTES = 2**32 - 1
_LENGTH = struct.Struct("<I")
_MORE_SHOWN = 1000  # surplus elements beyond this number are not counted for the error text


def encode_strings(elements: Iterable[bytes | str], tensor: str) -> bytearray:
    """Return `elements` length-prefixed, in one new buffer; str is encoded as UTF-8.

    Raises InvalidRequest naming `tensor` when an element is longer than 2^32 - 1 bytes.
    """
    out = bytearray()
    pack = _LENGTH.pack
    for element in elements:
        raw = element.encode() if isinstance(element, str) else element
        size = len(raw)
        if size > MAX_ELEMENT_BYTES:
            msg = f"tensor '{tensor}': an element of {size} bytes exceeds the limit of 2^32 - 1"
            raise InvalidRequest(msg)
        out += pack(size)
        out += raw
    return out


def decode_strings(data: Any, tensor: str, model: str = "") -> list[bytes]:
    """Return the elements of the length-prefixed buffer `data`, copied.

    Raises InvalidRequest naming `tensor` when a length runs past the end. A length is checked
    before anything of that size is allocated. With `model` it is an input of that model.
    """
    view = memoryview(data)
    end = view.nbytes
    elements: list[bytes] = []
    unpack = _LENGTH.unpack_from
    offset = 0
    while offset < end:
        if end - offset < 4:
            raise InvalidRequest(
                f"incomplete string length indicator for {_named(tensor, model)}: {end - offset} "
                f"bytes left where a 4-byte length is expected"
            )
        size = unpack(view, offset)[0]
        offset += 4
        if size > end - offset:  # the model's name stands at the end, as clients know it
            kind, whose = ("inference input", f" for model '{model}'") if model else ("tensor", "")
            raise InvalidRequest(
                f"incomplete string data for {kind} '{tensor}', expecting string of length {size} "
                f"but only {end - offset} bytes available for element {len(elements)}{whose}"
            )
        # Copied, as a view of each would keep the whole request in memory.
        elements.append(bytes(view[offset : offset + size]))
        offset += size
    return elements


def count_strings(data: Any, tensor: str, most: int = MAX_ELEMENT_BYTES, model: str = "") -> int:
    """Return how many elements the length-prefixed buffer `data` holds; copy nothing.

    Stops after `most` + 1 elements. Raises InvalidRequest as `decode_strings` does.
    """
    view = memoryview(data)
    end = view.nbytes
    unpack = _LENGTH.unpack_from
    offset = count = 0
    while offset + 4 <= end and count <= most:
        offset += 4 + unpack(view, offset)[0]
        count += 1
    if offset > end or (offset < end and count <= most):
        decode_strings(data, tensor, model)  # finds and words the fault
    return count


def cut_strings(data: memoryview, counts: Sequence[int], tensor: str) -> list[memoryview]:
    """Cut the length-prefixed `data` into views of as many elements each as `counts` say, in order.

    `data` is flat. Raises InvalidRequest naming `tensor` when the number of its elements is not the
    sum of `counts`, or when it is malformed.
    """
    check_strings(data, sum(counts), tensor)
    unpack = _LENGTH.unpack_from
    views = []
    start = end = 0
    for count in counts:
        for _ in range(count):
            end += 4 + unpack(data, end)[0]
        views.append(data[start:end])
        start = end
    return views


def check_strings(data: Any, count: int, tensor: str, model: str = "") -> None:
    """Check that `data` holds exactly `count` well-formed elements.

    Raises InvalidRequest naming `tensor`. With `model` it is an input of that model.
    """
    size = memoryview(data).nbytes
    if 4 * count <= size:
        most = count + _MORE_SHOWN
        found = count_strings(data, tensor, most, model)
        if found != count:
            raise wrong_count(tensor, count, found, model)
    elif size <= _MORE_SHOWN:
        raise wrong_count(tensor, count, count_strings(data, tensor, model=model), model)
    else:  # each length takes 4 bytes; large data is not counted for the error text
        raise _too_few(tensor, count, f"only {size} bytes", model)


def wrong_count(tensor: str, count: int, found: int, model: str = "") -> InvalidRequest:
    """Return the error for a tensor with `found` elements, whose shape asks for `count`.

    With `model` it is an input of that model. Surplus elements may not all have been counted.
    """
    if found < count:
        return _too_few(tensor, count, str(found), model)
    most = count + _MORE_SHOWN
    holds = str(found) if found <= most else f"beyond {most}"
    return InvalidRequest(
        f"unexpected number of string elements {holds} for {_named(tensor, model)}, expecting "
        f"{count}, as its shape says"
    )


def _too_few(tensor: str, count: int, holds: str, model: str) -> InvalidRequest:
    return InvalidRequest(
        f"expected {count} string elements for {_named(tensor, model)}, got {holds}; its shape "
        f"says how many"
    )


def _named(tensor: str, model: str) -> str:
    return f"inference input '{tensor}' for model '{model}'" if model else f"tensor '{tensor}'"
