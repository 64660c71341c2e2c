"""The calls that concern all places, over REST and gRPC: each is asked, and the whole answered."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any
from urllib.parse import unquote

import orjson

from inferd.core.metadata import IndexEntry, ModelState
from inferd.errors import InferdError, InvalidRequest, Unavailable
from inferd.http.failure import FailureLog
from inferd.http.grpc.handler import Call, Method, Stream, Unary
from inferd.http.grpc.messages import UNAVAILABLE, GrpcFault
from inferd.http.head_template import Variations
from inferd.http.message import REASONS, HttpAnswer, HttpError, HttpRequest
from inferd.http.router import Router, path_of
from inferd.http.routes import Routes
from inferd.memory.buffer import Buffer
from inferd.route.asking import Channels, ask_rest
from inferd.route.configuration import CONTROL_METHODS, V2_SERVICE
from inferd.route.place import Place, PlaceState
from inferd.route.whole import (
    NotDone,
    PlaceAnswer,
    done_everywhere,
    read_json,
    same_everywhere,
    those_with_answers,
    whole_index,
    whole_statistics,
    worst,
)
from inferd.wire.proto import message_class, parse_answer
from inferd.wire.v2.repository import (
    decode_index,
    decode_index_message,
    decode_load_message,
    decode_unload_message,
    encode_index,
    encode_index_message,
)
from inferd.wire.v2.rest.codec import HTTP_STATUS, encode_error
from inferd.wire.v2.statistics import (
    decode_statistics,
    decode_statistics_message,
    encode_statistics,
    encode_statistics_message,
)

LOGGER = logging.getLogger("inferd")

_OLD_STATUS = "nv-status"  # where the API of the TensorRT Inference Server says how a call went
_OLD_SERVICE = "nvidia.inferenceserver"
_OLD_SUCCESS = 1

RETRY_AFTER_S = 5
"""When a client that has woken a place is told to ask again."""

WAKE_PATH = "/inferd-route/wake"
WAKE_METHOD = "/inferd.Route/Wake"
MODEL_HEADER = "inferd-asleep"
"""Where HAProxy sends requests for such a model, and how it names the model; see haproxy.cfg."""

_PAUSE_S = 1.0
"""A place is not woken more often than this."""

NO_SEQUENCE_ID = (
    "the message does not say which model it is about, or to which sequence it belongs: send the "
    "metadata inferd-model and inferd-sequence-id (inferd route)"
)
UNPACKED = "inferd-unpacked"
"""The metadata of a message that was compressed, and is sent on by us."""

NO_MODEL = (
    "the places hold different models, and a stream does not say at its begin which it is about: "
    "send the metadata inferd-model, its name (inferd route)"
)


class Sleepers:
    """The places that sleep. `wake` is called with the name of one that is asked for."""

    def __init__(
        self, wake: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._wake = wake
        self._clock = clock
        self._names: dict[str, str] = {}
        self._woken_s: dict[str, float] = {}

    @property
    def models(self) -> frozenset[str]:
        """The models that they have."""
        return frozenset(self._names)

    def without(self, places: Iterable[Place]) -> tuple[Place, ...]:
        """Return those of all `places` that do not sleep, and know the others from now on."""
        all_places = tuple(places)
        self._names = {
            model: one.name
            for one in all_places
            if one.state is PlaceState.ASLEEP
            for model in one.models or ()
        }
        return tuple(one for one in all_places if one.state is not PlaceState.ASLEEP)

    def wake(self, header: str) -> str:
        """Wake who has the model that HAProxy names in a header; return what its client is told."""
        # HAProxy escapes what a header cannot have.
        model = unquote(header)
        name, now = self._names.get(model), self._clock()
        # Many clients may ask at once, and a source is not to be told each time.
        if name is not None and now - self._woken_s.get(name, -_PAUSE_S) >= _PAUSE_S:
            self._woken_s[name] = now
            self._wake(name)
        return (
            f"no place has the model '{model}' now, and one is being started: "
            f"ask again in {RETRY_AFTER_S} seconds (inferd route)"
        )


class ControlCalls:
    """Knows the places to ask. `refresh` is awaited after a change of models, before its answer.

    `wake` has a place of a model start, and returns what to tell: see Sleepers.
    """

    def __init__(
        self,
        places: Callable[[], Sequence[Place]],
        refresh: Callable[[], Awaitable[None]],
        wake: Callable[[str], str],
    ) -> None:
        self._places = places
        self.refresh = refresh
        self.wake = wake

    def places(self, model: str = "") -> list[Place]:
        """Return the places to ask, about a model if one is given: those that may have it.

        Places that are about to end are not asked. Raises Unavailable if there are none.
        """
        found = [one for one in self._places() if one.state is PlaceState.READY]
        if not found:
            raise Unavailable("there are no places (inferd route)")
        if model:
            meant = [one for one in found if one.models is None or model in one.models]
            return meant or found
        return found


class RestControl(Routes):
    """Answers calls over REST that concern all places."""

    def __init__(self, control: ControlCalls) -> None:
        # No routes: every call that HAProxy sends here is answered by `answer`.
        super().__init__(Router([]), forward=None, refusable="", variations=Variations(b"", ()))
        self._control = control
        self._failures = FailureLog(LOGGER)

    async def answer(self, request: HttpRequest) -> HttpAnswer:
        """See Routes."""
        try:
            # What answers has no task of its own, which timeouts need.
            return await asyncio.create_task(self._answer(request))
        except Exception as error:  # noqa: BLE001  the wall
            if not isinstance(error, NotDone):
                self._failures.note(request.target.decode("latin-1"), error)
            return self.refusal(request, error)

    def refusal(self, request: HttpRequest, error: Exception) -> HttpAnswer:
        """See Routes."""
        if isinstance(error, NotDone):
            # A status of a place that is none of ours would have no reason phrase.
            status = error.status if error.status in REASONS else 503
            return HttpAnswer(status, [encode_error(error.message)])
        if isinstance(error, HttpError):
            return HttpAnswer(error.status, [encode_error(error.message)])
        if isinstance(error, InferdError):
            return HttpAnswer(HTTP_STATUS[error.code], [encode_error(error.message)])
        return HttpAnswer(500, [encode_error("inferd route failed; see its log")])

    async def _answer(self, request: HttpRequest) -> HttpAnswer:
        path = path_of(request.target).decode("latin-1")
        if path == WAKE_PATH:
            text = self._control.wake(request.headers.get(MODEL_HEADER.encode(), b"").decode())
            later = f"Retry-After: {RETRY_AFTER_S}\r\n".encode()
            return HttpAnswer(503, [encode_error(text)], headers=later)
        words = path.strip("/").split("/")
        # The API of the TensorRT Inference Server: the answer that says most.
        if words[0] == "api":
            answer = await self._ask(request)
            await self._control.refresh()
            return _as_answered(worst(answer))
        if words[-1] == "index":
            answers = those_with_answers(await self._ask(request))
            rows = whole_index((one.place, decode_index(one.body)) for one in answers)
            return HttpAnswer(200, list(encode_index(rows)))
        if words[-1] == "stats":
            answers = those_with_answers(await self._ask(request))
            added = whole_statistics(decode_statistics(one.body) for one in answers)
            return HttpAnswer(200, list(encode_statistics(added)))
        if words == ["v2", "models"]:
            return _names(those_with_answers(await self._ask(request)))
        # What changes something must be done everywhere.
        if request.method != b"GET":
            model = words[-2] if words[-1] in ("load", "unload") and len(words) > 2 else ""
            answers = await self._ask(request, model)
            if model:
                await self._control.refresh()
            return _as_answered(done_everywhere(answers))
        # What is asked, such as settings, has to be the same.
        return _as_answered(same_everywhere(await self._ask(request), read_json))

    async def _ask(self, request: HttpRequest, model: str = "") -> list[PlaceAnswer]:
        return await ask_rest(self._control.places(model), request)


def _as_answered(answer: PlaceAnswer) -> HttpAnswer:
    status = answer.status if answer.status in REASONS else 503
    kind = answer.headers.get("content-type", "application/json").encode("latin-1")
    said = answer.headers.get(_OLD_STATUS)
    headers = f"NV-Status: {said}\r\n".encode("latin-1") if said else b""
    return HttpAnswer(status, [answer.body], kind, headers)


def _names(answers: Sequence[PlaceAnswer]) -> HttpAnswer:
    """Return the list of all names of models that any place has."""
    documents: list[Any] = [read_json(one.body) for one in answers]
    names: dict[str, None] = {}
    for document in documents:
        names.update(dict.fromkeys(document["models"]))
    # What else the list says is that of the first place.
    return HttpAnswer(200, [orjson.dumps(documents[0] | {"models": sorted(names)})])


class GrpcControl:
    """Answers calls over gRPC that concern all places.

    Also inferences whose message HAProxy cannot read, since it is compressed: they are given to it
    once more, at its `front`, as they are without that.
    """

    def __init__(self, control: ControlCalls, channels: Channels, front: str) -> None:
        self._control = control
        self._channels = channels
        self._front = Place("HAProxy", f"unix:{front}", 0, 0)

    def methods(self) -> dict[str, Method]:
        """Return the methods, by path."""
        found: dict[str, Method] = {
            path: Unary(partial(self._call, path)) for path in CONTROL_METHODS
        }
        infer, stream = f"{V2_SERVICE}ModelInfer", f"{V2_SERVICE}ModelStreamInfer"
        found[infer] = Unary(partial(self._unpacked, infer))
        found[stream] = Stream(_refuse_stream)
        # As a stream, so that it takes calls of either kind.
        found[WAKE_METHOD] = Stream(self._wake)
        return found

    async def _wake(self, _: AsyncIterator[bytes], call: Call) -> AsyncIterator[list[Buffer]]:
        models = [str(value) for key, value in call.metadata if key == MODEL_HEADER]
        raise GrpcFault(UNAVAILABLE, self._control.wake("".join(models)))
        # Which makes this a generator.
        yield []

    async def _unpacked(self, path: str, message: bytes, call: Call) -> list[Any]:
        """Return the answer to an inference; its message is not compressed any more."""
        # It has been here before: HAProxy cannot read it without compression either.
        if any(key == UNPACKED for key, _ in call.metadata):
            raise InvalidRequest(NO_SEQUENCE_ID)
        metadata = [*call.metadata, (UNPACKED, "1")]
        # grpcio takes bytes only.
        asking = self._channels.call(self._front, path, bytes(message), metadata, _left_s(call))
        # What answers has no task of its own, which grpcio needs.
        answer = await asyncio.create_task(asking)
        if answer.is_failed:
            raise GrpcFault(answer.status, answer.error)
        return [answer.body]

    async def _call(self, path: str, message: bytes, call: Call) -> list[Any]:
        try:
            return await asyncio.create_task(self._answer(path, message, call))
        except NotDone as error:
            raise GrpcFault(error.status or UNAVAILABLE, error.message) from error

    async def _answer(self, path: str, message: bytes, call: Call) -> list[Any]:
        name = path.rpartition("/")[2]
        if _OLD_SERVICE in path:
            return [await self._old(name, partial(self._ask, path, message, call, ""))]
        model = _model_of(name, message)
        ask = partial(self._ask, path, message, call, model)
        if name == "RepositoryIndex":
            # For its errors: a malformed message is this client's mistake, not the places'.
            decode_index_message(message)
            answers = those_with_answers(await ask())
            index = whole_index((one.place, _index_rows(one.body)) for one in answers)
            return [b"".join(encode_index_message(index))]
        if name == "ModelStatistics":
            answers = those_with_answers(await ask())
            rows = whole_statistics(decode_statistics_message(one.body) for one in answers)
            return [b"".join(encode_statistics_message(rows))]
        if name in ("RepositoryModelLoad", "RepositoryModelUnload"):
            answers = await ask()
            await self._control.refresh()
            return [done_everywhere(answers).body]
        if name.endswith(("Register", "Unregister")):
            return [done_everywhere(await ask()).body]
        response = message_class(f"inference.{name}Response")
        return [same_everywhere(await ask(), response.FromString).body]

    async def _old(self, name: str, ask: Callable[[], Awaitable[list[PlaceAnswer]]]) -> bytes:
        """Return the worst answer to a call of the TensorRT Inference Server's API."""
        answers = await ask()
        await self._control.refresh()
        response = f"{_OLD_SERVICE}.{name}Response"
        for one in answers:
            if one.is_failed:
                done_everywhere([one])
            # This API says in the message how a call went; gRPC's status is OK.
            if parse_answer(response, one.body).request_status.code != _OLD_SUCCESS:
                return one.body
        return answers[0].body

    async def _ask(self, path: str, message: bytes, call: Call, model: str) -> list[PlaceAnswer]:
        places = self._control.places(model)
        return await self._channels.ask(places, path, bytes(message), call.metadata, _left_s(call))


def _left_s(call: Call) -> float | None:
    """Return how long the client still waits, None for ever."""
    return None if call.deadline_s is None else max(0.0, call.deadline_s - time.monotonic())


def _model_of(name: str, message: bytes) -> str:
    """Return the model that a load or unload is about, "" for other calls."""
    if name == "RepositoryModelLoad":
        return decode_load_message(message).model
    if name == "RepositoryModelUnload":
        return decode_unload_message(message).model
    return ""


def _index_rows(data: bytes) -> list[IndexEntry]:
    message = parse_answer("inference.RepositoryIndexResponse", data)
    return [
        IndexEntry(row.name, row.version, ModelState(row.state) if row.state else None, row.reason)
        for row in message.models
    ]


async def _refuse_stream(
    _messages: AsyncIterator[bytes], _call: Call
) -> AsyncIterator[list[Buffer]]:
    raise InvalidRequest(NO_MODEL)
    yield []
