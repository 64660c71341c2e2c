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
        await site.server.stop_accepting()
        assert await site.server.endpoint.wait_until_empty(0)


async def test_idle_connections_stay_open_for_the_window_of_a_stop(serving):
    async with serving() as site:
        asking, silent = await site.connect(), await site.connect()
        for client in (asking, silent):
            assert "connection" not in (await client.ask(LIVE)).headers
        site.now += 100  # that they were idle before does not count
        await site.server.stop_accepting()
        site.pass_time(0.9)
        answer = await asking.ask(LIVE)
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert await asking.rest() == b""
        assert len(site.server.endpoint.connections) == 1
        site.pass_time(0.2)
        assert await silent.rest() == b""
        assert await site.server.endpoint.wait_until_empty(30)


async def test_a_request_that_has_not_been_read_yet_keeps_its_connection_open(serving):
    async with serving() as site:
        client = await site.connect()
        assert (await client.ask(LIVE)).status == 200
        await site.server.stop_accepting()
        client.socket.setblocking(True)
        client.socket.sendall(LIVE)  # the loop does not run: it cannot have read this
        client.socket.setblocking(False)
        site.pass_time(2)
        answer = await client.answer()
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert await client.rest() == b""


async def test_who_is_accepted_as_the_server_stops_is_answered_once(serving):
    async with serving() as site:
        loop = asyncio.get_running_loop()

        def accept():  # the loop tells the connection only after that that it is made
            connection = site.server.connect()
            site.server.endpoint.drain()
            return connection

        own = await loop.create_server(accept, "127.0.0.1", 0)
        site.port = own.sockets[0].getsockname()[1]
        asking, silent = await site.connect(), await site.connect()
        answer = await asking.ask(LIVE)
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert await asking.rest() == b""
        while len(site.server.endpoint.connections) < 1:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        site.pass_time(2)
        async with asyncio.timeout(30):
            assert await silent.rest() == b""
        assert await site.server.endpoint.wait_until_empty(30)
        own.close()


async def test_nobody_may_connect_after_the_server_stops_accepting(serving):
    async with serving() as site:
        await site.server.stop_accepting()
        with pytest.raises(ConnectionRefusedError):
            await site.connect()


async def test_requests_sent_ahead_are_answered_before_a_stop_ends_their_connection(serving, infer):
    async with serving() as site:
        client = await site.connect()
        await client.send(infer([1.5], model="held") + LIVE * 3)
        await site.held.started.acquire()
        await site.server.stop_accepting()
        site.held.release.set()
        answers = [await client.answer() for _ in range(4)]
        assert [one.status for one in answers] == [200] * 4
        assert [one.headers.get("connection") for one in answers] == [None, None, None, "close"]
        assert await client.rest() == b""


async def test_a_client_that_never_stops_sending_does_not_keep_its_connection(serving):
    async with serving() as site:
        client = await site.connect()
        assert (await client.ask(LIVE)).status == 200
        await site.server.stop_accepting()
        await client.send(LIVE * 3000)  # what is not answered is reset, and answers with it
        assert await site.server.endpoint.wait_until_empty(30)


async def test_busy_connections_answer_before_they_close(serving, infer):
    async with serving() as site:
        waiting, sending, half = [await site.connect() for _ in range(3)]
        await waiting.send(infer([1.5], model="held"))
        await site.held.started.acquire()
        request = infer([2.5] * 5000)
        await sending.send(request[:20_000])
        await half.send(LIVE[:10])
        endpoint = site.server.endpoint
        while len(endpoint.connections) < 3 or not endpoint.capacity.buffered_bytes:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        for _ in range(20):
            await asyncio.sleep(0)
        await site.server.stop_accepting()
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
        await site.server.stop_accepting()
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
        while not any(one._writer.is_stalled for one in site.server.endpoint.connections):  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        await site.server.stop_accepting()
        site.pass_time(2)  # the window of a stop is over, but the answer is not
        assert (await sent).body.endswith(data)
        site.pass_time(0.1)  # it has been written out: the window begins
        site.pass_time(2)
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


async def test_a_connection_ends_after_as_many_requests_as_it_may_have(serving):
    async with serving(max_connection_requests=3) as site:
        client = await site.connect()
        answers = [await client.ask(LIVE) for _ in range(3)]
        assert [one.headers.get("connection") for one in answers] == [None, None, "close"]
        assert await client.rest() == b""
        assert (await site.ask(LIVE)).status == 200


async def test_requests_sent_ahead_are_answered_beyond_the_number_allowed(serving):
    async with serving(max_connection_requests=1) as site:
        client = await site.connect()
        await client.send(LIVE * 3)
        answers = [await client.answer() for _ in range(3)]
        assert [one.headers.get("connection") for one in answers] == [None, None, "close"]
        assert await client.rest() == b""


async def test_connections_made_together_do_not_end_together(serving):
    async with serving(max_connection_requests=1000, max_connection_age_ms=100_000) as site:
        for _ in range(30):
            assert (await (await site.connect()).ask(LIVE)).status == 200
        connections = site.server.endpoint.connections
        left = [one._life.answers_left for one in connections]
        assert all(899 <= one <= 999 for one in left) and len(set(left)) > 5
        ages = [one._life._expires_at - site.now for one in connections]
        assert all(90 <= one <= 110 for one in ages) and len(set(ages)) > 5


async def test_an_old_connection_ends_with_its_next_answer_or_when_it_is_idle(serving, infer):
    async with serving(max_connection_age_ms=100_000) as site:
        asking, silent, waiting = [await site.connect() for _ in range(3)]
        for client in (asking, silent):
            assert (await client.ask(LIVE)).status == 200
        await waiting.send(infer([1.5], model="held"))
        await site.held.started.acquire()
        site.pass_time(80)
        assert "connection" not in (await asking.ask(LIVE)).headers
        site.pass_time(31)
        assert (await asking.ask(LIVE)).headers["connection"] == "close"
        assert await asking.rest() == b""
        site.pass_time(1.1)
        assert await silent.rest() == b""
        site.held.release.set()
        assert (await waiting.answer()).headers["connection"] == "close"
        assert await waiting.rest() == b""
