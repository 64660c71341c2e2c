"""Turns: everyone answers before anyone is written to."""

import asyncio
import logging
import threading

from inferd.aio.round_number import RoundNumber
from inferd.http.turns import TURN_COUNT, Connection, PendingOutput, Turns


class Output(PendingOutput):
    """The output of a Recorder, which notes what becomes of it."""

    def __init__(self, name, log, *, fails):
        self.name, self.log, self.fails = name, log, fails

    def write_pending(self):
        self.log.append(f"write {self.name}")
        if self.fails:
            raise ZeroDivisionError

    def abort(self):
        self.log.append(f"cut {self.name}")


class Recorder(Connection):
    """A connection that notes what it was asked to do."""

    def __init__(self, name, turns, log, *, fails=""):
        self.name, self.turns, self.log, self.fails = name, turns, log, fails
        self.output = Output(name, log, fails=fails == "write")

    def take_turn(self):
        self.log.append(f"answer {self.name}")
        if self.fails == "answer":
            raise ZeroDivisionError
        self.turns.write_soon(self.output)

    def abort(self):
        self.log.append(f"cut {self.name}")


async def after_turns(turns, *connections):
    for connection in connections:
        turns.answer_soon(connection)
    await asyncio.sleep(0)


async def test_all_that_have_read_answer_before_the_first_is_written():
    turns, log = Turns(), []
    await after_turns(turns, *(Recorder(name, turns, log) for name in "ab"))
    assert log == ["answer a", "answer b", "write a", "write b"]


async def test_all_of_a_round_happens_in_one_moment_and_the_next_round_in_another():
    round_number, log = RoundNumber(), []
    turns = Turns(round_number)
    numbers = []
    first, second = Recorder("a", turns, log), Recorder("b", turns, log, fails="answer")
    first.take_turn = second.output.write_pending = lambda: numbers.append(round_number.number)
    await after_turns(turns, first, second, first)
    assert round_number.number == 0
    await after_turns(turns, first)
    assert round_number.number == 0
    assert numbers[0] == numbers[1] > 0
    assert numbers[2] > numbers[1]


async def test_nothing_happens_before_the_loop_has_read_from_everyone():
    turns, log = Turns(), []
    turns.answer_soon(Recorder("a", turns, log))
    assert log == []


async def test_many_are_written_in_between():
    turns, log = Turns(), []
    await after_turns(turns, *(Recorder(i, turns, log) for i in range(TURN_COUNT + 1)))
    assert log.index("write 0") == TURN_COUNT
    assert log[-2:] == [f"answer {TURN_COUNT}", f"write {TURN_COUNT}"]


async def test_an_answer_outside_of_turns_is_written_by_the_next_iteration():
    turns, log = Turns(), []
    turns.write_soon(Recorder("a", turns, log).output)
    assert log == []
    await asyncio.sleep(0)
    assert log == ["write a"]


async def test_a_connection_that_goes_on_when_it_is_written_is_written_again():
    turns, log = Turns(), []
    first, second = Recorder("a", turns, log), Recorder("b", turns, log)
    write = first.output.write_pending

    def write_twice():
        write()
        if len(log) < 5:
            turns.write_soon(first.output)

    first.output.write_pending = write_twice
    await after_turns(turns, first, second)
    assert log == ["answer a", "answer b", "write a", "write b", "write a"]
    await after_turns(turns, second)
    assert log[-2:] == ["answer b", "write b"]


async def test_a_connection_that_fails_is_cut_and_the_others_go_on(caplog):
    turns, log = Turns(), []
    with caplog.at_level(logging.ERROR, "inferd.transport"):
        await after_turns(
            turns,
            Recorder("a", turns, log, fails="answer"),
            Recorder("b", turns, log, fails="write"),
            Recorder("c", turns, log),
        )
    assert log == ["answer a", "cut a", "answer b", "answer c", "write b", "cut b", "write c"]
    assert len(caplog.records) == 2


async def test_turns_can_be_taken_again_and_again():
    turns, log = Turns(), []
    connection = Recorder("a", turns, log)
    await after_turns(turns, connection)
    await after_turns(turns, connection)
    assert log == ["answer a", "write a"] * 2


async def test_who_was_alone_and_comes_again_is_answered_at_once():
    turns, log = Turns(), []
    first, second = Recorder("a", turns, log), Recorder("b", turns, log)
    await after_turns(turns, first)
    turns.answer_read(first)
    assert log == ["answer a", "write a"] * 2
    del log[:]
    turns.answer_read(second)
    turns.answer_read(first)
    assert log == []
    await asyncio.sleep(0)
    assert log == ["answer b", "answer a", "write b", "write a"]


async def test_only_who_has_read_is_answered_at_once():
    turns, log = Turns(), []
    first = Recorder("a", turns, log)
    await after_turns(turns, first)
    turns.answer_soon(first)
    assert log == ["answer a", "write a"]
    await asyncio.sleep(0)
    assert log == ["answer a", "write a"] * 2


async def test_the_loop_is_looked_for_once(monkeypatch):
    """In Python 3.11 each look is a system call, which costs a small request a tenth."""
    turns, log, looks = Turns(), [], []
    find, here = asyncio.get_running_loop, threading.get_ident()

    def look():
        if threading.get_ident() == here:  # servers of other tests have theirs
            looks.append(1)
        return find()

    monkeypatch.setattr(asyncio, "get_running_loop", look)
    for _ in range(3):
        await after_turns(turns, Recorder("a", turns, log), Recorder("b", turns, log))
    assert len(log) == 12
    assert len(looks) == 1
