"""Where other processes connect."""

import asyncio
import socket
import stat
from pathlib import Path

import pytest
from peer import Peer, run

from inferd.core.processes import Processes
from inferd.errors import InvalidConfig
from inferd.forward.exchange import Exchange
from inferd.forward.line import FrameKind


async def connect(path):
    peer = Peer()
    await asyncio.get_running_loop().create_unix_connection(lambda: peer.line, path)
    return peer


def test_its_folder_is_private_and_what_was_left_there_is_replaced(tmp_path, until):
    path = str(tmp_path / "folder" / "socket")

    async def go():
        for _ in range(2):
            exchange = Exchange(Processes())
            await exchange.open(path)
            peer = await connect(path)
            await until(lambda exchange=exchange: exchange.has_origins)
            mode = stat.S_IMODE(Path(path).parent.stat().st_mode)
            exchange.close()
            with socket.socket(socket.AF_UNIX) as left:  # as by a process that is killed
                left.bind(path)
            await until(lambda peer=peer: peer.ends)
        return mode

    assert run(go()) == 0o700
    assert Path(path).exists()


def test_a_folder_that_others_may_enter_is_refused(tmp_path):
    (tmp_path / "open").mkdir(mode=0o750)
    exchange = Exchange(Processes())
    with pytest.raises(InvalidConfig, match="is open to others"):
        run(exchange.open(str(tmp_path / "open" / "socket")))
    exchange.close()


def test_one_that_has_stopped_goes_on_with_those_who_are_connected(tmp_path, until):
    path = str(tmp_path / "folder" / "socket")

    async def go():
        exchange = Exchange(Processes())
        await exchange.open(path)
        peer = await connect(path)
        await until(lambda: exchange.has_origins)
        exchange.stop()
        with pytest.raises(FileNotFoundError):
            await connect(path)
        peer.send(1, 1, b"\xc1")  # it is read: it makes no sense
        await until(lambda: peer.ends)
        return exchange.has_origins, exchange._ends

    assert run(go()) == (False, set())


def test_one_that_ends_waits_until_the_others_have_let_it_go(tmp_path, until):
    path = str(tmp_path / "folder" / "socket")

    async def go():
        exchange = Exchange(Processes())
        await exchange.open(path)
        await exchange.finish(0.0)  # there is nobody
        peers = [await connect(path) for _ in range(2)]
        await until(lambda: len(exchange._ends) == 2)
        await exchange.finish(0.0)  # they stay for too long
        waiting = asyncio.create_task(exchange.finish(3600.0))
        peers[0].line.close()
        await until(lambda: len(exchange._ends) == 1)
        assert not waiting.done()
        peers[1].line.close()
        await waiting
        exchange.close()
        return exchange._ends

    assert run(go()) == set()


def test_one_that_ends_waits_for_no_process_that_has_no_more_clients(tmp_path, until):
    path = str(tmp_path / "folder" / "socket")

    async def go():
        exchange = Exchange(Processes())
        await exchange.open(path)
        peers = [await connect(path) for _ in range(2)]
        await until(lambda: len(exchange._ends) == 2)
        waiting = asyncio.create_task(exchange.finish(3600.0))
        for left, peer in enumerate(reversed(peers)):
            assert not waiting.done()
            peer.send(FrameKind.LAST, 0)
            await until(lambda left=left: len(exchange._wanting) == 1 - left)
        await waiting
        still = len(exchange._ends), [len(peer.ends) for peer in peers]
        exchange.close()
        return still

    assert run(go()) == (2, [0, 0])
