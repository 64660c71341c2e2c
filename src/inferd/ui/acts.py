"""Acts: what the dashboard changes, by the functions of V2's calls, so in every process."""

from collections.abc import Mapping
from typing import Any

import msgspec

from inferd.api.v2.calls import log_settings
from inferd.api.v2.repository import load, unload
from inferd.core.load import LoadRequest, UnloadRequest
from inferd.engine.engine import Engine
from inferd.errors import InvalidRequest
from inferd.wire.v2.settings import decode_log_request, decode_trace_request

_Settings = dict[str, Any]


# An unknown field is an error: a page of another release must not have half of its wish done.
class _Act(msgspec.Struct, tag_field="act", forbid_unknown_fields=True):
    """What a page asks for."""


class _Load(_Act, tag="load"):
    model: str


class _Unload(_Act, tag="unload"):
    model: str


class _Reload(_Act, tag="reload"):
    model: str


class _Logging(_Act, tag="logging"):
    settings: _Settings


class _Trace(_Act, tag="trace"):
    settings: _Settings
    model: str | None = None


Act = _Load | _Unload | _Reload | _Logging | _Trace

GROUPS: Mapping[type, str] = {
    _Load: "model-repository",
    _Unload: "model-repository",
    _Reload: "model-repository",
    _Logging: "logging",
    _Trace: "trace",
}
"""The API groups of the calls that do the same."""

_decoder = msgspec.json.Decoder(Act)


def decode_act(body: memoryview) -> Act:
    """Return the act in `body`. Raises InvalidRequest."""
    try:
        act: Act = _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequest(f"the body is no act: {error}") from error
    return act


async def do(engine: Engine, act: Act) -> str:
    """Do what `act` says, and return what has been done. Raises as the calls of V2 do."""
    match act:
        case _Load(model) | _Reload(model):
            # As for V2's calls: in other modes the repository alone says what is loaded.
            engine.control.check_is_explicit()
            await load(engine, LoadRequest(model))
            return f"{model} is loaded" if isinstance(act, _Load) else f"{model} is loaded again"
        case _Unload(model):
            engine.control.check_is_explicit()
            await unload(engine, UnloadRequest(model))
            return f"{model} is unloaded"
        case _Logging(settings):
            await log_settings(engine, decode_log_request(_json(settings)))
            return "the log has the new settings"
        case _Trace(settings, model):
            await engine.changes.trace_settings(model or "", decode_trace_request(_json(settings)))
            what = f"requests of {model} are" if model else "requests are"
            return f"{what} traced by the new settings"


def _json(settings: _Settings) -> memoryview:
    # Read by the decoders of V2's calls, so that both refuse the same.
    return memoryview(msgspec.json.encode(settings))
