"""The HTTP server's life: sockets, the list of connections, draining and closing."""

import asyncio
import socket

import pytest

LIVE = b"GET /v2/health/live HTTP/1.1\r\n\r\n"


async def test_a_port_that_is_taken_is_an_os_error(serving):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        async with serving() as site:
            with pytest.raises(OSError, match="in use"):
                await site.server.start("127.0.0.1", taken.getsockname()[1])


async def test_one_server_may_listen_on_several_ports(serving):
    async with serving() as site:
        first = await site.connect()
        site.port = await site.server.start("127.0.0.1", 0)
        second = await site.connect()
        for client in (first, second):
            assert (await client.ask(LIVE)).status == 200
        assert len(site.server.endpoint.connections) == 2


async def test_a_server_without_connections_is_drained(serving):
    async with serving() as site:
        site.server.stop_accepting()
        assert await site.server.endpoint.wait_until_empty(0)


async def test_idle_connections_close_when_the_server_stops_accepting(serving):
    async with serving() as site:
        asked, new = await site.connect(), await site.connect()
        assert (await asked.ask(LIVE)).status == 200
        assert (await new.ask(LIVE)).status == 200
        site.server.stop_accepting()
        assert await asked.rest() == b""
        assert await new.rest() == b""
        assert await site.server.endpoint.wait_until_empty(30)


async def test_who_is_accepted_as_the_server_stops_accepting_does_not_hold_up_its_end(serving):
    async with serving() as site:
        loop = asyncio.get_running_loop()

        def accept():  # the loop tells the connection only after that that it is made
            connection = site.server.connect()
            site.server.stop_accepting()
            return connection

        own = await loop.create_server(accept, "127.0.0.1", 0)
        site.port = own.sockets[0].getsockname()[1]
        client = await site.connect()
        async with asyncio.timeout(30):
            assert await client.rest() == b""
        assert await site.server.endpoint.wait_until_empty(30)
        own.close()


async def test_nobody_may_connect_after_the_server_stops_accepting(serving):
    async with serving() as site:
        site.server.stop_accepting()
        with pytest.raises(ConnectionRefusedError):
            await site.connect()


async def test_busy_connections_answer_before_they_close(serving, infer):
    async with serving() as site:
        waiting, sending, half = [await site.connect() for _ in range(3)]
        await waiting.send(infer([1.5], model="held") + LIVE)
        await site.held.started.acquire()
        request = infer([2.5] * 5000)
        await sending.send(request[:20_000])
        await half.send(LIVE[:10])
        endpoint = site.server.endpoint
        while len(endpoint.connections) < 3 or not endpoint.capacity.buffered_bytes:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        for _ in range(20):
            await asyncio.sleep(0)
        site.server.stop_accepting()
        assert not await site.server.endpoint.wait_until_empty(0)
        await sending.send(request[20_000:])
        await half.send(LIVE[10:])
        site.held.release.set()
        for client in (waiting, sending, half):
            answer = await client.answer()
            assert (answer.status, answer.headers["connection"]) == (200, "close")
            assert await client.rest() == b""
        assert await site.server.endpoint.wait_until_empty(30)


async def test_connections_that_were_there_before_do_not_end_draining_early(serving, infer):
    async with serving() as site:
        first = await site.connect()
        assert (await first.ask(LIVE)).status == 200
        first.close()
        await site.has_no_connections()
        client = await site.connect()
        await client.send(infer([1.5], model="held"))
        await site.held.started.acquire()
        assert not await site.server.endpoint.wait_until_empty(0.01)


async def test_draining_gives_up_in_time(serving, infer):
    async with serving() as site:
        client = await site.connect()
        await client.send(infer([1.5], model="held"))
        await site.held.started.acquire()
        site.server.stop_accepting()
        assert not await site.server.endpoint.wait_until_empty(0.01)
        site.server.close()
        await site.held.cancelled.acquire()
        assert await site.server.endpoint.wait_until_empty(30)
        assert await client.rest() == b""


@pytest.mark.slow
async def test_a_large_answer_is_written_out_before_its_connection_closes(serving, binary):
    data = bytes(5_000_000)
    async with serving() as site:
        client = await site.connect(SO_RCVBUF=4096)
        sending = asyncio.ensure_future(client.send(binary(data)))
        sent = client.answer()
        while not any(one._is_paused for one in site.server.endpoint.connections):  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        site.server.stop_accepting()
        assert (await sent).body.endswith(data)
        assert await client.rest() == b""
        await sending


async def test_closing_twice_is_harmless(serving):
    async with serving() as site:
        await site.connect()
        site.server.close()
        site.server.close()
        assert site.server._sweeper.cancelled()


@pytest.mark.slow
async def test_the_clock_is_swept_by_itself(serving):
    async with serving(idle_timeout_s=1.0) as site:
        client = await site.connect()
        assert (await client.ask(LIVE)).status == 200
        site.now += 2.0
        assert await client.rest() == b""


def test_the_event_loop_may_be_asyncios_own(serving, infer):
    async def go():
        async with serving() as site:
            client = await site.connect()
            large = await client.ask(infer([2.5] * 5000))
            return large, await client.ask(infer([1.5]))

    large, small = asyncio.run(go())
    assert len(large.json["outputs"][0]["data"]) == 5000
    assert small.json["outputs"][0]["data"] == [1.5]
