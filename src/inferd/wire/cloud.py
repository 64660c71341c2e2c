"""Cloud platforms: the Content-Type of binary tensor data, and SageMaker's multi-model calls."""

import re
from collections.abc import Mapping

import msgspec
import orjson

from inferd.errors import InvalidRequest

_SIZE = b"json-header-size"


class BinaryType:
    """The media type `name` of requests with binary data; its parameter json-header-size.

    Such a platform passes on only a few headers, so one of them must say where the JSON ends.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._start = name.encode().lower()
        self._pattern = re.compile(
            rb"\s*%b\s*;\s*%b\s*=\s*\"?([0-9]{1,19})\"?\s*" % (re.escape(self._start), _SIZE)
        )

    def json_size(self, content_type: bytes) -> bytes | None:
        """Return the digits of the JSON's size, None when `content_type` is another type.

        Raises InvalidRequest when it is this type but does not give the size.
        """
        # Media types and parameters have no case (RFC 9110, section 8.3.1).
        value = content_type.strip().lower()
        if value.partition(b";")[0].rstrip() != self._start:
            return None
        found = self._pattern.fullmatch(value)
        if found is None:
            shown = content_type[:200].decode("latin-1")
            msg = f"Content-Type is '{shown}', expected {self._name};{_SIZE.decode()}=BYTES"
            raise InvalidRequest(msg)
        return found[1]

    def with_size(self, digits: bytes) -> bytes:
        """Return the Content-Type of a body whose JSON has `digits` bytes."""
        return b"%b;%b=%b" % (self._start, _SIZE, digits)


MAX_BODY_BYTES = 65536
"""The longest body of a load request."""


class Load(msgspec.Struct, frozen=True):
    """A model to be loaded: its name, and the folder it is in."""

    model_name: str
    url: str


def decode_load(body: memoryview) -> Load:
    """Return the model that a load request asks for. Raises InvalidRequest."""
    if len(body) > MAX_BODY_BYTES:
        raise InvalidRequest(f"the body has {len(body)} bytes, the limit is {MAX_BODY_BYTES}")
    try:
        load = msgspec.json.decode(body, type=Load)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        msg = f"the body is no JSON object with model_name and url: {error}"
        raise InvalidRequest(msg) from None
    # SageMaker gives the path of a folder; anything else would be relative to where the server was
    # started.
    if not load.url.startswith("/") or "\0" in load.url:
        raise InvalidRequest(f"url is '{load.url[:200]}', expected the path of a folder, from / on")
    return load


def encode_model(name: str, url: str) -> bytes:
    """Return the object that describes one model."""
    return orjson.dumps({"modelName": name, "modelUrl": url})


def encode_models(models: Mapping[str, str]) -> bytes:
    """Return the object that describes all models, given their URLs by name."""
    rows = [{"modelName": name, "modelUrl": url} for name, url in models.items()]
    return orjson.dumps({"models": rows})
