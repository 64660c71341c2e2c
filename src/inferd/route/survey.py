"""Survey: what each place has: whether it is ready, its models, and what may be done with them."""

import asyncio
import json
import logging
import socket
from collections.abc import Callable, Mapping
from urllib.parse import quote

from inferd.config.names import is_model_name
from inferd.errors import InferdError
from inferd.route.arrangement import KnownPlace, ModelKind
from inferd.route.http_client import HttpCallAnswer, HttpTarget, fetch
from inferd.route.place import Place
from inferd.wire.json.document import JsonObject
from inferd.wire.v2.repository import decode_index

LOGGER = logging.getLogger("inferd")

LOOK_S = 1.0
"""The seconds between two looks at a place that is known."""
NEW_LOOK_S = 0.2
"""The seconds between two looks at a place that is not ready yet."""
KNOCK_S = 0.5
"""The seconds between two knocks at a place: connections that ask nothing."""
SILENT_S = 0.8
"""How long a place has for a connection, twice; a machine that is there needs no process for it."""
TIMEOUT_S = 5.0
AGAIN_S = 30.0
"""How long the configuration of a model counts."""

_USERS_OWN = ("python", "function")
"""Backends that run programs of users, who may have them do anything."""
_PARAMETER = "inferd_repeatable"


class NotReady(InferdError):
    """A place answers, and is not ready."""


class Survey:
    """Looks at the places that there are, again and again, and calls `changed` if they differ.

    `headers` go with every request. A place that refuses connections is not known until it has been
    seen again: it may come back with other models. One that does not answer in time stays as it
    was: it may just have too much to do, and HAProxy has checks of its own. One that does not even
    take connections is no more known, and `silent` is called with its name: what is under way there
    waits for nothing.
    """

    def __init__(
        self,
        changed: Callable[[], None],
        headers: Mapping[str, str],
        silent: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.changed = changed
        self.silent = silent
        self.headers = tuple(headers.items())
        self._watched: dict[str, _Watched] = {}

    def follow(self, places: tuple[Place, ...]) -> None:
        """Look at these places from now on, and at no others."""
        by_name = {place.name: place for place in places}
        for name in self._watched.keys() - by_name.keys():
            self._watched.pop(name).stop()
        for name, place in by_name.items():
            watched = self._watched.get(name)
            if watched is None:
                self._watched[name] = _Watched(place, self)
            else:
                watched.become(place)
        self.changed()

    def known(self) -> list[KnownPlace]:
        """Return the places that have been seen ready, in the order in which they came."""
        return [
            # It may drain by now.
            one.findings._replace(place=one.place)
            for one in self._watched.values()
            if one.findings is not None
        ]

    def places(self) -> list[Place]:
        """Return all places, seen or not."""
        return [one.place for one in self._watched.values()]

    async def refresh(self) -> None:
        """Look at all places now."""
        await asyncio.gather(*(one.look(anew=True) for one in self._watched.values()))

    def stop(self) -> None:
        """Look no more."""
        for one in self._watched.values():
            one.stop()


class _Watched:
    def __init__(self, place: Place, survey: Survey) -> None:
        self.place = place
        self.findings: KnownPlace | None = None
        self._survey = survey
        self._kinds: dict[str, tuple[float, ModelKind]] = {}
        self._said = ""
        # A refresh and the regular look must not mix what they find.
        self._looking = asyncio.Lock()
        self._tasks = [
            asyncio.create_task(self._keep_looking()),
            asyncio.create_task(self._keep_knocking()),
        ]

    def become(self, place: Place) -> None:
        """Be another place of the same name, or the same in another state."""
        before, self.place = self.place, place
        # At another address it may be another server.
        if (before.host, before.http_port) != (place.host, place.http_port):
            self.findings = None
            self._kinds.clear()

    def stop(self) -> None:
        for one in self._tasks:
            one.cancel()

    async def _keep_knocking(self) -> None:
        unanswered = 0
        while True:
            # After one without an answer the second follows at once.
            if unanswered == 0:
                await asyncio.sleep(KNOCK_S)
            if (findings := self.findings) is None:
                unanswered = 0
                await asyncio.sleep(KNOCK_S)
                continue
            unanswered = 0 if await self._knock(findings.address) else unanswered + 1
            # Twice, since one packet may be lost.
            if unanswered == 2:
                unanswered = 0
                self.findings = None
                self._say("takes no connections")
                self._survey.silent(self.place.name)
                self._survey.changed()

    async def _knock(self, address: str) -> bool:
        """Return whether the place takes, or refuses, a connection in time."""
        try:
            async with asyncio.timeout(SILENT_S):
                _, writer = await asyncio.open_connection(address, self.place.http_port)
                writer.close()
        except TimeoutError:
            return False
        # Refused: the machine is there, and `look` will find that the server is not.
        except OSError:
            return True
        return True

    async def _keep_looking(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(NEW_LOOK_S if self.findings is None else LOOK_S)

    async def look(self, *, anew: bool = False) -> None:
        """Look once; `anew`: at the configuration of all models, too."""
        async with self._looking:
            if anew:
                self._kinds.clear()
            before, place = self.findings, self.place
            try:
                async with asyncio.timeout(TIMEOUT_S):
                    found = await self._find()
                # It may have become one elsewhere meanwhile, which has not been seen yet.
                if (place.host, place.http_port) == (self.place.host, self.place.http_port):
                    self.findings = found
            # It stays as it was: it may be busy, and HAProxy has its own checks.
            except TimeoutError:
                self._say("does not answer")
            except (OSError, ValueError, InferdError) as error:
                self._say(getattr(error, "message", None) or str(error) or type(error).__name__)
                # A place that drains says that it is not ready, and is to keep what it has until
                # its source says so.
                if not isinstance(error, NotReady) or before is None:
                    self.findings = None
            else:
                self._say("")
            if self.findings != before:
                self._survey.changed()

    def _say(self, problem: str) -> None:
        if problem != self._said:
            self._said = problem
            if problem:
                LOGGER.warning("place %s: %s", self.place.name, problem)

    async def _find(self) -> KnownPlace:
        """Return what the place has. Raises NotReady, OSError, and others for odd answers."""
        place = self.place
        # Resolved here: HAProxy's slots take addresses, not names.
        address = await _address_of(place)
        target = HttpTarget(address, place.http_port)
        answer = await self._ask(target, "GET", "/v2/health/ready")
        if answer.status != 200:
            text = answer.body[:200].decode(errors="replace")
            raise NotReady(f"not ready ({answer.status}) {text}".rstrip())
        answer = await self._ask(target, "POST", "/v2/repository/index", b'{"ready":true}')
        if answer.status != 200:
            raise InferdError(f"its index cannot be read ({answer.status})")
        versions: dict[str, set[str]] = {}
        for row in decode_index(answer.body):
            # What cannot be a name here cannot be told to HAProxy, or be in a path.
            is_meant = place.models is None or row.name in place.models
            if is_meant and is_model_name(row.name):
                versions.setdefault(row.name, set()).add(row.version)
        now = asyncio.get_running_loop().time()
        kinds = {}
        for name in sorted(versions):
            kinds[name] = await self._kind(target, name, now)
        # Models that have gone are forgotten.
        self._kinds = {name: one for name, one in self._kinds.items() if name in versions}
        found = {name: frozenset(one) for name, one in versions.items()}
        return KnownPlace(place, address, kinds, found)

    async def _kind(self, target: HttpTarget, name: str, now: float, depth: int = 0) -> ModelKind:
        until_s, kind = self._kinds.get(name, (0.0, ModelKind.ONCE))
        if until_s > now:
            return kind
        answer = await self._ask(target, "GET", f"/v2/models/{quote(name, safe='')}/config")
        # Until its configuration says otherwise: sent twice is worse than not at all.
        kind = ModelKind.ONCE
        if answer.status == 200:
            kind, steps = _read_config(name, answer.body)
            # Ensembles can be nested; a place that answers nonsense must not have us ask for ever.
            for step in steps if depth < _MAX_DEPTH else ():
                inner = await self._kind(target, step, now, depth + 1)
                # An ensemble is as delicate as its most delicate step.
                kind = max(kind, inner, key=list(ModelKind).index)
        self._kinds[name] = (now + AGAIN_S, kind)
        return kind

    async def _ask(
        self, target: HttpTarget, method: str, path: str, body: bytes = b""
    ) -> HttpCallAnswer:
        return await fetch(target, method, path, self._survey.headers, body)


_MAX_DEPTH = 8


async def _address_of(place: Place) -> str:
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(place.host, place.http_port, type=socket.SOCK_STREAM)
    return str(found[0][4][0])


def _read_config(name: str, body: bytes) -> tuple[ModelKind, list[str]]:
    """Return what a configuration says of a model and its steps. Raises InferdError."""
    try:
        config = json.loads(body)
        return kind_of(config), _steps(config)
    # JSON of another shape than a configuration's, which any server may answer.
    except (ValueError, AttributeError, LookupError, TypeError, RecursionError) as error:
        raise InferdError(f"the configuration of '{name}' cannot be read") from error


def kind_of(config: JsonObject) -> ModelKind:
    """Return the kind of a model by its configuration in JSON, without regard to its steps."""
    if "sequence_batching" in config:
        return ModelKind.SEQUENCE
    # Some answers may have been sent when a place ends.
    if config.get("model_transaction_policy", {}).get("decoupled"):
        return ModelKind.ONCE
    said = config.get("parameters", {}).get(_PARAMETER, {}).get("string_value", "")
    if said:
        # What users say counts more than the backend, but not more than sequences.
        return ModelKind.REPEATABLE if said.lower() == "true" else ModelKind.ONCE
    if config.get("backend") in _USERS_OWN:
        return ModelKind.ONCE
    return ModelKind.REPEATABLE


def _steps(config: JsonObject) -> list[str]:
    steps = config.get("ensemble_scheduling", {}).get("step", [])
    return [step["model_name"] for step in steps]
