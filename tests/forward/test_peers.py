"""Links to other processes, which are played, as they come and go."""

import asyncio

import pytest
from peer import listening, run

from inferd.core.processes import Processes
from inferd.core.request import InferRequest, InferResponse
from inferd.errors import Unavailable
from inferd.forward.line import FrameKind
from inferd.forward.message import encode_answer
from inferd.forward.peers import Peers

FORM = b"12345678"
NEVER_S = 3600.0


def answer(peer, number, id):
    response = InferResponse("m", "1", id)
    peer.send(6, number, *encode_answer(InferRequest("m"), response))


def ask(peers, number):
    """Return the answer to come of a process."""
    return peers.link(number).begin(InferRequest("m"), "1", FORM)[1]


@pytest.fixture
def paths(tmp_path):
    return [str(tmp_path / name) for name in "abc"]


def test_all_but_this_process_get_a_link(paths, until):
    async def go():
        processes = Processes(1, 3)
        peers = Peers(processes)
        async with listening(paths[0]) as first, listening(paths[2]) as last:
            processes.update(dict(enumerate(paths)))
            await until(lambda: peers.link(0) and peers.link(2))
            counts = len(first), len(last)
            own = peers.link(1)
            peers.close()
        return counts, own, processes.on_change

    assert run(go()) == ((1, 1), None, [])


def test_one_that_does_not_listen_yet_is_waited_for(paths):
    async def go():
        processes = Processes(0, 2)
        peers = Peers(processes)
        processes.update({1: paths[1]})
        waiting = asyncio.ensure_future(peers.wait([1], NEVER_S))
        async with listening(paths[1]):
            await waiting
            found = peers.link(1)
            peers.close()
            return found.number, found.path

    assert run(go()) == (1, paths[1])


def test_one_that_is_not_named_is_waited_for_until_the_time_is_over(paths):
    async def go():
        peers = Peers(Processes(0, 2))
        await peers.wait([1], 0.0)
        assert peers.link(1) is None
        assert not peers._waits
        waiting = asyncio.ensure_future(peers.wait([1], NEVER_S))
        await asyncio.sleep(0)
        peers.close()
        await waiting
        await peers.wait([1], NEVER_S)

    run(go())


def test_processes_known_before_the_loop_runs_are_connected_to_when_one_is_wanted(paths):
    processes = Processes(0, 2)
    peers = Peers(processes)
    processes.update({1: paths[1]})

    async def go():
        async with listening(paths[1]):
            await peers.wait([1], NEVER_S)
            found = peers.link(1) is not None
            peers.close()
            return found

    assert run(go())


def test_a_process_that_is_replaced_ends_what_it_has_and_its_successor_gets_the_rest(paths, until):
    async def go():
        processes = Processes(0, 2)
        peers = Peers(processes)
        async with listening(paths[1]) as old, listening(paths[2]) as new:
            processes.update({1: paths[1]})
            await peers.wait([1], NEVER_S)
            first = ask(peers, 1)
            await until(lambda: old[0].frames)
            processes.update({1: paths[2]})
            await peers.wait([1], NEVER_S)
            second = ask(peers, 1)
            await until(lambda: new[0].frames)
            answer(old[0], 1, "by the old one")
            answer(new[0], 1, "by the new one")
            found = [(await one).id for one in (first, second)]
            await until(lambda: old[0].ends)
            still = new[0].ends, peers._retired
            peers.close()
            return found, still

    assert run(go()) == (["by the old one", "by the new one"], ([], set()))


def test_two_processes_of_one_number_know_each_other(paths, until):
    """`paths` are those of another process, the old one, and the new one that takes its place."""

    async def go():
        old, new = Processes(1, 2, paths[1]), Processes(1, 2, paths[2])
        async with listening(paths[0]), listening(paths[1]) as there, listening(paths[2]) as here:
            of_old, of_new = Peers(old), Peers(new)
            for one in (old, new):  # the new one has been started
                one.update({0: paths[0], 1: paths[1]})
            await until(lambda: of_new.link(1) and there and of_old.link(0))
            before = of_old.link(1), of_old.are_two, of_new.predecessor
            for one in (old, new):
                one.update({0: paths[0], 1: paths[2]})
            await until(lambda: of_old.link(1) and here)
            assert (of_new.link(1), of_new.are_two, of_old.are_two) == (None, True, True)
            assert (of_new.predecessor.path, of_old.link(1).path) == (paths[1], paths[2])
            assert of_old.predecessor is None
            of_new.say_last()
            await until(lambda: there[0].frames)
            there[0].send(FrameKind.DISMISSAL, 0)
            await until(lambda: of_new.predecessor is None)
            await until(lambda: there[0].ends)
            after = of_new.are_two, [one[0] for one in there[0].frames]
            of_old.close()
            of_new.close()
            return before, after

    assert run(go()) == ((None, False, None), (False, [FrameKind.LAST]))


def test_a_predecessor_that_has_ended_is_forgotten(paths, until):
    async def go():
        processes = Processes(1, 2, paths[1])
        peers = Peers(processes)
        async with listening(paths[0]) as there:
            processes.update({1: paths[0]})
            await until(lambda: there and there[0].line.is_open and peers.link(1))
            processes.update({1: paths[1]})
            assert peers.predecessor.path == paths[0]
            there[0].line.close()
            await until(lambda: not peers.are_two)
            peers.close()
            return peers.predecessor

    assert run(go()) is None


def test_a_link_that_breaks_is_made_anew_while_its_process_is_ready(paths, until):
    async def go():
        processes = Processes(0, 2)
        peers = Peers(processes)
        async with listening(paths[1]) as there:
            processes.update({1: paths[1]})
            await peers.wait([1], NEVER_S)
            lost = ask(peers, 1)
            await until(lambda: there[0].frames)
            there[0].line.break_off("garbled")
            with pytest.raises(Unavailable, match="process 1 of the server"):
                await lost
            await peers.wait([1], NEVER_S)
            again = ask(peers, 1)
            await until(lambda: there[1].frames)
            answer(there[1], 1, "again")
            found = (await again).id
            peers.close()
            return found

    assert run(go()) == "again"


def test_one_that_leaves_while_it_is_connected_to_is_let_go(paths, until):
    async def go():
        processes = Processes(0, 2)
        peers = Peers(processes)
        processes.update({1: paths[1]})
        await until(lambda: peers._connecting)
        processes.update({})
        await until(lambda: len(asyncio.all_tasks()) == 1 + is_timed())
        peers.close()
        return peers._connecting

    assert run(go()) == {}


def is_timed():
    """Return how many tasks `run` itself has beside the test's, which depends on Python."""
    return 0 if asyncio.current_task().get_name() == "Task-1" else 1
