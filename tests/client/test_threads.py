"""One client for many threads and tasks; calls that are given up; programs that fork."""

import asyncio
import os
import threading

import numpy as np
import pytest
from scripted import ScriptedServer, answer

from inferd.client import AsyncClient, Client, DeadlineExceeded

GOOD = answer(200, b'{"model_name":"m","outputs":[]}')
X = np.arange(4, dtype=np.float32).reshape(1, 4)


def test_threads_share_a_client_and_its_connections(served, protocol):
    wrong = []
    with Client(served.url(protocol), connections=3) as client:

        def ask(number):
            for turn in range(20):
                left = X + number * 100 + turn
                result = client.infer("m", {"INPUT0": left, "INPUT1": [[1, 1, 1, 1]]})
                if not np.array_equal(result["OUTPUT0"], left + 1):
                    wrong.append((number, turn))

        threads = [threading.Thread(target=ask, args=[number]) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []


def test_a_cancelled_call_gives_back_its_slot_and_not_its_connection():
    async def main(server):
        async with AsyncClient(server.url, binary=True, connections=1) as client:
            task = asyncio.create_task(client.infer("m", {"x": X}))
            while not server.calls:  # noqa: ASYNC110  a thread fills it
                await asyncio.sleep(0.001)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            result = await client.infer("m", {"x": X})
            assert result.model_name == "m"

    with ScriptedServer(ScriptedServer.HANG, GOOD) as server:
        asyncio.run(main(server))
        assert server.connections == 2


def test_a_call_that_waits_for_a_connection_has_its_deadline():
    async def main(server):
        async with AsyncClient(server.url, binary=True, connections=1, timeout_s=0.05) as client:
            calls = [client.infer("m", {"x": X}) for _ in range(3)]
            return await asyncio.gather(*calls, return_exceptions=True)

    with ScriptedServer(ScriptedServer.HANG) as server:
        assert {type(one) for one in asyncio.run(main(server))} == {DeadlineExceeded}


def test_a_stream_that_is_left_early_gives_back_its_slot(kind, protocol, served):
    inputs = {
        "IN": np.arange(50, dtype=np.int32),
        "DELAY": np.zeros(50, np.uint32),
        "WAIT": np.zeros(1, np.uint32),
    }
    with kind(served.url(protocol), connections=1, timeout_s=20) as client:
        for _ in range(3):
            stream = client.stream("repeat", inputs)
            assert next(stream)["OUT"].tolist() == [0]
            stream.close()
        assert client.is_live()


def test_a_stream_for_threads_outlives_the_loop_that_ran_when_it_began(served, protocol):
    inputs = {
        "IN": np.arange(50, dtype=np.int32),
        "DELAY": np.zeros(50, np.uint32),
        "WAIT": np.zeros(1, np.uint32),
    }

    async def begin(stream):
        return next(stream)["OUT"].tolist()

    with Client(served.url(protocol), timeout_s=20) as client:
        stream = client.stream("repeat", inputs)
        found = [asyncio.run(begin(stream)), *(one["OUT"].tolist() for one in stream)]
    assert found == [[number] for number in range(50)]


def test_an_asynchronous_client_may_outlive_a_loop(served, protocol):
    client = AsyncClient(served.url(protocol))

    async def ask(last):
        result = await client.infer("m", {"INPUT0": X, "INPUT1": X})
        if last:
            await client.close()
            await asyncio.sleep(0)
        return result["OUTPUT0"]

    first = asyncio.new_event_loop()
    second = asyncio.new_event_loop()
    for loop in (first, second, first):
        found = loop.run_until_complete(ask(last=False))
        np.testing.assert_array_equal(found, 2 * X)
    second.run_until_complete(ask(last=True))
    for loop in (first, second):
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()


def test_a_child_process_does_not_use_its_parents_connections():
    with ScriptedServer(GOOD) as server, Client(server.url, binary=True) as client:
        client.infer("m", {"x": X})
        assert server.connections == 1
        child = os.fork()
        if not child:
            try:
                client.infer("m", {"x": X})
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        assert server.connections == 2
        client.infer("m", {"x": X})
        assert server.connections == 2
