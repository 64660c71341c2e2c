"""What the supervisor decides, in a simulation of random faults: see world.py."""

import pytest
from world import World

from inferd.fleet.fleet import Fleet, Rules
from inferd.fleet.inquiries import ENDED, LINES, MODELS, WAIT_S
from inferd.fleet.members import State
from inferd.fleet.messages import (
    Answered,
    Ask,
    Begin,
    CannotStart,
    Change,
    Done,
    LogChanged,
    ModelsLoaded,
    Propose,
    Question,
    ReadySockets,
    Replied,
    Reply,
    Retire,
    Tally,
    Withdraw,
)
from inferd.fleet.restarts import MOST_FAILURES
from inferd.fleet.status import ReplacementState

SEEDS = 250


def begun(seed):
    """Return a world in which all processes serve and nothing goes wrong."""
    world = World(seed)
    world.is_calm = True
    world.fleet.start()
    world.tick()
    world.run_until(10.0)
    assert world.fleet.has_begun
    return world


def test_processes_are_not_taken_for_hung_when_all_stood_still():
    world = begun(1)
    world.now += 1000.0
    world.fleet.check_time()
    assert world.killed == set()


def test_a_process_that_hangs_is_killed():
    world = begun(1)
    world.alive()[0].is_deaf = True
    world.run_until(40.0)
    assert len(world.killed) == 1


def test_a_process_that_lacks_what_the_others_serve_does_not_serve():
    world = begun(3)
    for member in world.fleet.members:
        member.serves = {"m": {"1": ("config", "file")}}
    world.end(world.alive()[0], "SIGKILL")
    world.run_until(20.0)
    assert len(world.ready()) == world.count - 1
    assert world.killed


@pytest.mark.parametrize("first", range(0, 1000, SEEDS))
def test_whatever_happens_the_processes_are_one_server(first):
    for seed in range(first, first + SEEDS):
        try:
            World(seed).live()
        except AssertionError as error:
            pytest.fail(f"seed {seed}: {error}")


class Notes:
    """A Shell that notes what it is to do, and a clock."""

    def __init__(self, process_count):
        self.now_s = 0.0
        self.sent, self.killed, self.code = [], [], None
        self.fleet = Fleet(
            Rules(process_count),
            self,
            lambda: self.now_s,
            merge=lambda numbers: b"".join(numbers),
            socket_of=str,
            discard=lambda _body: None,
        )
        self.fleet.start()

    def spawn(self, number, slot):
        self.spawned = number

    def send(self, number, message):
        self.sent.append((number, message))

    def kill(self, number):
        self.killed.append(number)

    def accept(self, *, is_open):
        pass

    def close(self):
        pass

    def show(self, loaded):
        pass

    def change_log(self, change):
        self.log = change

    def lines(self, count):
        return b"lines after %d" % count

    def end(self, code):
        self.code = code


@pytest.fixture
def notes():
    """Two processes, numbers 1 and 2, that serve."""
    made = Notes(2)
    for number in (1, 2):
        made.fleet.hear(number, ModelsLoaded())
    assert made.fleet.has_begun
    return made


SERVES = {"m": {"1": ("a",), "2": ("a",)}, "n": {"1": ("b",)}}
FAILED = {"m": {"2": "why"}, "n": {"1": "no"}}
LEFT = {"m": {"1": ("a",)}}


@pytest.fixture
def failed():
    """Two processes that serve; versions failed in number 2, which owned them."""
    made = Notes(2)
    made.fleet.hear(1, ModelsLoaded(("all is well",), serves=SERVES))
    made.fleet.hear(2, ModelsLoaded(serves=LEFT, failed=FAILED))
    assert not made.fleet.has_begun
    assert [said for said in made.sent if isinstance(said[1], Withdraw)] == [(1, Withdraw(FAILED))]
    made.fleet.hear(1, ModelsLoaded(("not all",), "failed", serves=LEFT, failed=FAILED))
    assert made.fleet.has_begun
    assert made.killed == []
    return made


def test_what_failed_in_one_process_is_served_by_none(failed):
    assert [one.serves for one in failed.fleet.members.ready()] == [LEFT, LEFT]


def test_what_had_failed_is_not_served_by_a_process_that_is_started_again(failed):
    failed.fleet.lost(1, "SIGKILL")
    failed.now_s += 1.0
    failed.fleet.check_time()
    new = failed.spawned
    failed.fleet.hear(new, ModelsLoaded(serves=SERVES))
    assert failed.sent[-1] == (new, Withdraw(FAILED))
    failed.fleet.hear(new, ModelsLoaded(serves=LEFT, failed=FAILED))
    assert [one.number for one in failed.fleet.members.ready()] == [2, new]


def test_a_model_that_was_repaired_is_served_by_those_that_replace_the_others(failed):
    failed.fleet.replacements.roll()
    failed.fleet.hear(failed.spawned, ModelsLoaded(serves=SERVES))
    assert failed.sent[-1] == (failed.spawned, Withdraw({"m": {"2": "why"}}))  # with m 1, alike
    failed.fleet.hear(failed.spawned, ModelsLoaded(serves=LEFT | {"n": SERVES["n"]}))
    assert failed.fleet.members.get(1).state is State.DRAINING


def test_new_processes_that_do_not_start_leave_the_server_as_it_is(notes):
    for time in range(MOST_FAILURES + 1):
        assert notes.fleet.replacements.roll() == ""
        assert notes.fleet.replacements.roll() == "processes are being replaced already"
        notes.fleet.hear(notes.spawned, CannotStart())
        assert notes.killed[time:] == [notes.spawned]
        notes.fleet.lost(notes.spawned, "SIGKILL")
        assert notes.fleet.replacements.last.state is ReplacementState.FAILED
        assert notes.fleet.replacements.last.number == time + 1
    notes.now_s += 1000.0
    notes.fleet.check_time()
    assert [one.number for one in notes.fleet.members.ready()] == [1, 2]
    assert (notes.fleet.restarts.count, notes.fleet.is_stopping, notes.code) == (0, False, None)


def test_a_replacement_is_done_when_the_last_old_process_has_ended(notes):
    notes.fleet.replacements.roll()
    for old in (1, 2):
        assert notes.fleet.replacements.last.replaced_count == old - 1
        notes.fleet.hear(notes.spawned, ModelsLoaded())
        assert notes.fleet.replacements.last.replaced_count == old
        assert notes.fleet.replacements.last.state is ReplacementState.RUNNING
        notes.fleet.lost(old, "exit code 0")
    assert notes.fleet.replacements.last.state is ReplacementState.DONE


def test_a_process_knows_where_the_one_it_replaces_is_before_it_takes_its_place(notes):
    notes.fleet.replacements.roll()
    notes.fleet.hear(notes.spawned, ModelsLoaded())
    said = [message for number, message in notes.sent if number == notes.spawned]
    assert said == [ReadySockets({0: "1", 1: "2"}), Begin(), *[ReadySockets({0: "3", 1: "2"})] * 2]


def test_a_change_asked_of_a_process_that_is_replaced_is_made_in_all_before_it_ends(notes):
    notes.fleet.replacements.roll()
    notes.fleet.hear(notes.spawned, ModelsLoaded())
    assert notes.fleet.members.get(1).state is State.DRAINING
    del notes.sent[:]
    notes.fleet.hear(1, Propose(1, "models", "m", b"change"))
    assert notes.sent == [(number, Change(1, b"change")) for number in (1, 2, 3)]
    for number in (2, 3, 1):
        assert (1, Answered(1)) not in notes.sent
        notes.fleet.hear(number, Done(1))
    assert notes.sent[-1] == (1, Answered(1))


def test_a_change_does_not_wait_for_a_process_that_was_replaced_and_has_ended(notes):
    notes.fleet.replacements.roll()
    notes.fleet.hear(notes.spawned, ModelsLoaded())
    notes.fleet.hear(2, Propose(1, "models", "m", b"change"))
    for number in (2, 3):
        notes.fleet.hear(number, Done(1))
    notes.fleet.lost(1, "exit code 0")
    assert (2, Answered(1)) in notes.sent


def test_a_process_that_somebody_else_stops_is_replaced_first(notes):
    for _ in range(2):
        notes.fleet.hear(1, Retire())
    new = notes.spawned
    assert [one.number for one in notes.fleet.members.ready()] == [1, 2]
    notes.fleet.hear(2, Retire())
    notes.fleet.hear(new, ModelsLoaded())
    assert notes.fleet.members.get(1).state is State.DRAINING
    notes.fleet.lost(1, "exit code 0")
    assert notes.spawned == new + 1  # in the place of the other one
    notes.fleet.hear(notes.spawned, Retire())  # it does not serve yet: nobody misses it
    assert notes.killed == [notes.spawned]
    assert (notes.fleet.restarts.count, notes.fleet.replacements.last) == (0, None)


def test_one_that_is_stopped_while_all_are_replaced_is_not_replaced_twice(notes):
    notes.fleet.replacements.roll()
    for old in (1, 2):
        for number in (1, 2):
            notes.fleet.hear(number, Retire())
        notes.fleet.hear(notes.spawned, ModelsLoaded())
        notes.fleet.lost(old, "exit code 0")
    assert notes.fleet.replacements.last.replaced_count == 2
    assert notes.fleet.replacements.last.state is ReplacementState.DONE
    assert [one.number for one in notes.fleet.members.ready()] == [3, 4]
    assert notes.spawned == 4


def test_a_process_that_ends_while_it_is_replaced_is_started_again_if_the_new_one_fails(notes):
    notes.fleet.replacements.roll()
    new = notes.spawned
    notes.fleet.lost(1, "SIGSEGV")
    notes.fleet.lost(new, "SIGSEGV")
    notes.now_s += 1.0
    notes.fleet.check_time()
    assert notes.spawned > new
    assert {one.slot for one in notes.fleet.members} == {0, 1}


def test_the_supervisor_hears_how_the_log_has_changed(notes):
    change = LogChanged("json", "", 1, info=True, warning=True, error=False)
    notes.fleet.hear(2, change)
    assert notes.log == change


def test_the_supervisor_gets_a_reply_or_none(notes):
    answers = []
    notes.fleet.inquiries.ask(MODELS, answers.append)
    number, question = notes.sent[-1]
    assert question == Question(question.number, MODELS)
    notes.fleet.hear(number, Reply(question.number, b"yes"))
    notes.fleet.inquiries.ask(MODELS, answers.append)
    notes.fleet.lost(number, "SIGSEGV")
    notes.fleet.inquiries.ask(MODELS, answers.append)
    notes.now_s += WAIT_S
    notes.fleet.check_time()
    notes.fleet.lost(2, "SIGSEGV")
    notes.fleet.inquiries.ask(MODELS, answers.append)
    assert answers == [(b"yes",), (), (), ()]


def test_what_ended_processes_left_is_answered_without_asking_the_others(notes):
    def ask(what):
        notes.sent.clear()
        notes.fleet.hear(1, Ask(7, what))
        return notes.sent

    assert ask(ENDED) == [(1, Replied(7, ()))]
    notes.fleet.hear(2, Tally(b"what it counted"))
    assert ask(ENDED) == [(1, Replied(7, ()))]
    notes.fleet.lost(2, "SIGKILL")
    assert ask(ENDED) == [(1, Replied(7, (b"what it counted",)))]
    assert ask("ui {}") == [(1, Replied(7, ()))]


def test_the_supervisor_answers_for_its_own_log(notes):
    notes.sent.clear()
    notes.fleet.hear(1, Ask(7, f"{LINES}12"))
    assert notes.sent == [(1, Replied(7, (b"lines after 12",)))]


def test_other_questions_are_passed_on_as_they_are(notes):
    notes.sent.clear()
    notes.fleet.hear(1, Ask(7, "ui {}"))
    [(number, question)] = notes.sent
    assert (number, question.what) == (2, "ui {}")
    notes.fleet.hear(2, Reply(question.number, b"a part"))
    assert notes.sent[1:] == [(1, Replied(7, (b"a part",)))]
    assert not any(member.numbers for member in notes.fleet.members)
