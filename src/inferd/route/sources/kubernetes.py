"""The pods of a Kubernetes service, by its EndpointSlices, which are watched.

They say more than the service's name does: which pods are ready, and which are about to end but
still serve.
"""

import asyncio
import json
import logging
import ssl
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from inferd.errors import InvalidConfig
from inferd.route.http_client import HttpExchange, HttpTarget, exchange
from inferd.route.place import Place, PlaceState, SourceFailed
from inferd.wire.json.document import JsonObject

LOGGER = logging.getLogger("inferd")

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""What a pod has of its service account."""

WATCH_S = 300
"""How long the API is asked to keep a watch open; a new one goes on where it ended."""
SILENT_S = 60
"""How long a list, or the time beyond WATCH_S, may take."""
AGAIN_S = 1.0

# HTTP 410: the version is older than what the API keeps (Kubernetes, efficient detection of
# changes).
_GONE = 410
_SLICES = "/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices?labelSelector={}"
_MAX_EVENT_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class ApiServer:
    """Where the API is, and how it is asked. The token is read for each request: it changes."""

    target: HttpTarget
    token_file: Path


def api_server(environ: Mapping[str, str], account: Path = ACCOUNT) -> ApiServer:
    """Return the API server that this pod may ask. Raises InvalidConfig outside of a pod."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT")
    if not host or not port or not port.isdecimal():
        msg = "--kubernetes works in a pod, where KUBERNETES_SERVICE_HOST and _PORT are set"
        raise InvalidConfig(msg)
    try:
        tls = ssl.create_default_context(cafile=str(account / "ca.crt"))
    except (OSError, ValueError) as error:
        msg = f"--kubernetes: the certificate of the API at {account / 'ca.crt'}: {error}"
        raise InvalidConfig(msg) from error
    return ApiServer(HttpTarget(host, int(port), tls), account / "token")


def own_namespace(account: Path = ACCOUNT) -> str:
    """Return the namespace of this pod. Raises InvalidConfig."""
    try:
        return (account / "namespace").read_text().strip()
    except OSError as error:
        msg = f"--kubernetes: name the namespace too, NAMESPACE/SERVICE ({error})"
        raise InvalidConfig(msg) from error


class _Expired(Exception):
    """The API no longer knows what has changed since a version: everything has to be read anew."""


class KubernetesSource:
    """Follows the EndpointSlices of a service; a watch that ended is renewed after `again_s`."""

    def __init__(
        self, api: ApiServer, namespace: str, service: str, again_s: float = AGAIN_S
    ) -> None:
        self.name = f"the service {namespace}/{service}"
        self._api = api
        self._again_s = again_s
        selector = quote(f"kubernetes.io/service-name={service}", safe="")
        self._path = _SLICES.format(quote(namespace, safe=""), selector)

    async def follow(self) -> AsyncIterator[tuple[Place, ...]]:
        """See Source."""
        last: tuple[Place, ...] | None = None
        while True:
            # List, then watch from its version: nothing that happens in between is missed.
            slices, version = await self._list()
            try:
                while True:
                    places = places_in(slices.values())
                    if places != last:
                        last = places
                        yield places
                    async for kind, found in self._watch(version):
                        metadata = found["metadata"]
                        # Also of bookmarks, which say only how far the watch has come.
                        version = metadata["resourceVersion"]
                        if kind == "DELETED":
                            slices.pop(metadata["name"], None)
                        elif kind in ("ADDED", "MODIFIED"):
                            slices[metadata["name"]] = found
                        places = places_in(slices.values())
                        if places != last:
                            last = places
                            yield places
                    await asyncio.sleep(self._again_s)
            except _Expired:
                LOGGER.debug("%s is read anew: its watch is too old", self.name)
                await asyncio.sleep(self._again_s)
            # What is not as Kubernetes says it is an error of the source, not of the route.
            except (KeyError, TypeError) as error:
                msg = f"{self.name}: the API answers with something else: {error!r}"
                raise SourceFailed(msg) from error

    def wake(self, name: str) -> None:
        """See Source; nothing sleeps here."""

    async def _list(self) -> tuple[JsonObject, str]:
        """Return all slices by name, and their version. Raises SourceFailed."""
        try:
            async with asyncio.timeout(SILENT_S), self._ask(self._path) as answer:
                body = b"".join([piece async for piece in answer.pieces()])
            self._check(answer.status, body)
            document = json.loads(body)
            slices = {one["metadata"]["name"]: one for one in document["items"]}
            return slices, document["metadata"]["resourceVersion"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise self._failed(error) from error

    async def _watch(self, version: str) -> AsyncIterator[tuple[str, Any]]:
        """Yield what changes after a version, until the API ends it.

        Raises SourceFailed, and _Expired if the version is too old.
        """
        # Without bookmarks a quiet service's version would expire while it is watched.
        path = f"{self._path}&watch=1&allowWatchBookmarks=true&timeoutSeconds={WATCH_S}"
        path += f"&resourceVersion={quote(version, safe='')}"
        try:
            async with AsyncExitStack() as stack:
                # Only until the head: the watch itself goes on for WATCH_S.
                async with asyncio.timeout(SILENT_S):
                    answer = await stack.enter_async_context(self._ask(path))
                    if answer.status != 200:
                        self._check(answer.status, b"".join([one async for one in answer.pieces()]))
                async for line in _lines(answer):
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        # A watch reports errors as events, with a status inside.
                        self._check(event["object"].get("code", 500), line)
                    yield event["type"], event["object"]
        except (OSError, ValueError) as error:
            raise self._failed(error) from error

    def _ask(self, path: str) -> Any:
        # Read each time: the kubelet replaces it before it expires.
        token = self._api.token_file.read_text().strip()
        headers = [("Authorization", f"Bearer {token}"), ("Accept", "application/json")]
        return exchange(self._api.target, "GET", path, headers)

    def _check(self, status: int, body: bytes) -> None:
        if status == 200:
            return
        if status == _GONE:
            raise _Expired
        raise SourceFailed(f"{self.name}: the API refuses ({status}): {_message(body)}")

    def _failed(self, error: Exception) -> SourceFailed:
        return SourceFailed(f"{self.name}: {error or type(error).__name__}")


async def _lines(answer: HttpExchange) -> AsyncIterator[bytes]:
    rest, pieces = b"", answer.pieces()
    while True:
        try:
            # A connection that is broken without a word must not be waited at for ever.
            rest += await asyncio.wait_for(anext(pieces), WATCH_S + SILENT_S)
        except StopAsyncIteration:
            return
        if len(rest) > _MAX_EVENT_BYTES:
            raise ConnectionError(f"an event has more than {_MAX_EVENT_BYTES} bytes")
        # One JSON document in each line; a piece may end within one.
        *whole, rest = rest.split(b"\n")
        for line in whole:
            if line.strip():
                yield line


def _message(body: bytes) -> str:
    try:
        document = json.loads(body)
        return str(document.get("message") or document["object"]["message"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return body[:200].decode(errors="replace")


def places_in(slices: Iterable[JsonObject]) -> tuple[Place, ...]:
    """Return the places in EndpointSlices, by the names of their pods.

    A pod that is in several, since it has an address of each family or moves from one to another,
    is one place. Raises SourceFailed if there is no port to send to.
    """
    found: dict[str, Place] = {}
    # IPv4 first, for pods that have both.
    for one in sorted(slices, key=lambda one: (one["addressType"], one["metadata"]["name"])):
        for place in _places(one):
            before = found.get(place.name)
            if before is None or (
                # A pod may be in two slices for a moment, in one of them already ending: the other
                # is newer.
                before.state is PlaceState.DRAINING and place.state is PlaceState.READY
            ):
                found[place.name] = place
    return tuple(found[name] for name in sorted(found))


def _places(found: JsonObject) -> Iterator[Place]:
    endpoints = found.get("endpoints") or ()
    if found["addressType"] not in ("IPv4", "IPv6") or not endpoints:
        return
    http, grpc = _ports(found)
    for endpoint in endpoints:
        state = _state(endpoint.get("conditions") or {})
        if state is None:
            continue
        address = endpoint["addresses"][0]
        # Pods have unique names within a namespace; endpoints made by hand have none.
        name = (endpoint.get("targetRef") or {}).get("name") or address
        yield Place(name, address, http, grpc, None, state)


def _ports(found: JsonObject) -> tuple[int, int]:
    """Return the ports for REST and gRPC, which may be one. Raises SourceFailed."""
    ports = {port.get("name") or "": port["port"] for port in found.get("ports") or ()}
    http = _port(ports, "http")
    grpc = _port(ports, "grpc", "h2c")
    # One port for everything, whatever it is called.
    if http is None and grpc is None and len(ports) == 1:
        [http] = ports.values()
    if http is None and grpc is None:
        names = ", ".join(sorted(ports)) or "none"
        msg = f"{found['metadata']['name']}: no port is called http or grpc, there are: {names}"
        raise SourceFailed(msg)
    # Knative allows a container one port: then it has both.
    return int(http or grpc or 0), int(grpc or http or 0)


def _port(ports: JsonObject, *words: str) -> int | None:
    """Return the port whose name is, or begins with, one of `words`."""
    for word in words:
        for name in sorted(ports, key=lambda name: (name != word, name)):
            if name.startswith(word):
                return int(ports[name])
    return None


def _state(conditions: JsonObject) -> PlaceState | None:
    """Return the state of an endpoint, None if it is no place; what is not said is ready."""
    # "nil should be interpreted as true" (EndpointConditions, discovery.k8s.io/v1).
    if conditions.get("ready") is not False and not conditions.get("terminating"):
        return PlaceState.READY
    serving = conditions.get("serving")
    if conditions.get("terminating") and serving is not False:
        return PlaceState.DRAINING
    return None
