"""Where other processes connect."""

import asyncio
import socket
import stat
from pathlib import Path

import pytest
from peer import Peer, run

from inferd.errors import InvalidConfig
from inferd.forward.exchange import PeerListener
from inferd.forward.line import FrameKind
from inferd.forward.owned import OwnedVersions


async def connect(path):
    peer = Peer()
    await asyncio.get_running_loop().create_unix_connection(lambda: peer.line, path)
    return peer


def test_its_folder_is_private_and_what_was_left_there_is_replaced(tmp_path, until):
    path = str(tmp_path / "folder" / "socket")

    async def go():
        for _ in range(2):
            listener = PeerListener(OwnedVersions())
            await listener.open(path)
            peer = await connect(path)
            await until(lambda listener=listener: listener.has_origins)
            mode = stat.S_IMODE(Path(path).parent.stat().st_mode)
            listener.close()
            with socket.socket(socket.AF_UNIX) as left:  # as by a process that is killed
                left.bind(path)
            await until(lambda peer=peer: peer.ends)
        return mode

    assert run(go()) == 0o700
    assert Path(path).exists()


def test_a_folder_that_others_may_enter_is_refused(tmp_path):
    (tmp_path / "open").mkdir(mode=0o750)
    listener = PeerListener(OwnedVersions())
    with pytest.raises(InvalidConfig, match="is open to others"):
        run(listener.open(str(tmp_path / "open" / "socket")))
    listener.close()


def test_one_that_has_stopped_goes_on_with_those_who_are_connected(tmp_path, until):
    path = str(tmp_path / "folder" / "socket")

    async def go():
        listener = PeerListener(OwnedVersions())
        await listener.open(path)
        peer = await connect(path)
        await until(lambda: listener.has_origins)
        listener.stop()
        with pytest.raises(FileNotFoundError):
            await connect(path)
        peer.send(1, 1, b"\xc1")  # it is read: it makes no sense
        await until(lambda: peer.ends)
        return listener.has_origins, listener._ends

    assert run(go()) == (False, set())


def test_one_that_ends_waits_until_the_others_have_let_it_go(tmp_path, until):
    path = str(tmp_path / "folder" / "socket")

    async def go():
        listener = PeerListener(OwnedVersions())
        await listener.open(path)
        await listener.wait_until_done(0.0)  # there is nobody
        peers = [await connect(path) for _ in range(2)]
        await until(lambda: len(listener._ends) == 2)
        await listener.wait_until_done(0.0)  # they stay for too long
        waiting = asyncio.create_task(listener.wait_until_done(3600.0))
        peers[0].line.close()
        await until(lambda: len(listener._ends) == 1)
        assert not waiting.done()
        peers[1].line.close()
        await waiting
        listener.close()
        return listener._ends

    assert run(go()) == set()


def test_one_that_ends_waits_for_no_process_that_has_no_more_clients(tmp_path, until):
    path = str(tmp_path / "folder" / "socket")

    async def go():
        listener = PeerListener(OwnedVersions())
        await listener.open(path)
        peers = [await connect(path) for _ in range(2)]
        await until(lambda: len(listener._ends) == 2)
        waiting = asyncio.create_task(listener.wait_until_done(3600.0))
        for left, peer in enumerate(reversed(peers)):
            assert not waiting.done()
            peer.send(FrameKind.LAST, 0)
            await until(lambda left=left: len(listener._wanting) == 1 - left)
        await waiting
        still = len(listener._ends), [len(peer.ends) for peer in peers]
        listener.close()
        return still

    assert run(go()) == (2, [0, 0])
