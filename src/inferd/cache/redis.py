"""RedisStore: answers kept in a Redis server that several servers share, through redis-py.

If Redis fails, the server goes on: what cannot be looked up is run. After a failure Redis is left
alone for one second, then for two, up to half a minute; then one look-up tries again. No request
waits for Redis longer than the timeouts, and none waits for an answer to be stored.

A key begins with `inferd:` and the version of the storage format. Nothing is deleted here: answers
of models that are gone are never asked for again, and Redis evicts what is not used when it is
configured to (maxmemory-policy allkeys-lru).
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from inferd.cache.store import CacheCounts, Packed
from inferd.config.options.cache import RedisCacheSettings
from inferd.errors import InvalidConfig
from inferd.observe.family import Family

log = logging.getLogger("inferd.cache")

LARGEST_BYTES = 64 << 20
"""Larger answers are not kept."""

MAX_UNSENT_BYTES = 64 << 20
"""The most bytes of answers that may wait to be stored; more are not kept."""

FIRST_REST_S, LONGEST_REST_S = 1.0, 30.0
"""How long Redis is left alone after one failure, and after many."""

COMPLAINT_S = 60.0
"""The least seconds between two failures that are logged."""

_PREFIX = b"inferd:1:"
_LAST_WAIT_S = 1.0
_Result = TypeVar("_Result")


class RedisStore:
    """Keeps answers as `settings` say; `clock` is in seconds. It is its own and only shelf."""

    is_shared = True
    largest_bytes = LARGEST_BYTES

    def __init__(
        self, settings: RedisCacheSettings, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.counts = CacheCounts()
        self.failure_count = 0
        self.skipped_count = 0
        self._place = f"{settings.host}:{settings.port}"
        self._client, self._failures = _connected(settings)
        # At most three waits: for a free connection, for it to open, for the answer.
        self._timeout_s = (
            settings.wait_timeout_s + settings.connect_timeout_s + settings.socket_timeout_s
        )
        self._clock = clock
        self._rest_s = 0.0
        self._rests_until_s = 0.0
        self._complained_s = -COMPLAINT_S
        self._unsent_bytes = 0
        self._tasks: set[asyncio.Task[None]] = set()

    def shelf(self) -> "RedisStore":
        """See Store.shelf. Keys distinguish versions, so one shelf serves all."""
        return self

    def clear(self) -> None:
        """See Shelf.clear. Removes nothing: other servers may need what is there."""

    async def find(self, key: bytes) -> Packed | None:
        """See Shelf.find."""
        # In a task of its own: timeouts need one, and a request may be started outside any task.
        found = await asyncio.create_task(self._try(self._client.get, key))
        return found if isinstance(found, bytes) else None

    async def keep(self, key: bytes, packed: Packed) -> None:
        """See Shelf.keep. Returns before the answer is stored."""
        # With a slow Redis, answers would gather in memory without end.
        if self._unsent_bytes + len(packed) > MAX_UNSENT_BYTES:
            self.skipped_count += 1
            return
        # Counted from the decision on, not from the sending: tasks wait for a free connection.
        self._unsent_bytes += len(packed)
        task = asyncio.create_task(self._send(key, packed))
        self._tasks.add(task)
        # asyncio refers to tasks weakly: without the set, one could be collected half done.
        task.add_done_callback(self._tasks.discard)

    def families(self) -> Sequence[Family]:
        """See Store.families. Redis itself can report how full it is."""
        return [
            *self.counts.families(),
            Family(
                "inferd_cache_failures_total",
                "counter",
                "Calls of the response cache's server that failed",
                [("", self.failure_count)],
            ),
            Family(
                "inferd_cache_skipped_total",
                "counter",
                "Answers not kept because too many waited to be stored",
                [("", self.skipped_count)],
            ),
        ]

    async def close(self) -> None:
        """See Store.close. Answers still to be stored have one second left."""
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=_LAST_WAIT_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        await self._client.aclose()

    async def _send(self, key: bytes, packed: Packed) -> None:
        try:
            await self._try(self._client.set, key, packed)
        finally:
            self._unsent_bytes -= len(packed)

    async def _try(
        self, call: Callable[..., Awaitable[_Result]], key: bytes, *args: object
    ) -> _Result | None:
        """Return Redis's reply, None when it fails or is being left alone."""
        now_s = self._clock()
        if now_s < self._rests_until_s:
            return None
        if self._rest_s:
            self._rests_until_s = now_s + self._rest_s  # this call tries, others go on without
        try:
            async with asyncio.timeout(self._timeout_s):
                answer = await call(_PREFIX + key, *args)
        except self._failures as error:
            self._fail(error)
            return None
        if self._rest_s:
            log.info("the response cache at %s answers again", self._place)
            self._rest_s = self._rests_until_s = 0.0
        return answer

    def _fail(self, error: BaseException) -> None:
        now_s = self._clock()
        self.failure_count += 1
        self._rest_s = min(max(FIRST_REST_S, 2 * self._rest_s), LONGEST_REST_S)
        self._rests_until_s = now_s + self._rest_s
        if now_s - self._complained_s >= COMPLAINT_S:
            self._complained_s = now_s
            why = str(error) or type(error).__name__
            log.error("the response cache at %s fails, models run without it: %s", self._place, why)


def _connected(settings: RedisCacheSettings) -> tuple[Any, tuple[type[BaseException], ...]]:
    """Return a client, which connects on first use, and the exceptions it raises."""
    try:
        import redis.asyncio as redis
        from redis.asyncio.retry import Retry
        from redis.backoff import NoBackoff
        from redis.exceptions import RedisError
    except ImportError as error:
        msg = "--cache-config redis needs a package: pip install 'inferd[redis]'"
        raise InvalidConfig(msg) from error
    tls: dict[str, Any] = {}
    if settings.tls:
        tls = {
            "connection_class": redis.SSLConnection,
            "ssl_ca_certs": settings.ca_path,
            "ssl_certfile": settings.cert_path,
            "ssl_keyfile": settings.key_path,
        }
    # Blocking: the plain pool raises an error when all connections are in use.
    pool = redis.BlockingConnectionPool(
        host=settings.host,
        port=settings.port,
        db=settings.db,
        username=settings.user,
        password=settings.password,
        socket_connect_timeout=settings.connect_timeout_s,
        socket_timeout=settings.socket_timeout_s,
        max_connections=settings.pool_size,
        timeout=settings.wait_timeout_s,
        # redis-py's own retries would multiply the time that a request waits.
        retry=Retry(NoBackoff(), 0),
        **tls,
    )
    # Also for a wrong certificate, a missing file, or a reply that is not from a Redis.
    failures = (RedisError, OSError, TimeoutError, ValueError, RecursionError)
    return redis.Redis.from_pool(pool), failures
