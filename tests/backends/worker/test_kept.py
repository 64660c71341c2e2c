import threading

import pytest

from inferd.backends.worker.kept import DONE, Kept
from inferd.errors import InvalidConfig, Unavailable


@pytest.fixture
def made():
    """made(folder) makes a folder and notes that it did."""
    calls = []

    def make(folder):
        calls.append(folder.name)
        folder.mkdir()
        (folder / "file").touch()

    make.calls = calls
    return make


def test_a_folder_is_made_once(cache, made):
    for _ in range(2):
        folder = Kept(cache).folder("a", made, 30, "here")
        assert sorted(path.name for path in folder.iterdir()) == [DONE, "file"]
    Kept(cache).folder("b", made, 30, "here")
    assert made.calls == ["a", "b"]


def test_what_was_left_unfinished_is_made_anew(cache, made):
    (cache / "a" / "half").mkdir(parents=True)
    folder = Kept(cache).folder("a", made, 30, "here")
    assert not (folder / "half").exists()
    assert made.calls == ["a"]


def test_what_fails_leaves_nothing_and_may_be_tried_again(cache, made):
    def fail(folder):
        made(folder)
        msg = "no"
        raise InvalidConfig(msg)

    kept = Kept(cache)
    with pytest.raises(InvalidConfig, match="no"):
        kept.folder("a", fail, 30, "here")
    assert list(cache.iterdir()) == []
    kept.folder("a", made, 30, "here")


def test_who_comes_second_waits_and_gets_the_same(cache):
    begun, go_on = threading.Event(), threading.Event()
    calls = []

    def slow(folder):
        calls.append(folder)
        begun.set()
        assert go_on.wait(60)
        folder.mkdir()

    threads = [
        threading.Thread(target=lambda: Kept(cache).folder("a", slow, 60, "here")) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    assert begun.wait(60)
    go_on.set()
    for thread in threads:
        thread.join()
    assert len(calls) == 1
    assert [path.name for path in cache.iterdir()] == ["a"]


def test_when_each_fails_one_tries_at_a_time(cache):
    inside, calls, errors = threading.Semaphore(1), [], []

    def fail(folder):
        assert inside.acquire(blocking=False)
        calls.append(folder)
        threading.Event().wait(0.005)
        inside.release()
        msg = "no"
        raise InvalidConfig(msg)

    def ask():
        try:
            Kept(cache).folder("a", fail, 60, "here")
        except InvalidConfig as error:
            errors.append(error.message)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(calls), errors) == (8, ["no"] * 8)
    assert list(cache.iterdir()) == []


def test_nobody_waits_for_ever(cache):
    def slow(folder):
        with pytest.raises(Unavailable, match="here: another load has been making its environment"):
            Kept(cache).folder("a", slow, 0.0, "here")
        folder.mkdir()

    Kept(cache).folder("a", slow, 60, "here")


def test_a_place_that_cannot_be_written_is_told_without_its_path(tmp_path, made):
    (tmp_path / "file").touch()
    with pytest.raises(
        InvalidConfig, match=r"^here: its environment cannot be kept: Not a directory$"
    ):
        Kept(tmp_path / "file" / "cache").folder("a", made, 30, "here")
