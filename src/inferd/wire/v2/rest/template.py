"""Templates for repeated JSON requests: the constant text is parsed once, then only compared.

A client that repeats a call sends the same text except for its id and for elements written as
numbers. Such a text has holes: the id, and the data array of each input that has one. The rest
need not be parsed again while it is the same byte for byte, because in JSON replacing one string
by another, or one array by another, does not change the meaning of the rest.

Holes are found by their keys, which a name or an odd parameter could imitate. So each is verified
before a text is remembered: marks are put into its holes, and the ordinary reader must find them
as the id and as the data of the inputs, in order.

Of shared memory a template holds only the references: each request resolves the regions itself. If
one of them is not as it should be, the text is parsed after all, which reports the error.

Rejected: a hash of the text as the key (a client could send another text with the same hash), and
holes for shapes (everything that depends on them would have to be decided again).
"""

import re
import struct
from collections.abc import Callable, Iterable
from functools import lru_cache
from itertools import chain
from math import prod
from typing import Any

import msgspec

from inferd.aio.inline import NotFast
from inferd.core.request import InferRequest, Resolve
from inferd.errors import InferdError
from inferd.tensor.dtype import DATATYPES, DataType
from inferd.tensor.tensor import Tensor
from inferd.wire.json.data import FLAT
from inferd.wire.json.document import Document, Input, JsonObject, JsonReader, Output
from inferd.wire.shared_memory import (
    OFFSET,
    PARAMETERS,
    REGION,
    SIZE,
    Reference,
    decode_reference,
    output_reference,
)
from inferd.wire.template import Template
from inferd.wire.v2.binary import Blobs

MOST_BYTES = 8192
"""Longer texts get no template: there, parsing the elements is the main cost."""

_MOST_CONSTANT_BYTES = 1024
"""The most bytes of a text's constant part that are remembered."""

_MOST_KEYS = 512
_MOST_TEMPLATES = 4
"""The most templates per key; texts that begin alike may continue differently."""

# An id at the beginning, where clients put it. One with escapes or non-ASCII does not match.
_ID = re.compile(rb'\{[ \n]?"id": ?"([ !#-\[\]-~]*)"')
_DATA = b'"data"'
_BINARY_SIZE = "binary_data_size"
_NOTHING = memoryview(b"")
_ARRAY = re.compile(rb'(?<!\\)"data": ?(\[[^\[\]"]*\])')


class _Part:
    """Where the data of an input are.

    They are `size_bytes` of the body, none if in shared memory; or an array that `read` parses and
    `pack` packs, with `after` as the text behind it, up to the next array or the end.
    """

    def __init__(
        self,
        size_bytes: int = 0,
        read: Callable[[bytes], list[Any]] | None = None,
        pack: Callable[..., bytes] = bytes,
        after: bytes = b"",
    ) -> None:
        self.size_bytes = size_bytes
        self.read = read
        self.pack = pack
        self.after = after


class _TextTemplate(Template):
    """A template found by its text: it begins with `before`, and its `parts` say how it goes on."""

    def __init__(
        self,
        pattern: InferRequest,
        before: bytes,
        parts: list[_Part],
        inputs: list[tuple[int, Reference]],
        outputs: list[tuple[int, Reference]],
        *,
        has_id: bool,
    ) -> None:
        super().__init__(pattern, [], inputs, outputs)
        # All requests that a template fills are alike.
        pattern.batch_key = object()
        self.has_id = has_id
        self._before = before
        self._parts = parts
        self._size_bytes = sum(part.size_bytes for part in parts)

    def read(self, text: bytes, at: int, data: memoryview, resolve: Resolve) -> InferRequest | None:
        """Return the request whose JSON part is `text`; its id ends at `at`.

        `data` is the binary part.

        Return None when the text does not match the template. Raises InferdError or NotFast for its
        shared memory, and the errors of `read` and `pack` for unsuitable elements.
        """
        before = self._before
        offset = 0
        # Constant text is compared byte by byte: see above why that is enough.
        if not text.startswith(before, at) or len(data) != self._size_bytes:
            return None
        at += len(before)
        found: list[Any] = []
        for part in self._parts:
            if part.read is None:
                end = offset + part.size_bytes
                found.append(data[offset:end])
                offset = end
            else:
                # Flat arrays of numbers only, so the first bracket is the array's.
                stop = text.find(b"]", at) + 1
                if not text.startswith(part.after, stop):
                    return None
                found.append(part.pack(*part.read(text[at:stop])))  # raises for any other count
                at = stop + len(part.after)
        # Anything behind would be another text.
        if at != len(text):
            return None
        request = self.filled(found)
        if self.inputs or self.outputs:
            self.share(request, resolve, on_loop=True)
        return request


class _AlikeTexts:
    """The templates of texts that begin alike."""

    def __init__(self) -> None:
        self.templates: list[_TextTemplate] = []
        self.tries = -1  # the first such text is not learned: it may be the only one


class Templates:
    """The templates of one codec; it belongs to one thread.

    `describe` adds a document's outputs and parameters to a request, `resolve` finds the shared
    memory that it refers to.
    """

    def __init__(
        self, describe: Callable[[InferRequest, Document, Blobs], None], resolve: Resolve
    ) -> None:
        self._describe = describe
        self._resolve = resolve
        self._alike = lru_cache(maxsize=_MOST_KEYS)(_alike)
        self._reader = JsonReader()
        # The next is often like the last one. None was: what has an id is not compared.
        self._last = _TextTemplate(InferRequest(""), b"", [], [], [], has_id=True)

    def request(
        self, model: str, version: str, text: bytes, data: memoryview
    ) -> InferRequest | None:
        """Return the request whose JSON part is `text`; tensors are views of `data`, the rest.

        Return None when no template matches the text, or it must be parsed for another reason.
        """
        last = self._last
        try:
            # Without an id in front the last template is tried before anything is searched.
            if not last.has_id:
                request = last.read(text, 0, data, self._resolve)
                if request is not None:
                    request.model = model
                    request.version = version
                    return request
            found = _ID.match(text)
            start = found.end() if found is not None else 0
            alike = self._templates_like(text, start)
            if alike is None:
                return None
            for template in alike.templates:
                request = template.read(text, start, data, self._resolve)
                if request is not None:
                    self._last = template
                    request.model = model
                    request.version = version
                    if found is not None:
                        request.id = found[1].decode()
                    return request
        # Whatever is unusual is told by the reader of whole texts.
        except (msgspec.MsgspecError, struct.error, OverflowError, InferdError, NotFast):
            return None
        if alike.tries < _MOST_TEMPLATES:
            alike.tries += 1
            # From the second one on.
            if alike.tries and (learned := self._learned(text, start)) is not None:
                alike.templates.append(learned)
        return None

    def _templates_like(self, text: bytes, start: int) -> _AlikeTexts | None:
        """Return the templates for texts that begin like `text` behind its id; None if long."""
        stop = text.find(_DATA, start)
        # The quote that ends an id counts: what follows one is no whole text, nor the reverse.
        start = max(0, start - 1)
        key = text[start:stop] if stop >= 0 else text[start:]
        return self._alike(key) if len(key) <= _MOST_CONSTANT_BYTES else None

    def _learned(self, text: bytes, start: int) -> _TextTemplate | None:
        """Return the template of a text whose id, if it begins with one, ends at `start`."""
        holes = [found.span(1) for found in _ARRAY.finditer(text, start)]
        edges = [start, *chain(*holes), len(text)]
        pieces = [text[at:stop] for at, stop in zip(edges[::2], edges[1::2], strict=True)]
        if sum(map(len, pieces)) > _MOST_CONSTANT_BYTES:
            return None
        mark = b"1"
        # A mark that occurs nowhere in the text cannot be taken for something else.
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
        shared: list[tuple[int, Reference]] = []
        parts = _parts(document.inputs, list(zip(marks, pieces[1:], strict=True)), request, shared)
        if parts is None or document.id != (mark.decode() if start else None):
            return None
        places = _places(document.outputs or ())
        for number, _ in places:
            request.outputs[number].place = None  # the pattern keeps no memory
        return _TextTemplate(request, pieces[0], parts, shared, places, has_id=start > 0)


def _alike(_key: bytes) -> _AlikeTexts:
    return _AlikeTexts()


def _parts(
    inputs: list[Input],
    holes: list[tuple[bytes, bytes]],
    request: InferRequest,
    shared: list[tuple[int, Reference]],
) -> list[_Part] | None:
    """Return the parts for `inputs`, which `request` gets, and `shared` where those are not here.

    Return None if one is unusual or the holes are not their data. `holes` are pairs of a mark and
    the text behind it.
    """
    parts = []
    for index, one in enumerate(inputs):
        datatype = DATATYPES.get(one.datatype)
        if datatype is None:
            return None
        part: _Part | None
        if one.parameters is None or not one.parameters:
            part = _written(one, holes)
        elif REGION in one.parameters:
            reference = _reference(one, one.parameters)
            if reference is None:
                return None
            shared.append((index, reference))
            part = _Part()
        else:
            part = _binary(one, datatype, one.parameters)
        if part is None:
            return None
        parts.append(part)
        request.inputs.append(Tensor(one.name, datatype, one.shape, b""))
    return None if holes else parts


def _places(outputs: Iterable[Output]) -> list[tuple[int, Reference]]:
    """Return the index and the reference of each output that goes to shared memory."""
    return [
        (number, reference)
        for number, one in enumerate(outputs)
        if (reference := output_reference(one)) is not None
    ]


def _reference(one: Input, parameters: JsonObject) -> Reference | None:
    if one.data is not msgspec.UNSET or not parameters.keys() <= PARAMETERS:
        return None
    region, offset, size_bytes = map(parameters.get, (REGION, OFFSET, SIZE))
    try:
        return decode_reference(one.name, region, offset, size_bytes)
    except InferdError:
        return None


def _binary(one: Input, datatype: DataType, parameters: JsonObject) -> _Part | None:
    size_bytes = parameters.get(_BINARY_SIZE)
    if datatype is DataType.BYTES or type(size_bytes) is not int:
        return None
    is_usual = len(parameters) == 1 and one.data is msgspec.UNSET and -1 not in one.shape
    if not is_usual or size_bytes != datatype.size_bytes * prod(one.shape):
        return None
    return _Part(size_bytes)


def _written(one: Input, holes: list[tuple[bytes, bytes]]) -> _Part | None:
    flat = FLAT.get(one.datatype)
    if flat is None or not holes or type(one.data) is not msgspec.Raw or -1 in one.shape:
        return None
    mark, after = holes.pop(0)
    if bytes(one.data) != mark:
        return None
    _, read, code = flat
    count = prod(one.shape)
    if count > MOST_BYTES:  # no such text has room for so many
        return None
    pack = struct.Struct(f"<{count}{code}").pack
    return _Part(0, read, pack, after)
