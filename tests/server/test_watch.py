"""Files that change are noticed once they rest, and only then."""

import asyncio
import os

import pytest

from inferd.errors import InvalidConfig
from inferd.server.watch import FileWatcher


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "file"
    path.write_text("one")
    return path


@pytest.fixture
def watched(file):
    """A watcher of the file, and the list that grows each time it is read."""

    def read():
        noticed.append(file.read_text() if file.exists() else None)

    watcher, noticed = FileWatcher(), []
    watcher.read("it", read, str(file))
    assert noticed == ["one"]
    noticed.clear()
    return watcher, noticed


def looks(watcher, count):
    for _ in range(count):
        watcher.look()


def test_a_file_that_stays_is_not_noticed(watched):
    watcher, noticed = watched
    looks(watcher, 3)
    assert noticed == []


def test_a_change_is_noticed_once_when_it_has_rested(watched, file):
    watcher, noticed = watched
    file.write_text("three")
    looks(watcher, 1)
    assert noticed == []
    looks(watcher, 3)
    assert noticed == ["three"]


def test_a_file_still_being_written_is_waited_for(watched, file):
    watcher, noticed = watched
    for text in ("t", "th", "three"):
        file.write_text(text)
        looks(watcher, 1)
    assert noticed == []
    looks(watcher, 1)
    assert noticed == ["three"]


def test_a_change_of_time_alone_is_a_change(watched, file):
    watcher, noticed = watched
    os.utime(file, (1, 1))
    looks(watcher, 2)
    assert noticed == ["one"]


def test_a_link_that_points_elsewhere_is_a_change(file, tmp_path):
    link, other = tmp_path / "link", tmp_path / "other"
    other.write_text("two")
    stamp = os.stat(file).st_mtime_ns
    os.utime(other, ns=(stamp, stamp))
    link.symlink_to(file)
    watcher, noticed = FileWatcher(), []
    watcher.read("it", lambda: noticed.append(link.read_text()), str(link))
    link.unlink()
    link.symlink_to(other)
    looks(watcher, 2)
    assert noticed == ["one", "two"]


def test_a_file_that_goes_and_comes_is_noticed_each_time(watched, file):
    watcher, noticed = watched
    file.unlink()
    looks(watcher, 2)
    file.write_text("again")
    looks(watcher, 2)
    assert noticed == [None, "again"]


def test_files_that_belong_together_are_noticed_together(tmp_path):
    paths = [str(tmp_path / name) for name in ("cert", "key")]
    watcher, noticed = FileWatcher(), []
    watcher.read("they", lambda: noticed.append(1), *paths)
    noticed.clear()
    for path in paths:
        with open(path, "w") as file:
            file.write("x")
        looks(watcher, 1)
    looks(watcher, 2)
    assert noticed == [1]


def test_a_path_no_system_can_have_is_a_file_that_is_not_there():
    watcher, noticed = FileWatcher(), []
    watcher.read("it", lambda: noticed.append(1), "a\0b")
    looks(watcher, 3)
    assert noticed == [1]


def test_what_cannot_be_used_later_is_reported_and_tried_again_at_the_next_change(file, caplog):
    caplog.set_level("INFO")
    watcher = FileWatcher()

    def read():
        if file.read_text() == "bad":
            msg = "it is bad"
            raise InvalidConfig(msg)

    watcher.read("the letters", read, str(file))
    for text in ("bad", "good"):
        file.write_text(text)
        looks(watcher, 4)
    assert [(record.levelname, record.message) for record in caplog.records] == [
        ("ERROR", "the letters stay as they were: it is bad"),
        ("INFO", "the letters have changed, and count from now on"),
    ]


def test_what_cannot_be_used_at_first_is_the_callers_to_know(file):
    def read():
        msg = "it is bad"
        raise InvalidConfig(msg)

    with pytest.raises(InvalidConfig, match="it is bad"):
        FileWatcher().read("it", read, str(file))


def test_it_looks_by_itself_until_it_is_stopped(file):
    async def run():
        watcher, noticed = FileWatcher(look_s=0.001), asyncio.Event()
        watcher.read("it", noticed.set, str(file))
        noticed.clear()
        watcher.start()
        file.write_text("two")
        async with asyncio.timeout(10):
            await noticed.wait()
        watcher.stop()

    asyncio.run(run())
