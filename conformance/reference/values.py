"""JSON values to wire bytes and back, one element at a time: slow, and easy to check by eye."""

import base64
import binascii
import math
import struct
from fractions import Fraction
from typing import Any

import numpy as np
from conformance.reference.models import SIZES, Refused, Tensor, elements

CODES = {
    "UINT8": "B", "UINT16": "<H", "UINT32": "<I", "UINT64": "<Q", "INT8": "b", "INT16": "<h",
    "INT32": "<i", "INT64": "<q",
}  # fmt: skip


class TooLarge:
    """A JSON number no double can hold."""


def read_float(text: str) -> float | TooLarge:
    """Parse a JSON number that has a fraction or an exponent."""
    number = float(text)
    return TooLarge() if math.isinf(number) else number


def encode_elements(name: str, datatype: str, data: list[Any]) -> bytes:
    """Return the wire bytes of flat JSON elements."""
    try:
        return b"".join(encode_element(datatype, element) for element in data)
    except (ValueError, struct.error, OverflowError, TypeError) as error:
        msg = f"input '{name}' has an element that is no {datatype}"
        raise Refused(msg) from error


def encode_element(datatype: str, value: Any) -> bytes:
    """Return one element's bytes. Raises ValueError (or what struct raises) when it is none."""
    if datatype == "BYTES":
        if not isinstance(value, str):
            raise ValueError(value)
        raw = value.encode()
        return struct.pack("<I", len(raw)) + raw
    if datatype == "BOOL":
        if not isinstance(value, bool):
            raise ValueError(value)
        return bytes([value])
    if value is None and datatype not in CODES:
        value = float("nan")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(value)
    if datatype in CODES:
        if value != int(value):
            raise ValueError(value)
        return struct.pack(CODES[datatype], int(value))
    return encode_float(datatype, value)


def encode_float(datatype: str, value: float) -> bytes:
    """Return a float's bytes, rounded to nearest even; too large raises ValueError."""
    with np.errstate(over="ignore"):
        if datatype == "BF16":
            raw = encode_bf16(value)
            result = decode_bf16(raw)
        else:
            dtype = {"FP16": "<f2", "FP32": "<f4", "FP64": "<f8"}[datatype]
            array = np.array([value], "<f8").astype(dtype)
            raw, result = array.tobytes(), float(array[0])
    if math.isinf(result) and not math.isinf(value):
        raise ValueError(value)
    return raw


def encode_bf16(value: float) -> bytes:
    """Return the nearest bfloat16, found among the neighbours of the truncated one."""
    if not math.isfinite(value):
        return struct.pack("<f", value)[2:]
    magnitude, sign = abs(value), 0x8000 if math.copysign(1, value) < 0 else 0
    low = int(np.array([magnitude], "<f8").astype("<f4").view("<u4")[0]) >> 16
    near = [bits for bits in (low - 1, low, low + 1) if 0 <= bits <= 0x7F80]
    limit = Fraction(2) ** 128
    exact = {
        bits: limit if bits == 0x7F80 else Fraction(decode_bf16(struct.pack("<H", bits)))
        for bits in near
    }
    best = min(near, key=lambda bits: (abs(exact[bits] - Fraction(magnitude)), bits & 1))
    return struct.pack("<H", best | sign)


def decode_bf16(raw: bytes) -> float:
    """Return a bfloat16's value."""
    value: float = struct.unpack("<f", b"\0\0" + raw)[0]
    return value


def decode_base64(tensor: Tensor, text: str, count: int | None) -> bytes:
    """Return the bytes of a base64 `data`; one bare BYTES element gets its prefix."""
    try:
        raw = base64.b64decode(text.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError) as error:
        msg = f"input '{tensor.name}' has data that are no base64"
        raise Refused(msg) from error
    if base64.b64encode(raw).decode() != text:
        msg = f"input '{tensor.name}' has data that are no base64"
        raise Refused(msg)
    if tensor.datatype == "BYTES" and count == 1:
        try:
            prefixed = len(elements(Tensor(tensor.name, "BYTES", [1], raw))) == 1
        except Refused:
            prefixed = False
        return raw if prefixed else struct.pack("<I", len(raw)) + raw
    return raw


def decode_tensor(tensor: Tensor) -> list[Any]:
    """Return a tensor's elements as JSON has them."""
    if tensor.datatype == "BYTES":
        try:
            return [element.decode() for element in elements(tensor)]
        except UnicodeDecodeError as error:
            text = f"output '{tensor.name}' is no UTF-8, ask for binary_data"
            raise Refused(text) from error
    size = SIZES[tensor.datatype]
    parts = [tensor.raw[i : i + size] for i in range(0, len(tensor.raw), size)]
    return [decode_element(tensor.datatype, part) for part in parts]


def decode_element(datatype: str, raw: bytes) -> Any:
    """Return one element as JSON has it, floats by their shortest text."""
    if datatype == "BOOL":
        return raw != b"\0"
    if datatype in CODES:
        return struct.unpack(CODES[datatype], raw)[0]
    if datatype == "BF16":
        value = decode_bf16(raw)
        texts = (float(f"{value:.{digits}g}") for digits in range(1, 12))
        return (
            value
            if not math.isfinite(value)
            else next(text for text in texts if encode_bf16(text) == raw)
        )
    dtype = {"FP16": "<f2", "FP32": "<f4", "FP64": "<f8"}[datatype]
    return float(str(np.frombuffer(raw, dtype)[0]))
