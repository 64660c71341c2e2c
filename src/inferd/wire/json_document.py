"""The JSON text of a V2 request as structs, by the fastest reader that reads it exactly.

Three readers, one meaning. msgspec leaves each `data` as raw text, which a typed decoder then
reads; for large bodies simdjson is faster; what neither takes (NaN tokens, 1.0 for an integer,
numbers beyond 64 bits, nested data, a byte order mark) goes to the exact reader on the standard
library, which defines what is accepted and words the errors. The fast ones never accept what the
exact one would refuse, nor read it differently (tests compare them).
"""

import json
import re
from decimal import Decimal, InvalidOperation
from typing import Any, cast

import msgspec

from inferd.errors import InvalidRequest

try:
    import simdjson
except ImportError:  # no wheel for this interpreter: msgspec reads large bodies too
    simdjson = None

LARGE_BYTES = 16384
"""From this size on simdjson beats msgspec."""

KEEP_PARSER_BYTES = 8 << 20
"""simdjson's parser keeps the memory its largest document needed; beyond this it is thrown away."""


class NotFast(Exception):
    """A fast reader met something only the exact one may judge."""


class Input(msgspec.Struct):
    """$request_input. `data` is what the reader left: Raw, a simdjson array, or Python values."""

    name: str
    shape: list[int]
    datatype: str
    parameters: dict[str, Any] | None = None
    data: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class Output(msgspec.Struct):
    """$request_output."""

    name: str
    parameters: dict[str, Any] | None = None


class Document(msgspec.Struct):
    """$inference_request. Keys not listed are ignored."""

    inputs: list[Input]
    id: str | None = None
    parameters: dict[str, Any] | None = None
    outputs: list[Output] | None = None


class _ExactInput(Input):
    data: Any = msgspec.UNSET


class _ExactDocument(Document):
    inputs: list[_ExactInput]  # type: ignore[assignment]  # narrower, and never written to


_decode = msgspec.json.Decoder(Document).decode


class JsonReader:
    """Reads request documents; holds simdjson's parser, so it belongs to one thread."""

    def __init__(self) -> None:
        self._parser: Any = None

    def read_fast(self, text: memoryview) -> Document:
        """Read the common case. Raises NotFast when `read_exact` must be asked."""
        if simdjson is not None and len(text) >= LARGE_BYTES:
            return self._read_large(text)
        try:
            return _decode(text)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            raise NotFast from error

    def _read_large(self, text: memoryview) -> Document:
        parser = self._parser or simdjson.Parser()
        # A parser refuses a new document while anything of the last one lives (an error's
        # traceback, say), so it is put back only when all went well.
        self._parser = None
        try:
            root: Any = parser.parse(text)
            inputs = [_large_input(one) for one in root["inputs"]]
            document = Document(
                inputs,
                root.get("id"),
                _plain(root.get("parameters")),
                [Output(one["name"], _plain(one.get("parameters"))) for one in root["outputs"]]
                if root.get("outputs") is not None
                else None,
            )
        except (ValueError, TypeError, KeyError, AttributeError, RuntimeError) as error:
            raise NotFast from error
        if not _is_typed(document):
            raise NotFast
        if len(text) <= KEEP_PARSER_BYTES:
            self._parser = parser
        return document


def _large_input(one: Any) -> Input:
    return Input(
        one["name"],
        one["shape"].as_list(),
        one["datatype"],
        _plain(one.get("parameters")),
        one.get("data", msgspec.UNSET),
    )


def _plain(value: Any) -> Any:
    return value.as_dict() if hasattr(value, "as_dict") else value


def _is_typed(document: Document) -> bool:
    """Tell whether simdjson, which has no schema, gave what msgspec would have accepted."""
    try:
        msgspec.convert(
            {
                "id": document.id,
                "parameters": document.parameters,
                "outputs": [[o.name, o.parameters] for o in document.outputs or ()],
                "inputs": [[i.name, i.shape, i.datatype, i.parameters] for i in document.inputs],
            },
            _Types,
        )
    except msgspec.ValidationError:
        return False
    return True


class _Types(msgspec.Struct):
    id: str | None
    parameters: dict[str, Any] | None
    outputs: list[tuple[str, dict[str, Any] | None]]
    inputs: list[tuple[str, list[int], str, dict[str, Any] | None]]


def read_exact(text: memoryview) -> Document:
    """Read `text` by the letter: floats as Decimal, integers of any size, NaN tokens as floats.

    Raises InvalidRequest saying what is wrong and where.
    """
    try:
        values = loads_exact(text)
        return cast("Document", msgspec.convert(values, _ExactDocument))
    except msgspec.ValidationError as error:
        msg = f"the request body is JSON, but not an inference request: {error}"
        raise InvalidRequest(msg) from None


def loads_exact(text: memoryview | bytes) -> Any:
    """Return the value of the JSON `text`: floats as Decimal, NaN and infinity tokens as float.

    Raises InvalidRequest when it is not JSON in UTF-8 (a leading byte order mark is skipped).
    """
    try:
        chars = str(text, "utf-8-sig")
    except UnicodeDecodeError as error:
        msg = f"the request body is not UTF-8: byte {error.start} is 0x{text[error.start]:02x}"
        raise InvalidRequest(msg) from None
    try:
        return _loads(chars)
    except json.JSONDecodeError as error:
        if "Inf" in chars and (spelled := _INFINITY.sub(_spell_infinity, chars)) != chars:
            return loads_exact(spelled.encode())
        msg = (
            f"the request body is not JSON: {error.msg} at line {error.lineno} column {error.colno}"
        )
        raise InvalidRequest(msg) from None
    except RecursionError:
        msg = "the request body is nested too deeply"
        raise InvalidRequest(msg) from None
    except (ValueError, InvalidOperation):
        msg = "the request body holds a number with too many digits"
        raise InvalidRequest(msg) from None


def _loads(chars: str) -> Any:
    return json.loads(chars, parse_float=Decimal)


_INFINITY = re.compile(r'"(?:[^"\\]|\\.)*"|\bInf\b')


def _spell_infinity(match: re.Match[str]) -> str:
    """`Inf` is a token Triton reads and the standard library does not; strings stay as they are."""
    return "Infinity" if match[0] == "Inf" else match[0]
