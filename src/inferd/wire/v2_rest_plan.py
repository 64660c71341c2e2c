"""What requests in JSON say again and again: read once, then only compared.

A client that repeats a call sends the same text but for its id and for elements written as
numbers. Such a text has holes: where the id stands, and the array of each input that has one. The
rest need not be read again while it is the same byte for byte, for in JSON a string may stand
where a string stood, and an array where an array stood, without changing what all the rest means.

Holes are found by their keys, which a name or an odd parameter could imitate. So each is proved
before a text is remembered: marks are put into its holes, and the ordinary reader must find these
as the id and as the data of the inputs, in their order.

What lies in shared memory is no part of a plan but where it lies: each request finds the regions
itself. Where one of them is not as it should be, the text is read after all, and that complains.

Refused: a hash of the text as its key (somebody could send another text with the same), and holes
for shapes (whatever they decide would have to be decided again).
"""

import re
import struct
from collections.abc import Callable, Iterable
from copy import copy
from functools import lru_cache
from itertools import chain
from math import prod
from typing import Any

import msgspec

from inferd.core.request import InferRequest, Resolve, Span
from inferd.errors import InferdError
from inferd.record import Record
from inferd.tensor.dtype import DATATYPES, DataType
from inferd.tensor.tensor import Tensor
from inferd.wire.inline import NotFast
from inferd.wire.json_data import FLAT
from inferd.wire.json_document import Document, Input, JsonReader, Output
from inferd.wire.v2_binary import Blobs
from inferd.wire.v2_shared_memory import (
    OFFSET,
    PARAMETERS,
    REGION,
    SIZE,
    Reference,
    decode_reference,
    output_reference,
    place_output,
    read_input,
    take_spans,
)

MOST_BYTES = 8192
"""Longer texts are not looked at: reading their elements is what costs then."""

_MOST_KEPT_BYTES = 1024
"""More than this is not remembered of a text."""

_MOST_KEYS = 512
_MOST_PLANS = 4
"""For a key; texts that begin alike may go on differently."""

# An id at the beginning, where clients put it; what needs escapes, or is not ASCII, is read.
_ID = re.compile(rb'\{[ \n]?"id": ?"([ !#-\[\]-~]*)"')
_DATA = b'"data"'
_BINARY_SIZE = "binary_data_size"
_NOTHING = memoryview(b"")
_NO_JSON = b"]"  # begins no text
_ARRAY = re.compile(rb'(?<!\\)"data": ?(\[[^\[\]"]*\])')


class _Part(Record):
    """What is known of an input beside its data.

    Those are `size_bytes` of the body, or written as an array, which `read` reads and `pack`
    packs; `after` is the text behind that array, up to the next one or the end. Or they lie in
    shared memory, where `shared` says.
    """

    _fields = (
        "name",
        "datatype",
        "shape",
        "size_bytes",
        "read",
        "pack",
        "after",
        "shared",
    )
    __slots__ = _fields

    def __init__(  # noqa: PLR0913
        self,
        name: str,
        datatype: DataType,
        shape: tuple[int, ...],
        size_bytes: int = 0,
        read: Callable[[bytes], list[Any]] | None = None,
        pack: Callable[..., bytes] = bytes,
        after: bytes = b"",
        shared: Reference | None = None,
    ) -> None:
        self.name = name
        self.datatype = datatype
        self.shape = shape
        self.size_bytes = size_bytes
        self.read = read
        self.pack = pack
        self.after = after
        self.shared = shared


class _Plan:
    """What one text says beside its id and its elements; `request` lacks them, and the model.

    `places` are those of wanted outputs, by their number, in shared memory.
    """

    __slots__ = (
        "_before",
        "_is_shared",
        "_parts",
        "_places",
        "_request",
        "_size_bytes",
        "has_id",
    )

    def __init__(
        self,
        request: InferRequest,
        before: bytes,
        parts: list[_Part],
        places: list[tuple[int, Reference]],
        *,
        has_id: bool,
    ) -> None:
        request.likeness = object()
        self.has_id = has_id
        self._places = places
        self._is_shared = bool(places) or any(part.shared is not None for part in parts)
        self._request = request
        self._before = before
        self._parts = parts
        self._size_bytes = sum(part.size_bytes for part in parts)

    def filled(
        self, text: bytes, at: int, body: memoryview, resolve: Resolve
    ) -> InferRequest | None:
        """Return the request of `text`, which begins the body; its id ends at `at`.

        None when it says anything else, or its elements are not as they should be. Raises
        InferdError or NotFast for what is wrong with its shared memory.
        """
        before = self._before
        offset = len(text)
        if not text.startswith(before, at) or len(body) != offset + self._size_bytes:
            return None
        at += len(before)
        inputs = []
        for part in self._parts:
            data: Any
            if part.shared is not None:
                data = b""
            elif part.read is None:
                end = offset + part.size_bytes
                data = body[offset:end]
                offset = end
            else:
                stop = text.find(b"]", at) + 1
                if not text.startswith(part.after, stop):
                    return None
                data = part.pack(*part.read(text[at:stop]))  # takes its count, nothing else
                at = stop + len(part.after)
            inputs.append(Tensor(part.name, part.datatype, part.shape, data))
        if at != len(text):
            return None
        planned = self._request
        request = planned.__copy__()  # copy.copy() would look for this method
        request.inputs = inputs
        if planned.parameters:
            request.parameters = planned.parameters.copy()
        if planned.sequence is not None:
            request.sequence = copy(planned.sequence)
        if self._is_shared:
            self._share(request, resolve)
        return request

    def _share(self, request: InferRequest, resolve: Resolve) -> None:
        """Give `request` its shared memory."""
        spans: list[Span] = []
        for index, part in enumerate(self._parts):
            reference = part.shared
            if reference is not None:
                span = resolve(reference[0], reference[1], reference[2])
                spans.append(span)
                read_input(request.inputs[index], span, on_loop=True)
        if self._places:
            request.outputs = [one.__copy__() for one in request.outputs]
        for number, reference in self._places:
            spans.append(place_output(request.outputs[number], reference, resolve))
        take_spans(request, spans, on_loop=True)


class _Known:
    """The plans of texts that begin alike."""

    __slots__ = ("plans", "tries")

    def __init__(self) -> None:
        self.plans: list[_Plan] = []
        self.tries = -1  # the first such text is not learned: it may be the only one


class Plans:
    """The texts of one codec; it belongs to one thread.

    `describe` adds to a request what its document says beside its inputs, `resolve` finds the
    shared memory that it refers to.
    """

    def __init__(
        self, describe: Callable[[InferRequest, Document, Blobs], None], resolve: Resolve
    ) -> None:
        self._describe = describe
        self._resolve = resolve
        self._known = lru_cache(maxsize=_MOST_KEYS)(_known)
        self._reader = JsonReader()
        self._last = _Plan(
            InferRequest(""), _NO_JSON, [], [], has_id=False
        )  # the next is often alike

    def request(
        self, model: str, version: str, body: memoryview, json_size: int
    ) -> InferRequest | None:
        """Return the request in `body`, whose first `json_size` bytes are JSON; tensors are views.

        None when nothing is known of such a text, or it has to be read for another reason.
        """
        text = bytes(body[:json_size])
        last = self._last
        try:
            if not last.has_id:
                request = last.filled(text, 0, body, self._resolve)
                if request is not None:
                    request.model = model
                    request.version = version
                    return request
            found = _ID.match(text)
            start = found.end() if found is not None else 0
            known = self._alike(text, start)
            if known is None:
                return None
            for plan in known.plans:
                request = plan.filled(text, start, body, self._resolve)
                if request is not None:
                    self._last = plan
                    request.model = model
                    request.version = version
                    if found is not None:
                        request.id = found[1].decode()
                    return request
        except (msgspec.MsgspecError, struct.error, OverflowError, InferdError, NotFast):
            return None
        if known.tries < _MOST_PLANS:
            known.tries += 1
            if known.tries and (learned := self._learned(text, start)) is not None:
                known.plans.append(learned)
        return None

    def _alike(self, text: bytes, start: int) -> _Known | None:
        """Return the plans of texts that begin as `text`, behind its id; None if that is long."""
        stop = text.find(_DATA, start)
        key = text[start:stop] if stop >= 0 else text[start:]
        return self._known(key) if len(key) <= _MOST_KEPT_BYTES else None

    def _learned(self, text: bytes, start: int) -> _Plan | None:
        """Return the plan of a text whose id, if it begins with one, ends at `start`."""
        holes = [found.span(1) for found in _ARRAY.finditer(text, start)]
        edges = [start, *chain(*holes), len(text)]
        pieces = [text[at:stop] for at, stop in zip(edges[::2], edges[1::2], strict=True)]
        if sum(map(len, pieces)) > _MOST_KEPT_BYTES:
            return None
        mark = b"1"
        while mark in text:
            mark += b"1"
        marks = [b"[%b,%d]" % (mark, number) for number in range(len(holes))]
        marked = b'{"id":"%b"' % mark if start else b""
        marked += pieces[0] + b"".join(chain(*zip(marks, pieces[1:], strict=True)))
        request, blobs = InferRequest(""), Blobs(_NOTHING, 0)
        try:
            document = self._reader.read_fast(memoryview(marked))
            self._describe(request, document, blobs)
        except (NotFast, InferdError):
            return None
        parts = _parts(document.inputs, list(zip(marks, pieces[1:], strict=True)))
        if parts is None or document.id != (mark.decode() if start else None):
            return None
        places = _places(document.outputs or ())
        for number, _ in places:
            request.outputs[number].place = None  # it is that of the next request
        return _Plan(request, pieces[0], parts, places, has_id=start > 0)


def _known(_key: bytes) -> _Known:
    return _Known()


def _parts(inputs: list[Input], holes: list[tuple[bytes, bytes]]) -> list[_Part] | None:
    """Return what is known of `inputs`, None if one is unusual, or a hole is not its data.

    `holes` are the marks in them, and the text behind each.
    """
    parts = []
    for one in inputs:
        part = _binary(one) if one.parameters else _written(one, holes)
        if part is None:
            return None
        parts.append(part)
    return None if holes else parts


def _places(outputs: Iterable[Output]) -> list[tuple[int, Reference]]:
    """Return the outputs that go to shared memory, by their number."""
    return [
        (number, reference)
        for number, one in enumerate(outputs)
        if (reference := output_reference(one)) is not None
    ]


def _shared(one: Input) -> _Part | None:
    datatype, parameters = DATATYPES.get(one.datatype), one.parameters or {}
    if datatype is None or one.data is not msgspec.UNSET or not parameters.keys() <= PARAMETERS:
        return None
    region, offset, size_bytes = map(parameters.get, (REGION, OFFSET, SIZE))
    try:
        reference = decode_reference(one.name, region, offset, size_bytes)
    except InferdError:
        return None
    return _Part(one.name, datatype, one.shape, shared=reference)


def _binary(one: Input) -> _Part | None:
    if one.parameters is not None and REGION in one.parameters:
        return _shared(one)
    datatype, size_bytes = DATATYPES.get(one.datatype), (one.parameters or {}).get(_BINARY_SIZE)
    if datatype is None or datatype is DataType.BYTES or type(size_bytes) is not int:
        return None
    is_usual = len(one.parameters or {}) == 1 and one.data is msgspec.UNSET and -1 not in one.shape
    if not is_usual or size_bytes != datatype.size_bytes * prod(one.shape):
        return None
    return _Part(one.name, datatype, one.shape, size_bytes)


def _written(one: Input, holes: list[tuple[bytes, bytes]]) -> _Part | None:
    flat = FLAT.get(one.datatype)
    if flat is None or not holes or type(one.data) is not msgspec.Raw or -1 in one.shape:
        return None
    mark, after = holes.pop(0)
    if bytes(one.data) != mark:
        return None
    datatype, read, code = flat
    count = prod(one.shape)
    if count > MOST_BYTES:  # there is no room for so many
        return None
    pack = struct.Struct(f"<{count}{code}").pack
    return _Part(one.name, datatype, one.shape, 0, read, pack, after)
