"""RedisStore against a real redis-server, one that is away, and peers that are none."""

import asyncio
import functools
import logging
import socket
import sys
from contextlib import suppress

import pytest

from inferd.cache.redis import (
    COMPLAINT_S,
    FIRST_REST_S,
    LARGEST_BYTES,
    LONGEST_REST_S,
    MAX_UNSENT_BYTES,
    RedisStore,
)
from inferd.config.options.cache import RedisCacheSettings
from inferd.errors import InvalidConfig

PATIENCE_S = 30
KEY = b"k" * 32


class Clock:
    """Seconds that pass when somebody says so."""

    def __init__(self):
        self.now_s = 1000.0

    def __call__(self):
        return self.now_s


def run(test):
    """Return `test`, a coroutine function, as one pytest can run; fixtures come as arguments."""

    @functools.wraps(test)
    def runner(*args, **kwargs):
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), PATIENCE_S))

    return runner


@pytest.fixture
def free_port():
    """A port where nobody listens, and nobody else can meanwhile."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


def settings(port, **more):
    return RedisCacheSettings("127.0.0.1", port, **{"socket_timeout_s": 10.0, **more})


async def kept(store, key=KEY, packed=b"answer"):
    """Keep an answer and wait until it is stored."""
    await store.keep(key, packed)
    while store._tasks:
        await asyncio.wait(store._tasks)


@run
async def test_an_answer_comes_back_to_this_server_and_to_others(redis_server):
    server = redis_server()
    one, other = RedisStore(settings(server.port)), RedisStore(settings(server.port))
    assert await one.find(KEY) is None
    await kept(one.shelf(), packed=bytes(range(256)) * 1000)
    assert await one.find(KEY) == await other.find(KEY) == bytes(range(256)) * 1000
    assert await other.find(b"another") is None
    await one.close()
    await other.close()


@run
async def test_a_view_is_kept_as_well(redis_server):
    store = RedisStore(settings(redis_server().port))
    await kept(store, packed=memoryview(b"a view").toreadonly())
    assert await store.find(KEY) == b"a view"
    await store.close()


@run
async def test_many_look_at_once_through_few_connections(redis_server):
    store = RedisStore(settings(redis_server().port, pool_size=2, wait_timeout_s=10.0))
    await kept(store)
    assert set(await asyncio.gather(*(store.find(KEY) for _ in range(50)))) == {b"answer"}
    assert store.failure_count == 0
    await store.close()


@run
async def test_what_a_version_kept_stays_for_others_when_it_ends(redis_server):
    store = RedisStore(settings(redis_server().port))
    await kept(store)
    store.shelf().clear()
    assert await store.find(KEY) == b"answer"
    await store.close()


@run
async def test_a_user_and_a_password_are_given(redis_server):
    server = redis_server("--user", "eve", "on", ">secret", "~*", "&*", "+@all")
    store = RedisStore(settings(server.port, user="eve", password="secret"))
    await kept(store)
    assert await store.find(KEY) == b"answer"
    await store.close()


@run
async def test_a_wrong_password_is_told_and_not_shown(redis_server, caplog):
    server = redis_server("--requirepass", "right")
    store = RedisStore(settings(server.port, password="wrong-secret"))
    assert await store.find(KEY) is None
    assert store.failure_count == 1
    assert f"the response cache at 127.0.0.1:{server.port} fails" in caplog.text
    assert "wrong-secret" not in caplog.text
    await store.close()


@run
async def test_another_database_has_other_answers(redis_server):
    port = redis_server().port
    one, other = RedisStore(settings(port)), RedisStore(settings(port, db=3))
    await kept(one)
    assert await other.find(KEY) is None
    await one.close()
    await other.close()


@run
async def test_the_way_there_may_be_encrypted(redis_server, certificates):
    server = redis_server(
        "--port", "0", "--tls-port", "{port}", "--tls-auth-clients", "no",
        "--tls-cert-file", str(certificates / "server.pem"),
        "--tls-key-file", str(certificates / "server.key"),
        "--tls-ca-cert-file", str(certificates / "ca.pem"),
    )  # fmt: skip
    patient = {"tls": True, "connect_timeout_s": 10.0}
    store = RedisStore(settings(server.port, ca_path=str(certificates / "ca.pem"), **patient))
    await kept(store)
    assert await store.find(KEY) == b"answer"
    await store.close()
    distrustful = RedisStore(settings(server.port, **patient))
    assert await distrustful.find(KEY) is None
    assert distrustful.failure_count == 1
    await distrustful.close()


@run
async def test_a_file_that_is_not_there_is_a_failure_like_others(free_port, caplog):
    store = RedisStore(settings(free_port, tls=True, ca_path="nowhere.pem"))
    assert await store.find(KEY) is None
    assert store.failure_count == 1
    await store.close()


# --- without Redis ---


@run
async def test_a_server_that_is_away_is_left_alone_ever_longer(free_port):
    clock = Clock()
    store = RedisStore(settings(free_port), clock)
    for failures, rest_s in enumerate((1, 2, 4, 8, 16, 30, 30), 1):
        assert await store.find(KEY) is None
        await kept(store)
        assert store.failure_count == failures
        clock.now_s += rest_s - 0.1
        assert await store.find(KEY) is None
        assert store.failure_count == failures
        clock.now_s += 0.1
    assert (FIRST_REST_S, LONGEST_REST_S) == (1, 30)
    await store.close()


@run
async def test_it_is_logged_once_in_a_while(free_port, caplog):
    clock = Clock()
    store = RedisStore(settings(free_port), clock)
    for _ in range(10):
        await store.find(KEY)
        clock.now_s += LONGEST_REST_S
    seconds = 9 * LONGEST_REST_S
    assert len(caplog.records) == 1 + seconds // COMPLAINT_S
    assert {record.levelname for record in caplog.records} == {"ERROR"}
    await store.close()


@run
async def test_when_it_comes_back_it_is_used_again(redis_server, caplog):
    caplog.set_level(logging.INFO, "inferd.cache")
    clock, server = Clock(), redis_server()
    store = RedisStore(settings(server.port), clock)
    await kept(store)
    server.stop()
    assert await store.find(KEY) is None
    server.start()
    assert await store.find(KEY) is None  # it is still left alone
    clock.now_s += FIRST_REST_S
    await kept(store, packed=b"new")
    assert await store.find(KEY) == b"new"
    assert caplog.messages[-1] == f"the response cache at 127.0.0.1:{server.port} answers again"
    await store.close()


@run
async def test_one_tries_again_and_the_others_do_not_wait_for_it(free_port):
    clock = Clock()
    store = RedisStore(settings(free_port), clock)
    await store.find(KEY)
    clock.now_s += FIRST_REST_S
    await asyncio.gather(*(store.find(KEY) for _ in range(20)))
    assert store.failure_count == 2
    await store.close()


@run
async def test_a_peer_that_never_answers_is_not_waited_for():
    asked = asyncio.get_running_loop().create_future()

    def listen(_, writer):
        asked.set_result(writer)

    silent = await asyncio.start_server(listen, "127.0.0.1", 0)
    port = silent.sockets[0].getsockname()[1]
    store = RedisStore(settings(port, socket_timeout_s=0.05))
    assert await store.find(KEY) is None
    assert store.failure_count == 1
    await store.close()
    way_back = await asked  # the peer may come to it later
    silent.close()
    way_back.close()
    await way_back.wait_closed()


@pytest.mark.parametrize("said", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"$-5\r\n", b""])
@run
async def test_a_peer_that_is_no_redis_is_a_failure(said):
    answering = set()

    async def answer(reader, writer):
        answering.add(asyncio.current_task())
        await reader.read(1)
        writer.write(said)
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    peer = await asyncio.start_server(answer, "127.0.0.1", 0)
    store = RedisStore(settings(peer.sockets[0].getsockname()[1]))
    assert await store.find(KEY) is None
    assert store.failure_count == 1
    await store.close()
    peer.close()
    await asyncio.wait(answering)


@pytest.mark.parametrize("said", [b":5\r\n", b"*1\r\n$1\r\nx\r\n", b"*1\r\n" * 10_000])
@run
async def test_what_is_no_text_is_no_answer(said):
    answering = set()

    async def answer(reader, writer):
        answering.add(asyncio.current_task())
        with suppress(ConnectionError):
            while await reader.read(4096):
                writer.write(said)
                await writer.drain()
        writer.close()

    peer = await asyncio.start_server(answer, "127.0.0.1", 0)
    store = RedisStore(settings(peer.sockets[0].getsockname()[1]))
    assert await store.find(KEY) is None
    await store.close()
    peer.close()
    await asyncio.wait(answering)  # each ends when it reads that the store has gone


@run
async def test_who_gives_up_leaves_the_connections_in_order(redis_server):
    store = RedisStore(settings(redis_server().port, pool_size=1, wait_timeout_s=10.0))
    await kept(store)
    await kept(store, b"other", b"other")
    for turns in range(20):
        looking = asyncio.create_task(store.find(b"other"))
        for _ in range(turns):
            await asyncio.sleep(0)
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
        assert await store.find(KEY) == b"answer"
    await store.close()


@run
async def test_what_cannot_be_stored_in_time_is_not_kept(redis_server):
    store = RedisStore(settings(redis_server().port))
    packed = bytes(LARGEST_BYTES)
    for number in range(3):
        await store.keep(bytes([number]), packed)
    assert store.skipped_count == 3 - MAX_UNSENT_BYTES // LARGEST_BYTES
    while store._tasks:
        await asyncio.wait(store._tasks)
    await store.keep(KEY, b"small")
    assert store.skipped_count == 2
    await store.close()


@run
async def test_the_end_waits_for_what_is_to_be_stored(redis_server):
    port = redis_server().port
    store = RedisStore(settings(port))
    await store.keep(KEY, b"answer")
    await store.close()
    again = RedisStore(settings(port))
    assert await again.find(KEY) == b"answer"
    await again.close()


@run
async def test_the_metrics_tell_of_failures(free_port):
    store = RedisStore(settings(free_port))
    await store.find(KEY)
    told = {family.name: family.samples[0][1] for family in store.families()}
    assert told["inferd_cache_failures_total"] == 1
    assert told["nv_cache_num_lookups"] == 0  # who asks counts these
    await store.close()


def test_without_its_package_the_message_says_what_to_install(free_port, monkeypatch):
    monkeypatch.setitem(sys.modules, "redis.asyncio", None)
    with pytest.raises(InvalidConfig, match=r"pip install 'inferd\[redis\]'"):
        RedisStore(settings(free_port))
