"""Tensor elements as JSON: converts the `data` of an input to wire bytes, and an output to text.

V2 protocol, Tensor Data. Integers are exact over all 64 bits and never wrap: a value that the
datatype cannot hold is refused. Whole numbers such as 1.0 and 1e2 are integers. Any nesting is
accepted; only the element count matters. In floats null is NaN, as libraries for tables write it.
"""

import base64
import math
import struct
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from functools import lru_cache
from math import prod
from typing import Any

import msgspec
import numpy as np
import orjson

from inferd.aio.inline import PIECE, NotFast
from inferd.errors import InvalidRequest
from inferd.tensor.dtype import DataType
from inferd.tensor.halves import float64_to_half, half_text, half_to_float32
from inferd.tensor.strings import check_strings, encode_strings
from inferd.tensor.tensor import Tensor
from inferd.wire.json.document import Input
from inferd.wire.json.kinds import not_a, unreadable

_INTEGERS = {
    datatype: ((-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if kind == "INT" else (0, 2**bits - 1))
    for datatype in DataType
    for kind, bits in [(datatype.value.rstrip("0123456789"), 8 * datatype.size_bytes)]
    if kind in ("INT", "UINT")
}
"""The integer datatypes, and the least and greatest value of each."""

_HALVES = (DataType.FP16, DataType.BF16)
_FLOATS = (DataType.FP32, DataType.FP64, *_HALVES)

# Decoders made once: making one compiles the type.
_read_integers = msgspec.json.Decoder(list[int]).decode
_read_floats = msgspec.json.Decoder(list[float]).decode
_read_floats_or_nulls = msgspec.json.Decoder(list[float | None]).decode
_read_texts = msgspec.json.Decoder(list[str]).decode
_read_booleans = msgspec.json.Decoder(list[bool]).decode

FLAT: dict[str, tuple[DataType, Callable[[msgspec.Raw | bytes], list[Any]], str]] = {
    "BOOL": (DataType.BOOL, _read_booleans, "?"),
    "UINT8": (DataType.UINT8, _read_integers, "B"),
    "UINT16": (DataType.UINT16, _read_integers, "H"),
    "UINT32": (DataType.UINT32, _read_integers, "I"),
    "UINT64": (DataType.UINT64, _read_integers, "Q"),
    "INT8": (DataType.INT8, _read_integers, "b"),
    "INT16": (DataType.INT16, _read_integers, "h"),
    "INT32": (DataType.INT32, _read_integers, "i"),
    "INT64": (DataType.INT64, _read_integers, "q"),
    "FP32": (DataType.FP32, _read_floats, "f"),
    "FP64": (DataType.FP64, _read_floats, "d"),
}
"""By name: the datatype, the reader of a flat array from text, and the struct code to pack it."""

Shape = tuple[int, ...]


def decode_flat(one: Input) -> Tensor | None:
    """Return the tensor of an input in the most common form: no parameters, a flat array as text.

    Return None for any other form. struct.pack checks every range. Raises NotFast when the input is
    for the exact reader.
    """
    data = one.data
    flat = FLAT.get(one.datatype)
    # Only msgspec leaves text here; the other readers have parsed it.
    if flat is None or type(data) is not msgspec.Raw:
        return None
    datatype, read, code = flat
    try:
        values = read(data)
        count = len(values)
        # struct is faster than numpy for the small arrays that such requests have.
        packed = struct.pack(f"<{count}{code}", *values)
    except (msgspec.MsgspecError, struct.error, OverflowError) as error:
        # Only floats have a second chance: null among them is NaN.
        if read is not _read_floats:
            raise NotFast from error
        packed, count = _from_floats_or_nulls(data, code)
    shape = one.shape
    # Two negative dims can multiply to the right count; no model's configuration fits them.
    if prod(shape) != count or -1 in shape:
        shape = resolve_shape(one.name, shape, count)
    return Tensor(one.name, datatype, shape, packed)


def _from_floats_or_nulls(data: msgspec.Raw, code: str) -> tuple[bytes, int]:
    try:
        values = [math.nan if one is None else one for one in _read_floats_or_nulls(data)]
        return struct.pack(f"<{len(values)}{code}", *values), len(values)
    except (msgspec.MsgspecError, struct.error, OverflowError) as error:
        raise NotFast from error


def decode_data(name: str, datatype: DataType, shape: Shape, data: Any) -> Tensor:
    """Return the tensor for the JSON value `data` of input `name`.

    `data` is as a reader of `json_document` left it. One -1 in `shape` is resolved from the
    element count. Raises NotFast when the input is for the exact reader, else InvalidRequest.
    """
    if type(data) is msgspec.Raw:
        packed, count = _from_raw(datatype, data)
    elif type(data) is list:
        packed, count = _from_values(name, datatype, flatten(data))
    elif hasattr(data, "as_buffer"):
        packed, count = _from_simdjson(datatype, data)
    elif type(data) is str:
        return _from_base64(name, datatype, shape, data)
    else:
        raise InvalidRequest(
            f"{unreadable('data', 'array')}: that of input '{name}' must be an array or a base64 "
            f"string"
        )
    # Two negative dims can multiply to the right count; no model's configuration fits them.
    if prod(shape) != count or -1 in shape:
        shape = resolve_shape(name, shape, count)
    return Tensor(name, datatype, shape, packed)


# Nested strings and all other datatypes come here as values instead.
def _from_raw(datatype: DataType, data: msgspec.Raw) -> tuple[Any, int]:
    """Read a flat array of strings straight from its text."""
    if datatype is not DataType.BYTES:
        raise NotFast
    try:
        texts = _read_texts(data)
        return encode_strings(texts, ""), len(texts)
    # Half a surrogate pair, which no UTF-8 can hold.
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise NotFast from error


def _from_simdjson(datatype: DataType, data: Any) -> tuple[Any, int]:
    """Read a large array of any nesting through one typed buffer."""
    try:
        if datatype in _INTEGERS:
            signed = datatype.numpy.kind == "i"
            # simdjson has 64-bit numbers only; narrower ones are compared with what they became.
            wide = np.frombuffer(
                data.as_buffer(of_type="i" if signed else "u"), np.int64 if signed else np.uint64
            )
            packed = wide.astype(datatype.numpy, copy=False)
            # One that does not fit has wrapped around.
            if packed.dtype != wide.dtype and not np.array_equal(packed, wide):
                raise NotFast
        elif datatype in _FLOATS:
            packed = _packed_floats(datatype, _wide_floats(data))
        else:
            # Not as_list: see MAX_LIST_BYTES.
            return _from_plain_list(datatype, _flattened(data, type(data)))
    except (TypeError, ValueError, RuntimeError, FloatingPointError) as error:
        raise NotFast from error
    return packed, packed.size


def _wide_floats(data: Any) -> Any:
    """Return the float64 values of a simdjson array. Raises TypeError, as it does, for others."""
    try:
        return np.frombuffer(data.as_buffer(of_type="d"))
    except TypeError:
        values = _flattened(data, type(data))
        # simdjson makes 1 an int; all other kinds are for the exact reader to word.
        if not {type(value) for value in values} <= {float, int, type(None)}:
            raise
    return np.array([math.nan if one is None else one for one in values], np.float64)


def _from_plain_list(datatype: DataType, values: list[Any]) -> tuple[Any, int]:
    expected = str if datatype is DataType.BYTES else bool
    if not all(type(value) is expected for value in values):
        raise NotFast
    if datatype is DataType.BYTES:
        return encode_strings(values, ""), len(values)
    return bytes(values), len(values)


def _packed_floats(datatype: DataType, wide: Any) -> Any:
    """Round float64 values to `datatype` once. Raises FloatingPointError when one overflows."""
    if datatype is DataType.FP64:
        return wide
    # Raised, since numpy only warns of a number that becomes infinite.
    with np.errstate(over="raise"):
        if datatype is DataType.FP32:
            return wide.astype(np.float32)
        packed = float64_to_half(wide, datatype)
    # What was finite has to stay so; an infinity that the client wrote is right.
    finite = np.isfinite(wide)
    if (_is_finite(packed, datatype) != finite).any():
        raise FloatingPointError
    return packed


def _is_finite(packed: Any, datatype: DataType) -> Any:
    if datatype is DataType.BF16:
        # The exponent of infinity and NaN: numpy has no BF16.
        return (packed & 0x7F80) != 0x7F80
    return np.isfinite(packed)


def flatten(values: list[Any]) -> list[Any]:
    """Return the elements of nested lists in order; iterative, so depth costs no stack."""
    # Most are flat already, and are passed on as they are.
    if not any(type(value) is list for value in values):
        return values
    return _flattened(values, list)


def _flattened(values: Iterable[object], kind: type[Iterable[object]]) -> list[Any]:
    """Return the elements of `values` in order, with nested values of this `kind` expanded."""
    flat: list[Any] = []
    stack: list[Iterator[object]] = [iter(values)]
    while stack:
        for value in stack[-1]:
            if type(value) is kind:
                stack.append(iter(value))
                break
            flat.append(value)
        else:
            stack.pop()
    return flat


def _from_values(name: str, datatype: DataType, values: list[Any]) -> tuple[Any, int]:
    """Convert Python values one by one; this defines what is accepted."""
    convert = _converter(datatype)
    packed = []
    for index, value in enumerate(values):
        try:
            packed.append(convert(value))
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidRequest(
                f"{_wrong_kind(datatype, value)}input '{name}': element {index} is "
                f"{_shown(value)}, which is not {error} for datatype {datatype.value}"
            ) from None
    if datatype is DataType.BYTES:
        return encode_strings(packed, name), len(packed)
    if datatype in _HALVES:
        # Rounded together, in one step from float64, so that nothing is rounded twice.
        wide = np.array(packed, np.float64)
        try:
            return _packed_floats(datatype, wide), len(packed)
        except FloatingPointError:
            limit = 65504 if datatype is DataType.FP16 else 3.3895e38
            worst = wide[np.isfinite(wide)]
            raise InvalidRequest(
                f"input '{name}': {worst[np.abs(worst).argmax()]} is not within "
                f"±{limit} for datatype {datatype.value}"
            ) from None
    return np.array(packed, datatype.numpy), len(packed)


def _converter(datatype: DataType) -> Callable[[Any], Any]:
    if (limits := _INTEGERS.get(datatype)) is not None:
        low, high = limits
        return lambda value: _integer(value, low, high)
    if datatype is DataType.FP32:
        # Checked for each, so that the error can name the element.
        return _float32
    if datatype in _FLOATS:
        return _float64
    return _text if datatype is DataType.BYTES else _boolean


def _integer(value: Any, low: int, high: int) -> int:
    wanted = f"a whole number from {low} to {high}"
    # 1.0 and 1e2 are whole numbers; bool is none, though Python has it as an int.
    if type(value) not in (int, Decimal) or not low <= value <= high or int(value) != value:
        raise ValueError(wanted)
    return int(value)


def _float64(value: Any) -> float:
    if type(value) is float:  # a NaN or infinity token
        return value
    if value is None:
        return math.nan
    if type(value) not in (int, Decimal):
        raise TypeError("a number")
    try:
        number = float(value)
    # Of an int beyond any float; a Decimal becomes infinite by itself.
    except OverflowError:
        number = math.inf
    if math.isinf(number):
        raise OverflowError("a number of double precision")
    return number


def _wrong_kind(datatype: DataType, value: Any) -> str:
    """Return the words to begin with if the kind of `value` is wrong, "" if only its size is."""
    if datatype is DataType.BYTES:
        return f"Unable to parse JSON bytes array: {not_a('string')}: "
    kind = "number"
    if datatype is DataType.BOOL:
        kind = "boolean"
    elif datatype in _INTEGERS:
        is_signed = datatype.value.startswith("INT")
        least, most = (-(2**63), 2**63) if is_signed else (0, 2**64)
        if type(value) is int and least <= value < most:
            return ""
        kind = "signed-integer" if is_signed else "unsigned-integer"
    elif type(value) in (int, float, Decimal):
        return ""
    return f"{unreadable('data', kind)}: "


def _float32(value: Any) -> float:
    number = _float64(value)
    try:
        # Rounds as FP32 does, and raises beyond its range.
        struct.pack("<f", number)
    except OverflowError:
        raise OverflowError("within ±3.4028235e38") from None
    return number


def _text(value: Any) -> bytes:
    if type(value) is not str:
        raise TypeError("a string")
    return value.encode()  # the exact reader has refused half surrogate pairs


def _boolean(value: Any) -> bool:
    # Numbers come from clients whose type for an element is "number, text or boolean" and takes
    # the first that fits: those generated from the protocol's own schema.
    if type(value) is not bool and not (type(value) in (int, Decimal) and value in (0, 1)):
        raise TypeError("true or false")
    return bool(value)


def _shown(value: Any) -> str:
    if type(value) is dict:
        return "an object"
    text = json_text(value)
    return text if len(text) <= 40 else text[:37] + "..."


def json_text(value: Any) -> str:
    """Return `value` as JSON text for error messages; never raises."""
    if isinstance(value, float) and not math.isfinite(value):
        return _token(value).decode()
    try:
        return orjson.dumps(value).decode()
    except (TypeError, ValueError):
        return str(value)


def resolve_shape(name: str, shape: Shape, count: int) -> Shape:
    """Return `shape` with its one -1 replaced so that it holds `count` elements.

    Raises InvalidRequest, naming what was expected, when that is impossible (V2 facts: shape -1).
    """
    # A dim of 0 beside it would leave the -1 open.
    if shape.count(-1) == 1 and all(dim > 0 for dim in shape if dim != -1):
        dim, rest = divmod(count, -prod(shape))
        if not rest:
            return tuple(dim if d == -1 else d for d in shape)
    if any(dim < 0 for dim in shape):
        raise InvalidRequest(
            f"{unreadable('shape', 'unsigned-integer')}: input '{name}' has shape {list(shape)}; "
            f"negative dims belong to metadata; a request may leave at most one dim -1, if its "
            f"{count} elements decide it"
        )
    raise InvalidRequest(
        f"Unable to parse 'data': Shape does not match true shape of 'data' field: input '{name}' "
        f"has shape {list(shape)}, {prod(shape)} elements, but 'data' holds {count}"
    )


def _from_base64(name: str, datatype: DataType, shape: Shape, text: str) -> Tensor:
    """Read `data` given as base64 of the tensor's wire bytes (V2 facts: data as string)."""
    try:
        if len(text) % 4 or text.endswith("==="):  # the standard library forgives such padding
            raise ValueError
        raw = base64.b64decode(text, validate=True)
    except ValueError:  # binascii.Error is one
        msg = f"input '{name}': 'data' is a string but not base64 (standard alphabet, padded)"
        raise InvalidRequest(msg) from None
    if datatype is DataType.BYTES:
        return Tensor(name, datatype, shape, _base64_strings(name, shape, raw))
    count, rest = divmod(len(raw), datatype.size_bytes)
    if rest:
        raise InvalidRequest(
            f"input '{name}': 'data' decodes to {len(raw)} bytes, "
            f"not a multiple of the {datatype.size_bytes} that one {datatype.value} takes"
        )
    if prod(shape) != count or -1 in shape:
        shape = resolve_shape(name, shape, count)
    return Tensor(name, datatype, shape, raw)


def _base64_strings(name: str, shape: Shape, raw: bytes) -> bytes | bytearray:
    if -1 in shape:
        raise InvalidRequest(
            f"input '{name}' has shape {list(shape)}: -1 belongs to metadata, "
            f"BYTES as base64 need every dim"
        )
    count = prod(shape)
    try:
        check_strings(raw, count, name)
    except InvalidRequest:
        if count != 1:
            raise
        # A single element may come without a length prefix: a bare image, for instance.
        return encode_strings([raw], name)
    return raw


_CODES = {datatype: code for datatype, _, code in FLAT.values() if datatype in _INTEGERS}
# Up to about here struct and a tuple are faster than an array of numpy's.
_MOST_SHORT = 64


@lru_cache(maxsize=1024)
def unpack_short(datatype: DataType, count: int) -> Callable[[Any], tuple[int, ...]] | None:
    """Return a function that unpacks `count` integers, if so few that an array would cost more.

    Return None for more of them, and for other datatypes.
    """
    if datatype not in _CODES or count >= _MOST_SHORT:
        return None
    return struct.Struct(f"<{count}{_CODES[datatype]}").unpack_from


def encode_data(tensor: Tensor, non_finite: str) -> bytes:
    """Return the elements of `tensor` as a flat JSON array.

    Floats are written as the shortest text that reads back the same. `non_finite` says how NaN
    and infinities are written: "tokens" (NaN, Infinity, -Infinity), "null", or "error".
    Raises InvalidRequest for them under "error", and for BYTES that are not UTF-8.
    """
    datatype = tensor.datatype
    count = prod(tensor.shape)
    if (unpack := unpack_short(datatype, count)) is not None:
        return orjson.dumps(unpack(tensor.data))
    # orjson holds the GIL until it is done, so large arrays are written in pieces.
    if count > PIECE and datatype is not DataType.BYTES:
        return _encode_in_pieces(tensor, count, non_finite)
    if datatype in _INTEGERS:
        flat = _flat(tensor, datatype.numpy)
        return orjson.dumps(flat, option=orjson.OPT_SERIALIZE_NUMPY)
    if datatype is DataType.BYTES:
        return _encode_texts(tensor)
    if datatype is DataType.BOOL:  # any byte but 0 is true
        flat = _flat(tensor, DataType.UINT8.numpy) != 0
        return orjson.dumps(flat, option=orjson.OPT_SERIALIZE_NUMPY)
    if datatype in _HALVES:
        return _encode_halves(tensor, non_finite)
    flat = _flat(tensor, datatype.numpy)
    text = orjson.dumps(flat, option=orjson.OPT_SERIALIZE_NUMPY)
    # orjson writes null for non-finite numbers; searching for it is cheaper than isfinite() when
    # the text is short.
    if b"null" in text if flat.size < 512 else not np.isfinite(flat).all():
        values = flat[~np.isfinite(flat)]
        return _with_tokens(tensor.name, text, values.tolist(), non_finite)
    return text


def _encode_in_pieces(tensor: Tensor, count: int, non_finite: str) -> bytes:
    size_bytes = tensor.datatype.size_bytes
    view = tensor.view()
    text: list[bytes | memoryview] = [b"["]
    for start in range(0, count, PIECE):
        end = min(start + PIECE, count)
        data = view[start * size_bytes : end * size_bytes]
        piece = Tensor(tensor.name, tensor.datatype, (end - start,), data)
        text.append(memoryview(encode_data(piece, non_finite))[1:-1])
        text.append(b",")
    text[-1] = b"]"
    return b"".join(text)


def _flat(tensor: Tensor, dtype: np.dtype[Any]) -> Any:
    """Return a one-dimensional array that is a view of the wire bytes of `tensor`."""
    data = tensor.data
    if type(data) is np.ndarray and data.dtype is dtype:
        return data.ravel()  # at half the cost of a new array
    return np.ndarray(prod(tensor.shape), dtype, tensor.data)


def _with_tokens(name: str, text: bytes, values: list[float], non_finite: str) -> bytes:
    # orjson has written null already.
    if non_finite == "null":
        return text
    if non_finite == "error":
        raise InvalidRequest(
            f"output '{name}' holds {values[0]}, which JSON cannot say; "
            f"ask for it with binary_data true"
        )
    # Numbers have no "null" in them, so each one found stands for a value that is not finite.
    pieces = text.split(b"null")
    out = [pieces[0]]
    for value, piece in zip(values, pieces[1:], strict=True):
        out.append(_token(value))
        out.append(piece)
    return b"".join(out)


def _token(value: float) -> bytes:
    if math.isnan(value):
        return b"NaN"
    return b"Infinity" if value > 0 else b"-Infinity"


def _encode_halves(tensor: Tensor, non_finite: str) -> bytes:
    bits = _flat(tensor, DataType.UINT16.numpy)
    # There are only 65536 of them, so each text is made once.
    text = half_text(tensor.datatype)
    joined = ",".join([text[one] for one in bits.tolist()])
    encoded = f"[{joined}]".encode()
    if b"null" not in encoded:
        return encoded
    values = half_to_float32(_flat(tensor, tensor.datatype.numpy), tensor.datatype)
    odd: list[float] = values[~np.isfinite(values)].tolist()
    return _with_tokens(tensor.name, encoded, odd, non_finite)


def _encode_texts(tensor: Tensor) -> bytes:
    elements = tensor.strings()
    try:
        pieces = [
            orjson.dumps([element.decode() for element in elements[start : start + PIECE]])[1:-1]
            for start in range(0, len(elements), PIECE)
        ]
        return b"[%b]" % b",".join(pieces)
    except UnicodeDecodeError:
        raise InvalidRequest(
            f"output '{tensor.name}' holds bytes that are not UTF-8, which JSON cannot say; "
            f"ask for it with binary_data true"
        ) from None
