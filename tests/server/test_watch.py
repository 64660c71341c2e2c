"""Files that change are noticed once they rest, and only then."""

import asyncio
import os

import pytest

from inferd.server.watch import FileWatcher


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "file"
    path.write_text("one")
    return path


@pytest.fixture
def watched(file):
    """A watcher of the file, and the list that grows with each change noticed."""
    watcher, noticed = FileWatcher(), []
    watcher.add(lambda: noticed.append(file.read_text() if file.exists() else None), str(file))
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
    watcher.add(lambda: noticed.append(link.read_text()), str(link))
    link.unlink()
    link.symlink_to(other)
    looks(watcher, 2)
    assert noticed == ["two"]


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
    watcher.add(lambda: noticed.append(1), *paths)
    for path in paths:
        with open(path, "w") as file:
            file.write("x")
        looks(watcher, 1)
    looks(watcher, 2)
    assert noticed == [1]


def test_a_path_no_system_can_have_is_a_file_that_is_not_there():
    watcher, noticed = FileWatcher(), []
    watcher.add(lambda: noticed.append(1), "a\0b")
    looks(watcher, 3)
    assert noticed == []


def test_it_looks_by_itself_until_it_is_stopped(file):
    async def run():
        watcher, noticed = FileWatcher(look_s=0.001), asyncio.Event()
        watcher.add(noticed.set, str(file))
        watcher.start()
        file.write_text("two")
        async with asyncio.timeout(10):
            await noticed.wait()
        watcher.stop()

    asyncio.run(run())
