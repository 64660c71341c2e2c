"""The JSON text of a V2 request as structs, by the fastest reader that reads it exactly.

There are three readers with the same semantics. msgspec leaves each `data` as raw text, which a
typed decoder then reads; for large bodies simdjson is faster; what neither takes (NaN tokens, 1.0
for an integer, numbers beyond 64 bits, nested data, a byte order mark) goes to the exact reader on
the standard library, which defines what is accepted and words the errors. The fast ones never
accept what the exact one would refuse, nor read it differently (tests compare them), with one
exception: they skip unknown keys without checking that the text in them is UTF-8.
"""

import json
import re
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any, cast

import msgspec

from inferd.aio.inline import NotFast
from inferd.errors import InvalidRequest
from inferd.wire.json.kinds import unreadable, why_no_request

try:
    import simdjson
except ImportError:  # no wheel for this interpreter: msgspec reads large bodies too
    simdjson = None  # type: ignore[assignment]

LARGE_BYTES = 16384
"""From this size on simdjson is faster than msgspec."""

LONG_BYTES = 65536
"""Shorter members of a flat object are read exactly, which takes about a millisecond."""

MOST_MEMBERS = 10_000
"""A flat object with more of them is read exactly as a whole: one by one it would take longer."""

MAX_EXACT_BYTES = 8 << 20
"""The exact reader needs some 30 times the memory of its text, and a second for a few MB."""

KEEP_PARSER_BYTES = 8 << 20
"""simdjson's parser keeps the memory of its largest document; beyond this size it is discarded."""

MAX_LIST_BYTES = 32 << 20
"""simdjson counts an array's elements in 24 bits, and pysimdjson's as_list makes a list of that
many and writes the rest past its end. In a text up to this size no array has more elements: each
takes at least two bytes."""


MAX_RANK = 64
"""The most dims a shape may have: numpy's own limit, far above any model's."""

_ARRAY, _OBJECT = b"[{"
_MAX_DIM = 2**63 - 1

Dim = Annotated[int, msgspec.Meta(ge=-1, le=_MAX_DIM)]
JsonObject = dict[str, Any]
"""Members by name."""

Shape = Annotated[tuple[Dim, ...], msgspec.Meta(max_length=MAX_RANK)]


# They hold no cycles, and there is one per input of each request.
class Input(msgspec.Struct, gc=False):
    """$request_input. `data` is as the reader left it: Raw, a simdjson array, or Python values."""

    name: str
    shape: Shape
    datatype: str
    parameters: JsonObject | None = None
    data: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class OutputParameters(msgspec.Struct, gc=False):
    """The known parameters of an output; others are tolerated."""

    binary_data: bool | None = None
    classification: int | None = None
    shared_memory_region: str | None = None
    shared_memory_offset: int | None = None
    shared_memory_byte_size: int | None = None


class Output(msgspec.Struct, gc=False):
    """$request_output."""

    name: str
    parameters: OutputParameters | None = None


class Document(msgspec.Struct, gc=False):
    """$inference_request. Keys not listed are ignored."""

    inputs: list[Input]
    id: str | None = None
    parameters: JsonObject | None = None
    outputs: list[Output] | None = None


class _ExactInput(Input, gc=False):
    shape: tuple[int, ...]  # any dims, so that the error can name the input
    data: Any = msgspec.UNSET


class _ExactDocument(Document, gc=False):
    inputs: list[_ExactInput]  # type: ignore[assignment]  # narrower, and never written to


_INPUT_KEYS = tuple(field for field in Input.__struct_fields__ if field != "data")

_decode = msgspec.json.Decoder(Document).decode
_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_text = msgspec.json.Decoder(str).decode


class JsonReader:
    """Reads request documents; holds simdjson's parser, so it belongs to one thread."""

    def __init__(self) -> None:
        self._parser: Any = None

    def read_fast(self, text: memoryview) -> Document:
        """Read the common case. Raises NotFast when the text is for `read_exact`."""
        if simdjson is not None and len(text) >= LARGE_BYTES:
            return self._read_large(text)
        try:
            return _decode(text)
        # What nests deeply goes to the exact reader, which words the error.
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            raise NotFast from error

    def _read_large(self, text: memoryview) -> Document:
        parser = self._parser or simdjson.Parser()
        # A parser refuses a new document while anything refers to the last one (an error's
        # traceback, for instance), so it is put back only on success.
        self._parser = None
        try:
            root: Any = parser.parse(text)
            inputs = root["inputs"]
            if not hasattr(inputs, "as_buffer"):  # only arrays have it
                raise NotFast
            for one in (root, *inputs):
                if len(set(one.keys())) != len(one):  # other readers take the last duplicate
                    raise NotFast
            large = [one.get("data", msgspec.UNSET) for one in inputs]
            plain_of = _plain if len(text) <= MAX_LIST_BYTES else _plain_of_any_size
            plain = {
                key: plain_of(root[key]) for key in ("id", "parameters", "outputs") if key in root
            }
            # Only these: simdjson looks for a key from the first member on, each time.
            plain["inputs"] = [
                {key: plain_of(one[key]) for key in _INPUT_KEYS if key in one} for one in inputs
            ]
            # simdjson has no schema, so msgspec validates the rest of the document.
            document = msgspec.convert(plain, Document)
            for one, data in zip(document.inputs, large, strict=True):
                one.data = data
        except (ValueError, TypeError, KeyError, AttributeError, RuntimeError) as error:
            raise NotFast from error
        if len(text) <= KEEP_PARSER_BYTES:
            self._parser = parser
        return document


def _plain(value: Any) -> Any:
    if hasattr(value, "as_dict"):
        return value.as_dict()
    return value.as_list() if hasattr(value, "as_list") else value


def _plain_of_any_size(value: Any) -> Any:
    return msgspec.json.decode(value.mini) if hasattr(value, "mini") else value


def read_members(text: memoryview | msgspec.Raw, nested: str | None = "parameters") -> JsonObject:
    """Return the members of a flat object, each given once: the short ones read exactly.

    Of the long ones strings are read, arrays left as Raw, and the object in the member `nested` is
    read as this one. Raises NotFast when `loads_exact` must be asked.
    """
    try:
        members: JsonObject = _decode_members(text)
        if len(members) > MOST_MEMBERS or not _is_each_once(memoryview(text), members):
            raise NotFast
        return {key: _member(raw, may_nest=key == nested) for key, raw in members.items()}
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError, InvalidRequest) as error:
        raise NotFast from error


def _member(raw: msgspec.Raw, *, may_nest: bool) -> Any:
    text = memoryview(raw)
    if len(text) <= LONG_BYTES:
        return loads_exact(text, once=True)
    if text[0] == _ARRAY:
        return raw
    if text[0] == _OBJECT and may_nest:
        # One level only: parameters of parameters have no meaning.
        return read_members(raw, nested=None)
    return _decode_text(raw)


def _is_each_once(text: memoryview, members: dict[str, msgspec.Raw]) -> bool:
    """Tell whether `text` is as long as `members` make it: of equal ones the last alone is there.

    It can be deceived by values that go on in the text where another ends, to no gain.
    """
    at = 0
    for raw in members.values():
        key = _KEY.match(text, at)
        if key is None:
            return False
        at = key.end() + len(memoryview(raw))
    return not members or _END.fullmatch(text, at) is not None


def array_of(raw: msgspec.Raw) -> Any:
    """Return a long array as simdjson's, or, if that is missing, as it is. Raises NotFast."""
    if simdjson is None:
        # msgspec reads it then, more slowly.
        return raw
    try:
        return simdjson.Parser().parse(memoryview(raw))
    except (ValueError, RuntimeError) as error:
        raise NotFast from error


def read_exact(text: memoryview) -> Document:
    """Read `text` exactly: floats as Decimal, integers of any size, NaN tokens as floats.

    Raises InvalidRequest, which says what is wrong and where.
    """
    if len(text) > MAX_EXACT_BYTES:
        raise InvalidRequest(
            f"the JSON part has {len(text)} bytes and is not plain: it is malformed, or holds NaN, "
            f"infinities, whole numbers written as 1.0, or integers beyond 64 bits. Only up to "
            f"{MAX_EXACT_BYTES} bytes are read then; send large tensors as binary data"
        )
    return document_of(loads_exact(text))


def document_of(values: Any) -> Document:
    """Convert `values`, read by `loads_exact`, to a document. Raises InvalidRequest."""
    try:
        document = msgspec.convert(values, _ExactDocument)
    except msgspec.ValidationError as error:
        msg = f"the request body is JSON, but not an inference request: {error}"
        # Triton's words in front, since clients compare them.
        if words := why_no_request(error):
            msg = f"{words}: {msg}"
        raise InvalidRequest(msg) from None
    for one in document.inputs:
        _check_dims(one)
    return cast("Document", document)


def _check_dims(one: Input) -> None:
    if len(one.shape) > MAX_RANK:
        msg = f"input '{one.name}' has {len(one.shape)} dims, expected at most {MAX_RANK}"
        raise InvalidRequest(msg)
    for index, dim in enumerate(one.shape):
        if not -1 <= dim <= _MAX_DIM:
            raise InvalidRequest(
                f"{unreadable('shape', 'unsigned-integer')}: input '{one.name}': dim {index} is "
                f"{dim}, expected 0 to 2^63 - 1"
            )


def loads_exact(text: memoryview | bytes, *, once: bool = False) -> Any:
    """Return the value of the JSON `text`: floats as Decimal, NaN and infinity tokens as float.

    Of members with the same name the last one counts; with `once` they are refused. Raises
    InvalidRequest when it is not JSON in UTF-8 (a leading byte order mark is skipped).
    """
    try:
        chars = str(text, "utf-8-sig")
    except UnicodeDecodeError as error:
        msg = f"the request body is not UTF-8: byte {error.start} is 0x{text[error.start]:02x}"
        raise InvalidRequest(msg) from None
    try:
        # Decimal, so that no digit is lost of an integer that is written as 9007199254740993.0.
        values = json.loads(
            chars, parse_float=_decimal, object_pairs_hook=_members_once if once else None
        )
    except json.JSONDecodeError as error:
        # Only after a failure, so that all other texts are not searched.
        if "Inf" in chars and (spelled := _INFINITY.sub(_spell_infinity, chars)) != chars:
            return loads_exact(spelled.encode(), once=once)
        what = error.msg.removesuffix(" at")
        raise InvalidRequest(
            f"failed to parse the request JSON buffer: {what} at line {error.lineno} "
            f"column {error.colno}"
        ) from None
    except RecursionError:
        raise InvalidRequest("the request body is nested too deeply") from None
    except ValueError:
        raise InvalidRequest("the request body holds an integer with too many digits") from None
    # Looked for in the text first, since looking at all strings takes long.
    if _SURROGATE.search(chars) and not _is_unicode(values):
        msg = "the request body holds a string with half a surrogate pair, expected Unicode"
        raise InvalidRequest(msg)
    return values


def _members_once(members: list[tuple[str, Any]]) -> JsonObject:
    values: JsonObject = {}
    for name, value in members:
        if name in values:
            raise InvalidRequest(f"the request body has '{name}' twice in one object")
        values[name] = value
    return values


def _decimal(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:  # the exponent is too large for Decimal; any huge one means the same
        mantissa, exponent = text.lower().split("e")
        return Decimal(f"{mantissa}e{'-' if exponent[0] == '-' else '+'}{10**17}")


_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def _is_unicode(values: Any) -> bool:
    """Return whether all strings in `values` can be UTF-8; iterative, so depth costs no stack."""
    stack = [values]
    while stack:
        value = stack.pop()
        if isinstance(value, dict):
            stack += value.keys()
            stack += value.values()
        elif isinstance(value, list):
            stack += value
        elif isinstance(value, str):
            try:
                value.encode()
            except UnicodeEncodeError:
                return False
    return True


_KEY = re.compile(
    rb'[ \t\r\n]*+[{,][ \t\r\n]*+"(?:[^"\\]++|\\.)*+"[ \t\r\n]*+:[ \t\r\n]*+', re.DOTALL
)
_END = re.compile(rb"[ \t\r\n]*+\}[ \t\r\n]*+")

# Possessive, and content with a string that never ends, so that no text makes it slow.
_INFINITY = re.compile(r'"(?:[^"\\]++|\\.)*+"?|\bInf\b', re.DOTALL)


def _spell_infinity(match: re.Match[str]) -> str:
    """Replace the token `Inf`, which Triton accepts but json does not; strings stay as they are."""
    return "Infinity" if match[0] == "Inf" else match[0]
