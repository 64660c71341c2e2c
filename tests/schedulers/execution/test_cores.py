import os
import threading

import pytest

from inferd import system
from inferd.config.options.backends import HostPolicy
from inferd.schedulers.execution.cores import cores_of, pin, pinned

OURS = frozenset(os.sched_getaffinity(0))
ONE = frozenset({min(OURS)})
NOWHERE = frozenset({16000})


def in_thread(function):
    """Return what `function` returns in a thread of its own, whose processors are its own."""
    found = []
    thread = threading.Thread(target=lambda: found.append(function()))
    thread.start()
    thread.join()
    return found[0]


def where():
    return os.sched_getaffinity(0)


def test_a_policy_has_the_processors_that_are_there(caplog):
    assert cores_of(HostPolicy(ONE | NOWHERE), "it") == ONE
    assert caplog.messages == []


def test_no_processor_that_is_there_means_any(caplog):
    assert cores_of(HostPolicy(NOWHERE), "it") == frozenset()
    assert caplog.messages == ["it: none of the processors of its host policy is there to be used"]


def test_a_node_has_the_processors_the_machine_says(tmp_path):
    (tmp_path / "node7").mkdir()
    (tmp_path / "node7" / "cpulist").write_text(f"{min(OURS)}\n")
    assert cores_of(HostPolicy(node=7), "it", tmp_path) == ONE
    assert cores_of(HostPolicy(OURS, 7), "it", tmp_path) == OURS


@pytest.mark.parametrize("text", [None, "", "nonsense"])
def test_a_node_that_is_not_there_means_any(tmp_path, text, caplog):
    if text is not None:
        (tmp_path / "node7").mkdir()
        (tmp_path / "node7" / "cpulist").write_text(text)
    assert cores_of(HostPolicy(node=7), "it", tmp_path) == frozenset()
    assert caplog.messages == ["it: this machine tells of no NUMA node 7"]


def test_a_system_without_such_a_choice_is_told_of(monkeypatch, caplog):
    monkeypatch.setattr(system, "AFFINITY", False)
    assert cores_of(HostPolicy(ONE), "it") == frozenset()
    assert "does not let threads choose" in caplog.text


def test_a_pinned_thread_and_what_it_starts_work_there():
    def work():
        pin(ONE)
        return where(), in_thread(where)

    assert in_thread(work) == (ONE, ONE)
    assert where() == OURS


def test_a_thread_is_pinned_for_a_while():
    def work():
        with pinned(ONE):
            inside = where()
        return inside, where()

    assert in_thread(work) == (ONE, OURS)


def test_none_and_what_is_gone_change_nothing():
    def work():
        pin(frozenset())
        pin(NOWHERE)
        with pinned(frozenset()):
            return where()

    assert in_thread(work) == OURS
