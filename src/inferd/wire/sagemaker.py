"""SageMaker's multi-model calls: which models there are, and where the files of new ones are."""

from collections.abc import Mapping

import msgspec
import orjson

from inferd.errors import InvalidRequest

MAX_BODY_BYTES = 65536
"""The longest body of a load request."""


class Load(msgspec.Struct, frozen=True):
    """A model to be loaded: its name, and the folder it is in."""

    model_name: str
    url: str


def decode_load(body: memoryview) -> Load:
    """Return the model that a load request asks for. Raises InvalidRequest."""
    if len(body) > MAX_BODY_BYTES:
        msg = f"the body has {len(body)} bytes, the limit is {MAX_BODY_BYTES}"
        raise InvalidRequest(msg)
    try:
        load = msgspec.json.decode(body, type=Load)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        msg = f"the body is no JSON object with model_name and url: {error}"
        raise InvalidRequest(msg) from None
    # SageMaker gives the path of a folder; anything else would be relative to where the server was
    # started.
    if not load.url.startswith("/") or "\0" in load.url:
        msg = f"url is '{load.url[:200]}', expected the path of a folder, from / on"
        raise InvalidRequest(msg)
    return load


def encode_model(name: str, url: str) -> bytes:
    """Return the object that describes one model."""
    return orjson.dumps({"modelName": name, "modelUrl": url})


def encode_models(models: Mapping[str, str]) -> bytes:
    """Return the object that describes all models, given their URLs by name."""
    rows = [{"modelName": name, "modelUrl": url} for name, url in models.items()]
    return orjson.dumps({"models": rows})
