"""HAProxy as a child: it is there until we end it, and not longer than we are."""

import asyncio
import contextlib
import os
import signal
import socket

import pytest

from inferd.errors import InvalidConfig
from inferd.route.arrangement import Arranger, KnownPlace, ModelKind
from inferd.route.configuration import RouteSettings
from inferd.route.haproxy import Haproxy
from inferd.route.place import Place, PlaceState

PATIENCE_S = 30
CHECK_MS = 50
HEALTH = "/v2/health/ready"


@pytest.fixture
def started(program, tmp_path):
    """Run a test with a Haproxy that is started with one place, and its arranger."""

    def run(test, bind_words=""):
        async def running():
            with socket.create_server(("127.0.0.1", 0)) as listening:
                settings = RouteSettings(
                    "127.0.0.1", threads=1, max_groups=1, check_timeout_ms=CHECK_MS
                )
                haproxy = Haproxy(program, [listening], bind_words, tmp_path, settings)
                arranger = Arranger(3, 1)
                place = Place("a", "h", 1000, 1001)
                known = KnownPlace(place, "127.0.0.1", {"m": ModelKind.ONCE})
                try:
                    await haproxy.start(arranger.arrange([known]))
                    return await test(haproxy, arranger)
                finally:
                    await haproxy.stop(0.0)

        return asyncio.run(running())

    return run


async def info(haproxy, key):
    lines = (await haproxy.runtime.ask("show info")).splitlines()
    return dict(line.split(": ", 1) for line in lines if ": " in line)[key]


async def until(holds):
    async with asyncio.timeout(PATIENCE_S):
        while not (found := await holds()):  # noqa: ASYNC110  nobody tells when
            await asyncio.sleep(0.001)
        return found


def test_it_begins_with_the_places_that_there_are(started):
    async def test(haproxy, _):
        rows = await haproxy.runtime.numbers()
        names = ("p1", "p2")
        grpc = {row["svname"]: row["status"] for row in rows if row["pxname"] == "grpc-all"}
        return [grpc[name] for name in names]

    up, unused = started(test)
    assert not up.startswith("MAINT")
    assert unused.startswith("MAINT")


def test_one_that_was_killed_is_replaced_with_what_it_was_supplied_with(started):
    async def test(haproxy, arranger):
        keeping = asyncio.create_task(haproxy.keep())
        try:
            b = KnownPlace(Place("b", "h", 2000, 2001), "127.0.0.1", {"n": ModelKind.ONCE})
            await haproxy.supply(arranger.arrange([b]))
            pid = await info(haproxy, "Pid")
            os.kill(int(pid), signal.SIGKILL)

            async def other():
                with contextlib.suppress(Exception):
                    return await info(haproxy, "Pid") != pid

            await until(other)
            return haproxy.restart_count, await haproxy.runtime.ask(f"show map {haproxy.paths.map}")
        finally:
            keeping.cancel()

    count, lines = started(test)
    assert count == 1
    assert "n all.once" in lines
    assert "m all" not in lines


def test_a_configuration_that_it_refuses_has_its_reasons(started):
    async def test(*_):
        pass

    with pytest.raises(InvalidConfig, match=r"HAProxy does not start: .*nonsense"):
        started(test, bind_words=" nonsense")


def test_clients_wait_while_it_is_replaced(started):
    async def test(haproxy, _):
        port = haproxy._sockets[0].getsockname()[1]
        keeping = asyncio.create_task(haproxy.keep())
        try:
            os.kill(int(await info(haproxy, "Pid")), signal.SIGKILL)
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /v2/health/live HTTP/1.1\r\nHost: a\r\n\r\n")
            line = await asyncio.wait_for(reader.readline(), PATIENCE_S)
            writer.close()
            return line
        finally:
            keeping.cancel()

    assert started(test) == b"HTTP/1.1 200 OK\r\n"


def test_a_client_that_keeps_its_connection_is_answered_once_more_at_the_end(started):
    async def test(haproxy, _):
        port = haproxy._sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        ask = b"GET /v2/health/live HTTP/1.1\r\nHost: a\r\n\r\n"
        writer.write(ask)
        await reader.readuntil(b"true}")
        stopping = asyncio.create_task(haproxy.stop(PATIENCE_S))

        async def is_closed():
            with contextlib.suppress(OSError):
                _, other = await asyncio.open_connection("127.0.0.1", port)
                other.close()
                return False
            return True

        await until(is_closed)
        writer.write(ask)
        last = await reader.read()
        writer.close()
        return last, await stopping

    last, is_done = started(test)
    assert last.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"connection: close\r\n" in last
    assert is_done


def test_what_is_under_way_at_a_slot_can_be_ended(started):
    async def test(haproxy, arranger):
        hanging = asyncio.Event()

        async def hang(reader, writer):
            head = await reader.readuntil(b"\r\n\r\n")
            if head.startswith(b"GET /v2 "):
                hanging.set()
                await reader.read()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            writer.close()

        server = await asyncio.start_server(hang, "127.0.0.1", 0)
        place = Place("a", "h", server.sockets[0].getsockname()[1], 1)
        await haproxy.supply(arranger.arrange([KnownPlace(place, "127.0.0.1", {})]))
        port = haproxy._sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /v2 HTTP/1.1\r\nHost: a\r\n\r\n")
        await hanging.wait()
        await haproxy.cut(0)
        answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE_S)
        writer.close()
        server.close()
        return answer

    assert b"HTTP/1.1 50" in started(test)


async def answer_of(haproxy, path):
    """Return the status and the body that a client of HAProxy gets."""
    port = haproxy._sockets[0].getsockname()[1]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET %b HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n" % path.encode())
    head, _, body = (await asyncio.wait_for(reader.read(), PATIENCE_S)).partition(b"\r\n\r\n")
    writer.close()
    return int(head.split()[1]), body


async def checked(haproxy, *expected):
    """Wait until all checks of the first slots have found what is `expected`: UP or DOWN."""

    async def found():
        rows = [row for row in await haproxy.runtime.numbers() if row["check_status"]]
        states = [
            {row["status"][:2] for row in rows if row["svname"] == f"p{at}"} - {"MA"}  # MAINT
            for at, _ in enumerate(expected, 1)
        ]
        return states == [{one[:2]} for one in expected]

    await until(found)


def test_places_that_all_fail_their_checks_are_asked_all_the_same(started, site):
    """They may have so much to do that they answer a check too late."""

    async def test(haproxy, arranger):
        slow = site({HEALTH: (503, b""), "/v2/models/m": (200, b"slow"), "/v2": (200, b"slow")})
        async with slow, site({HEALTH: (200, b""), "/v2": (200, b"quick")}) as quick:
            a = KnownPlace(Place("a", "h", slow.port, 1), "127.0.0.1", {"m": ModelKind.ONCE})
            b = KnownPlace(Place("b", "h", quick.port, 1), "127.0.0.1", {})
            await haproxy.supply(arranger.arrange([a, b]))
            await checked(haproxy, "DOWN", "UP")
            other_is_up = [await answer_of(haproxy, "/v2") for _ in range(4)]
            only_here = await answer_of(haproxy, "/v2/models/m")
            quick.answers[HEALTH] = (503, b"")
            await checked(haproxy, "DOWN", "DOWN")
            none_is_up = {await answer_of(haproxy, "/v2") for _ in range(4)}
            return other_is_up, only_here, none_is_up, await answer_of(haproxy, HEALTH)

    other_is_up, only_here, none_is_up, health = started(test)
    assert other_is_up == [(200, b"quick")] * 4
    assert only_here == (200, b"slow")
    assert none_is_up == {(200, b"quick"), (200, b"slow")}
    assert health == (503, b"")


def test_sequences_do_not_go_elsewhere_because_all_checks_fail(started, site):
    async def test(haproxy, arranger):
        async with site({HEALTH: (503, b""), "/v2/models/q/infer": (200, b"begun")}) as slow:
            known = KnownPlace(
                Place("a", "h", slow.port, 1), "127.0.0.1", {"q": ModelKind.SEQUENCE}
            )
            await haproxy.supply(arranger.arrange([known]))
            await checked(haproxy, "DOWN")
            port = haproxy._sockets[0].getsockname()[1]
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            body = b'{"parameters":{"sequence_id":1}}'
            head = b"POST /v2/models/q/infer HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n"
            writer.write(head % len(body) + body)
            line = await asyncio.wait_for(reader.readline(), PATIENCE_S)
            writer.close()
            return line

    assert started(test) == b"HTTP/1.1 503 Service Unavailable\r\n"


def test_a_place_that_drains_is_no_last_resort(started, site):
    async def test(haproxy, arranger):
        async with site({HEALTH: (200, b""), "/v2": (200, b"drains")}) as site_a:
            places = [
                Place("a", "h", site_a.port, 1, None, state)
                for state in (PlaceState.READY, PlaceState.DRAINING)
            ]
            ready, draining = (KnownPlace(one, "127.0.0.1", {}) for one in places)
            await haproxy.supply(arranger.arrange([ready]))
            await checked(haproxy, "UP")
            before = await answer_of(haproxy, "/v2")
            await haproxy.supply(arranger.arrange([draining]))
            return before, (await answer_of(haproxy, "/v2"))[0]

    assert started(test) == ((200, b"drains"), 503)


def test_when_places_end_together_requests_reach_the_one_that_is_left(started):
    """It has more to do than those, so each try of a request prefers one of them."""

    async def test(haproxy, arranger):
        arrived, release = asyncio.Semaphore(0), asyncio.Event()

        async def serve(reader, writer):
            head = await reader.readuntil(b"\r\n\r\n")
            if head.startswith(b"GET /hang "):
                arrived.release()
                await release.wait()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nleft")
            writer.close()

        servers = [await asyncio.start_server(serve, "127.0.0.1", 0) for _ in "abc"]
        ports = [one.sockets[0].getsockname()[1] for one in servers]
        known = [
            KnownPlace(Place(f"place-{port}", "h", port, port), "127.0.0.1", {}) for port in ports
        ]
        await haproxy.supply(arranger.arrange(known[:1]))
        hanging = [asyncio.create_task(answer_of(haproxy, "/hang")) for _ in range(3)]
        for _ in hanging:
            await arrived.acquire()
        await haproxy.supply(arranger.arrange(known))
        await checked(haproxy, "UP", "UP", "UP")
        for one in servers[1:]:
            one.close()
        answer = await answer_of(haproxy, "/v2")
        release.set()
        servers[0].close()
        return [answer, *await asyncio.gather(*hanging)]

    assert started(test) == [(200, b"left")] * 4


def test_whoever_asks_for_a_model_that_sleeps_is_sent_to_who_wakes_it(started):
    """The question whether it is ready wakes nobody."""

    async def test(haproxy, arranger):
        heads = []

        async def serve(reader, writer):
            heads.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(b"HTTP/1.1 503 No\r\nContent-Length: 5\r\n\r\nwakes")
            writer.close()

        server = await asyncio.start_unix_server(serve, haproxy.paths.control_socket)
        await haproxy.supply(arranger.arrange([], ["a b", "a%b"]))
        is_ready = await answer_of(haproxy, "/v2/models/a%25b/ready")
        count = len(heads)
        answer = await answer_of(haproxy, "/v2/models/a%25b")
        server.close()
        return is_ready[0], count, answer, heads

    is_ready, count, answer, [head] = started(test)
    assert (is_ready, count) == (503, 0)
    assert answer == (503, b"wakes")
    assert head.startswith(b"GET /inferd-route/wake HTTP/1.1\r\n")
    assert b"inferd-asleep: a%25b\r\n" in head
