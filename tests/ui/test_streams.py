"""Streams of events over sockets: see conftest."""

import asyncio

import pytest

from inferd.errors import BackendFailed
from inferd.ui import streams
from inferd.ui.topics import Subject

OVERVIEW = "/ui/events?topics=overview"


async def opened(site, get, target=OVERVIEW):
    """Return a client that reads a stream, once its head is there."""
    client = await site.connect()
    await client.send(get(target))
    head = await client._until(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n"), head
    client.head = head
    return client


async def until(holds):
    """Wait until `holds()`, which other callbacks of the loop bring about."""
    while not holds():  # noqa: ASYNC110
        await asyncio.sleep(0)


async def piece(client):
    """Return the next chunk of a stream, b"" at its end."""
    size = await client._until(b"\r\n")
    while len(client.received) < int(size, 16) + 2:
        await client._more()
    data, client.received = client.received[: int(size, 16)], client.received[int(size, 16) + 2 :]
    return data


def event(name, count, subject=None):
    return f'event: {name}\ndata: {{"{subject or name}":{count}}}\n\n'.encode()


async def test_a_reader_hears_of_each_look(showing, get, seconds):
    async with showing() as site:
        client = await opened(site, get)
        assert b"\r\nContent-Type: text/event-stream; charset=utf-8\r\n" in client.head
        assert b"\r\nCache-Control: no-store\r\n" in client.head
        assert await piece(client) == event("overview", 1)
        for count in (2, 3):
            seconds.pass_one()
            assert await piece(client) == event("overview", count)


async def test_all_readers_share_one_look(showing, get, seconds, looks):
    async with showing() as site:
        one, other = await opened(site, get), await opened(site, get)
        assert looks.count == 1  # the second came less than a second later
        assert await piece(one) == await piece(other) == event("overview", 1)
        seconds.pass_one()
        assert await piece(one) == await piece(other) == event("overview", 2)
        assert looks.asked == [{Subject("overview")}] * 2


async def test_topics_come_in_the_order_in_which_they_are_asked_for(showing, get, looks):
    async with showing() as site:
        client = await opened(site, get, "/ui/events?topics=models,model,models&model=id&version=3")
        both = event("models", 1) + event("model", 1, "model/id/3")
        assert await piece(client) == both
        assert looks.asked == [{Subject("models"), Subject("model", "id", "3")}]


async def test_a_subject_that_nobody_looked_at_is_looked_at_when_it_is_asked_for(
    showing, get, looks
):
    async with showing() as site:
        await opened(site, get)
        await opened(site, get, "/ui/events?topics=overview,log")
        assert looks.asked == [{Subject("overview")}, {Subject("log")}]


async def test_nobody_looks_while_nobody_reads(showing, get, seconds, looks):
    async with showing() as site:
        for count in (1, 2):
            client = await opened(site, get)
            assert looks.count == count
            client.reset()
            assert await site.server.endpoint.wait_until_empty(30)
            seconds.pass_one()  # nobody waits for it
            await asyncio.sleep(0)
            assert looks.count == count
            seconds.now += 10
            await seconds.pause()


async def test_once_gives_the_first_events_and_ends(showing, get):
    async with showing() as site:
        answer = await site.ask(get(f"{OVERVIEW},log&once=1"))
        assert answer.status == 200
        assert answer.body == event("overview", 1) + event("log", 1)
        assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"


async def test_head_opens_no_stream(showing, get, looks):
    async with showing() as site:
        client = await site.connect()
        await client.send(get(OVERVIEW, method="HEAD"))
        assert (await client.answer(has_body=False)).status == 200
        assert (await client.ask(get("/ui/about"))).status == 200  # the connection goes on
        assert not looks.asked


async def test_a_reader_that_is_slow_skips_looks(showing, get, seconds, looks, monkeypatch):
    async with showing() as site:
        client = await site.connect(SO_RCVBUF=4096)
        await client.send(get(OVERVIEW))
        await client.begun()
        padding = b" " * (8 << 20)  # more than the system takes for a client that does not read
        monkeypatch.setattr(streams, "_encoded", lambda event: event.data + padding)
        [connection] = site.server.endpoint.connections
        seconds.pass_one()
        await until(lambda: connection._writer.is_stalled)
        for count in range(3, 203):  # what is not sent is nowhere
            seconds.pass_one()
            await until(lambda count=count: looks.count == count)
        assert connection._transport.get_write_buffer_size() <= len(padding) + 100
        told = b""
        while b'{"overview":202}' not in told:
            assert b'{"overview":3}' not in told
            await client._more()
            told, client.received = told[-20:] + client.received, b""
        assert looks.count == 202


async def test_a_silent_stream_has_comments(showing, get, seconds, looks):
    async with showing() as site:
        client = await opened(site, get)
        assert await piece(client) == event("overview", 1)
        looks.is_silent = True
        for count in range(int(streams.SILENT_S)):
            seconds.pass_one()
            await until(lambda count=count: len(looks.asked) == count + 2)
        assert await piece(client) == b": \n\n"


async def test_there_are_not_too_many_streams(showing, get, monkeypatch):
    monkeypatch.setattr(streams, "MOST_STREAMS", 2)
    async with showing() as site:
        one = await opened(site, get)
        await opened(site, get)
        refused = await site.ask(get(OVERVIEW))
        assert refused.status == 503 and "2 streams of events are open" in refused.error
        assert refused.headers["retry-after"] == "1"
        one.reset()
        await until(lambda: len(site.dashboard.hub._streams) < 2)
        await opened(site, get)


async def test_streams_that_cannot_begin_do_not_count(showing, get, looks, monkeypatch):
    monkeypatch.setattr(streams, "MOST_STREAMS", 1)
    async with showing() as site:
        for _ in range(2):
            answer = await site.ask(get("/ui/events?topics=model&model=nowhere"))
            assert answer.status == 404 and answer.error == "there is no model 'nowhere'"
        looks.failure = BackendFailed("no idea")
        assert (await site.ask(get(OVERVIEW))).status == 500
        looks.failure = None
        await opened(site, get)


async def test_a_look_that_fails_ends_no_stream(showing, get, seconds, looks, caplog):
    async with showing() as site:
        client = await opened(site, get)
        assert await piece(client) == event("overview", 1)
        looks.failure = ArithmeticError("oh")
        seconds.pass_one()
        await until(lambda: len(looks.asked) == 2)
        looks.failure = None
        seconds.pass_one()
        assert await piece(client) == event("overview", 2)
        assert "unexpected failure in /ui/events: ArithmeticError: oh" in caplog.text


async def test_news_that_fail_end_no_stream(showing, get, seconds, looks, caplog, monkeypatch):
    async with showing() as site:
        client = await opened(site, get)
        assert await piece(client) == event("overview", 1)
        with monkeypatch.context() as patch:
            patch.setattr(streams, "_encoded", None)
            seconds.pass_one()
            await until(lambda: "TypeError" in caplog.text)
        seconds.pass_one()
        assert await piece(client) == event("overview", 3)


@pytest.mark.parametrize("is_silent", [False, True])
async def test_a_drain_ends_the_streams_after_a_last_look(showing, get, looks, is_silent):
    async with showing() as site:
        client = await opened(site, get)
        assert await piece(client) == event("overview", 1)
        looks.is_silent = is_silent
        await site.dashboard.drain()
        if not is_silent:
            assert await piece(client) == event("overview", 2)
        assert await piece(client) == b""
        refused = await site.ask(get(OVERVIEW))
        assert refused.status == 503 and "shutting down" in refused.error


async def test_a_last_look_that_fails_holds_no_drain_up(showing, get, looks):
    async with showing() as site:
        client = await opened(site, get)
        assert await piece(client) == event("overview", 1)
        looks.failure = ArithmeticError("oh")
        await site.dashboard.drain()
        assert await piece(client) == b""


async def test_the_clock_of_looks_is_that_of_the_wall():
    waits = []

    async def sleep(wait_s):
        waits.append(wait_s)

    for now, wait_s in ((10.0, 0.05), (10.05, 1.0), (10.06, 0.99), (10.55, 0.5), (9.999, 0.051)):
        await streams.until_next_second(lambda now=now: now, sleep)
        assert waits.pop() == pytest.approx(wait_s)
