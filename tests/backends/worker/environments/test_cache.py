import os
import threading

import pytest

from inferd.backends.worker.environments.cache import DONE, FolderCache
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
        folder = FolderCache(cache).use("a", made, 30, "here").folder
        assert sorted(path.name for path in folder.iterdir()) == [DONE, "file"]
    FolderCache(cache).use("b", made, 30, "here")
    assert made.calls == ["a", "b"]


def test_what_was_left_unfinished_is_made_anew(cache, made):
    (cache / "a" / "half").mkdir(parents=True)
    folder = FolderCache(cache).use("a", made, 30, "here").folder
    assert not (folder / "half").exists()
    assert made.calls == ["a"]


def test_what_fails_leaves_nothing_and_may_be_tried_again(cache, made):
    def fail(folder):
        made(folder)
        msg = "no"
        raise InvalidConfig(msg)

    kept = FolderCache(cache)
    with pytest.raises(InvalidConfig, match="no"):
        kept.use("a", fail, 30, "here")
    assert list(cache.iterdir()) == []
    kept.use("a", made, 30, "here")


def test_who_comes_second_waits_and_gets_the_same(cache):
    begun, go_on = threading.Event(), threading.Event()
    calls = []

    def slow(folder):
        calls.append(folder)
        begun.set()
        assert go_on.wait(60)
        folder.mkdir()

    threads = [
        threading.Thread(target=lambda: FolderCache(cache).use("a", slow, 60, "here"))
        for _ in range(3)
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
            FolderCache(cache).use("a", fail, 60, "here")
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
            FolderCache(cache).use("a", slow, 0.0, "here")
        folder.mkdir()

    FolderCache(cache).use("a", slow, 60, "here")


def test_a_place_that_cannot_be_written_is_told_without_its_path(tmp_path, made):
    (tmp_path / "file").touch()
    with pytest.raises(
        InvalidConfig, match=r"^here: its environment cannot be kept: Not a directory$"
    ):
        FolderCache(tmp_path / "file" / "cache").use("a", made, 30, "here")


# --- what is deleted ---


def kept_in(cache):
    return sorted(path.name for path in cache.iterdir())


def used_at(cache, key, second):
    os.utime(cache / key / DONE, (second, second))


def test_the_oldest_that_nobody_uses_are_deleted(cache, made):
    kept = FolderCache(cache, 2)
    for second, key in enumerate("abc"):
        kept.use(key, made, 30, "here")
        used_at(cache, key, second)
    assert kept_in(cache) == ["b", "c"]
    kept.use("b", made, 30, "here")  # which is used last now
    kept.use("d", made, 30, "here")
    assert kept_in(cache) == ["b", "d"]
    kept.use("a", made, 30, "here")
    assert made.calls == ["a", "b", "c", "d", "a"]


def test_what_is_used_stays_and_goes_when_it_is_not(cache, made):
    kept = FolderCache(cache, 1)
    uses = {}
    for second, key in enumerate("abc"):
        uses[key] = kept.use(key, made, 30, "here")
        used_at(cache, key, second)
    assert kept_in(cache) == ["a", "b", "c"]
    again = FolderCache(cache, 1).use("b", made, 30, "elsewhere")
    used_at(cache, "b", 1)
    del uses["a"], uses["b"]
    kept.use("d", made, 30, "here")
    assert kept_in(cache) == ["b", "c", "d"]
    del again
    kept.use("e", made, 30, "here")
    assert kept_in(cache) == ["c", "e"]


def test_what_somebody_else_makes_or_began_to_delete_is_left_or_deleted(cache, made):
    (cache / ".gone-1" / "file").mkdir(parents=True)
    (cache / "half").mkdir()
    for key in "ab":
        FolderCache(cache, 1).use(key, made, 30, "here")
    assert kept_in(cache) == ["b", "half"]


def test_one_that_is_deleted_meanwhile_is_made_anew(cache, made):
    """Many use and delete the same few folders, and none finds a folder that is not whole."""
    failed = []

    def work(number):
        kept = FolderCache(cache, 1)
        for turn in range(20):
            use = kept.use("abcd"[(number + turn) % 4], made, 60, "here")
            if not (use.folder / DONE).exists() or not (use.folder / "file").exists():
                failed.append(use.folder)
            del use
            kept.use(f"{number}-{turn}", made, 60, "here")  # which deletes what nobody uses

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert sum(key in "abcd" for key in made.calls) > 4
