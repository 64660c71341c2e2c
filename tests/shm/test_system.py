import gc
import mmap
import os
import resource
import socket
from pathlib import Path

import numpy as np
import pytest

from inferd.aio.round_number import RoundNumber
from inferd.errors import InvalidRequest, RegionFailed, Unavailable
from inferd.shm.mapping import check_key, guard
from inferd.shm.system import MAX_REMEMBERED, SystemRegion

PAGE = mmap.PAGESIZE


def region(given, offset=0, size=None, name="r"):
    return SystemRegion(
        name, given.key, offset, given.path.stat().st_size if size is None else size
    )


def test_a_span_is_the_memory_itself(shared):
    given = shared(64)
    span = region(given).span(8, 16)
    given.write(np.arange(4, dtype=np.int32), 8)
    assert np.frombuffer(span.view, np.int32).tolist() == [0, 1, 2, 3]
    span.view[:4] = b"abcd"
    assert given.memory[8:12] == b"abcd"
    assert (len(span.view), span.extent[1:], span.is_copy) == (16, (8, 24), False)


@pytest.mark.parametrize("offset", [1, PAGE - 1, PAGE, 3 * PAGE + 5])
def test_a_region_may_begin_anywhere(shared, offset):
    given = shared(5 * PAGE)
    span = region(given, offset, PAGE).span(2, 4)
    given.memory[offset + 2 : offset + 6] = b"here"
    assert bytes(span.view) == b"here"
    assert span.extent[1:] == (offset + 2, offset + 6)


def test_the_same_object_is_the_same_memory_under_any_name(shared):
    one, other = shared(), shared()
    spans = [region(one, name="a").span(0, 4), region(one, name="b").span(0, 4)]
    assert spans[0].extent == spans[1].extent
    assert spans[0].extent != region(other).span(0, 4).extent


def test_it_remembers_the_spans_made_lately_and_not_all_there_ever_were(shared):
    made = region(shared())
    span = made.span(0, 4)
    assert made.spans == {(0, 4): span}
    for size in range(MAX_REMEMBERED):
        made.span(1, size)
    assert (0, 4) not in made.spans
    assert len(made.spans) <= MAX_REMEMBERED


@pytest.mark.parametrize("lead", ["", "/", "///"])
def test_leading_slashes_of_a_key_are_nothing(shared, lead):
    given = shared()
    name = given.key.lstrip("/")
    assert SystemRegion("r", lead + name, 0, 4096).span(0, 1)


@pytest.mark.parametrize(
    "key",
    [
        "", "/", "//", ".", "..", "/..", "../etc/passwd", "/../etc/passwd", "/a/b", "a/", "a/../b",
        "a\0b", "/" + "a" * 256, "ä" * 128, "\udc80/", "\ud800",
    ],
)  # fmt: skip
def test_a_key_that_is_no_name_is_refused(key):
    with pytest.raises(InvalidRequest, match="is no key of a shared memory object"):
        check_key(key)


@pytest.mark.parametrize(
    "key",
    [
        "inferd_1",
        "/inferd_ring",
        "triton_python_backend_shm_region_1",
        "//triton_python_backend_shm_region_",
        "sem.lock",
    ],
)
def test_keys_of_the_servers_own_objects_are_refused(key):
    with pytest.raises(InvalidRequest, match="is reserved"):
        check_key(key)


def test_what_is_not_there_and_what_is_forbidden_sound_the_same(shared):
    """Or clients could find out the names of other people's objects."""
    given = shared()
    path = given.path.with_name(given.path.name + "x")
    texts = []
    for make in (lambda: None, path.mkdir, lambda: os.mkfifo(path), lambda: _bind(path),
                 lambda: path.symlink_to(given.path)):  # fmt: skip
        make()
        with pytest.raises(RegionFailed) as caught:
            SystemRegion("r", given.key + "x", 0, 1)
        texts.append(caught.value.message)
        if path.is_dir():
            path.rmdir()
        else:
            path.unlink(missing_ok=True)
    assert len(set(texts)) == 1
    assert "/dev/shm" not in texts[0]


def _bind(path):
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


@pytest.mark.parametrize(
    ("offset", "size"),
    [(0, 65), (1, 64), (64, 1), (65, 1), (2**63 - 1, 1), (2**64 - 1, 2**64 - 1), (0, 2**80)],
)
def test_a_region_beyond_its_object_is_refused(shared, offset, size):
    with pytest.raises(InvalidRequest, match="has 64 bytes"):
        region(shared(64), offset, size)


def test_a_server_without_files_left_says_so(shared):
    given = shared()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        with pytest.raises(Unavailable, match="no room"):
            SystemRegion("r", given.key, 0, 1)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.mark.slow
def test_a_region_there_are_no_addresses_for_leaves_nothing_behind(shared):
    gc.collect()  # what earlier tests left
    given = shared()
    os.truncate(given.path, 1 << 50)  # a hole takes no memory
    files, watches = _open_files(), set(guard()._watched)
    with pytest.raises(Unavailable, match="no room"):
        SystemRegion("r", given.key, 0, 1 << 50)
    gc.collect()
    assert _open_files() <= files  # a thread of an earlier test may just have closed some
    assert set(guard()._watched) == watches


def test_an_object_that_shrank_is_reported_until_it_has_grown_again(shared):
    given = shared(2 * PAGE)
    made = region(given)
    given.resize(PAGE)
    with pytest.raises(InvalidRequest, match=f"'r' has shrunk to {PAGE} bytes"):
        made.span(0, 4).look()
    given.resize(2 * PAGE)
    span = made.span(PAGE, 4)
    span.look()
    assert bytes(span.view) == bytes(4)


def test_a_region_is_looked_at_once_in_a_round_and_always_between_rounds(shared):
    given, round_number = shared(2 * PAGE), RoundNumber()
    made = SystemRegion("r", given.key, 0, 2 * PAGE, round_number)
    span = made.span(0, 4)
    round_number.number = 1
    span.look()
    given.resize(PAGE)
    made.span(4, 4).look()  # whoever asks in this round asked before that
    for round_number.number in (0, 2, 2):
        with pytest.raises(InvalidRequest, match="has shrunk"):
            span.look()
    given.resize(2 * PAGE)
    span.look()


def test_memory_that_was_lost_is_reported_in_the_same_round(shared):
    given, round_number = shared(PAGE), RoundNumber()
    span = SystemRegion("r", given.key, 0, PAGE, round_number).span(0, 4)
    round_number.number = 1
    span.look()
    given.resize(0)
    assert bytes(span.view) == bytes(4)
    with pytest.raises(InvalidRequest, match="'r' shrank while the region was in use"):
        span.look()


def test_an_object_that_was_removed_is_reported_even_if_another_took_its_name(shared):
    given = shared()
    made = region(given)
    given.remove()
    with pytest.raises(InvalidRequest, match="'r' has been removed"):
        made.span(0, 4).look()
    given.path.write_bytes(bytes(4096))
    with pytest.raises(InvalidRequest, match="'r' has been removed"):
        made.span(0, 4).look()


def test_memory_lost_while_in_use_is_reported_by_the_span_and_ever_after(shared):
    given = shared(PAGE)
    made = region(given)
    span = made.span(0, 4)
    span.check()
    given.resize(0)
    assert bytes(span.view) == bytes(4)
    with pytest.raises(InvalidRequest, match="'r' shrank while the region was in use"):
        span.check()
    given.resize(PAGE)
    with pytest.raises(InvalidRequest, match="'r' shrank while the region was in use"):
        made.span(0, 4).look()


def test_a_closed_region_stays_mapped_for_who_uses_it(shared):
    given = shared()
    made = region(given)
    span = made.span(0, 4)
    made.close()
    made.close()
    given.memory[:4] = b"more"
    assert bytes(span.view) == b"more"
    with pytest.raises(InvalidRequest, match="no longer registered"):
        made.span(0, 4)


@pytest.mark.slow
def test_the_last_use_unmaps_forgets_and_closes(shared):
    gc.collect()  # what earlier tests left
    given = shared()
    files, watches = _open_files(), set(guard()._watched)
    made = region(given)
    view = made.span(0, 4).view[1:]
    made.close()
    assert given.path.name in _mapped()[1]
    del view
    gc.collect()
    assert _mapped()[0] == 1  # the client's own
    assert (_open_files(), set(guard()._watched)) == (files, watches)


def _open_files():
    return len(os.listdir("/proc/self/fd"))


def _mapped():
    maps = Path("/proc/self/maps").read_text()
    return sum("test_inferd_" in line for line in maps.splitlines()), maps
