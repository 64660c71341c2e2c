import pytest

from inferd.core.metadata import SystemRegionStatus
from inferd.errors import (
    AlreadyExists,
    InvalidRequest,
    RegionFailed,
    RegionNotFound,
    Unavailable,
    Unsupported,
)
from inferd.shm.cuda import CudaRegion
from inferd.shm.regions import Regions
from inferd.shm.system import SystemRegion


@pytest.fixture
def regions():
    made = Regions(allowed=True, find_driver=lambda: None)
    yield made
    made.close()


def names(regions):
    return [one.name for one in regions.system_status()]


def test_regions_are_registered_reported_and_unregistered(regions, shared):
    given = shared()
    regions.add(regions.open_system("a", given.key, 0, 64))
    regions.add(regions.open_system("b", given.key, 64, 4032))
    assert regions.system_status() == [
        SystemRegionStatus("a", given.key, 0, 64),
        SystemRegionStatus("b", given.key, 64, 4032),
    ]
    assert regions.system_status("b") == [SystemRegionStatus("b", given.key, 64, 4032)]
    regions.unregister(SystemRegion, "a")
    assert names(regions) == ["b"]
    regions.unregister(SystemRegion)
    assert regions.system_status() == regions.cuda_status() == []


def test_requests_for_the_same_place_share_a_span_until_the_region_is_another(regions, shared):
    given = shared()
    regions.add(regions.open_system("a", given.key, 0, 64))
    span = regions.span("a", 0, 64)
    assert regions.span("a", 0, 64) is span
    assert regions.span("a", 0, 8) is not span
    regions.unregister(SystemRegion, "a")
    regions.add(regions.open_system("a", given.key, 0, 32))
    with pytest.raises(InvalidRequest, match="'a' has 32 bytes"):
        regions.span("a", 0, 64)


def test_what_is_not_there_can_be_unregistered_but_not_reported(regions, shared):
    regions.add(regions.open_system("a", shared().key, 0, 64))
    regions.unregister(SystemRegion, "x")
    regions.unregister(CudaRegion, "a")
    regions.unregister(CudaRegion)
    assert names(regions) == ["a"]
    with pytest.raises(RegionNotFound, match="Unable to find system shared memory region: 'x'"):
        regions.system_status("x")
    with pytest.raises(RegionNotFound, match="Unable to find cuda shared memory region: 'a'"):
        regions.cuda_status("a")


def test_a_name_is_taken_until_it_is_unregistered(regions, shared):
    given = shared()
    regions.add(regions.open_system("a", given.key, 0, 64))
    with pytest.raises(AlreadyExists, match="'a'"):
        regions.add(regions.open_system("a", given.key, 0, 32))
    assert regions.system_status()[0].size_bytes == 64
    regions.unregister(SystemRegion, "a")
    regions.add(regions.open_system("a", given.key, 0, 32))


@pytest.mark.parametrize(
    ("name", "offset", "size", "text"),
    [
        ("ü" * 513, 0, 1, "the name of a shared memory region may have 1024 bytes at most"),
        ("r", -1, 1, "offset of shared memory region 'r' is -1"),
        ("r", 0, 0, "byte_size of shared memory region 'r' is 0"),
        ("r", 0, -1, "byte_size of shared memory region 'r' is -1"),
    ],
)
def test_names_and_ranges_that_cannot_be_are_refused(regions, shared, name, offset, size, text):
    with pytest.raises(InvalidRequest, match=text):
        regions.add(regions.open_system(name, shared().key, offset, size))
    assert names(regions) == []


def test_a_region_without_a_name_is_refused(regions, shared):
    with pytest.raises(RegionFailed, match="needs a name"):
        regions.add(regions.open_system("", shared().key, 0, 1))
    assert names(regions) == []


def test_a_failed_registration_leaves_nothing(regions, shared):
    with pytest.raises(InvalidRequest):
        regions.add(regions.open_system("r", shared(8).key, 0, 9))
    regions.add(regions.open_system("r", shared(8).key, 0, 8))


def test_the_number_of_regions_is_limited(shared):
    regions = Regions(allowed=True, max_regions=2)
    given = shared()
    for name in "ab":
        regions.add(regions.open_system(name, given.key, 0, 1))
    with pytest.raises(Unavailable, match="2 shared memory regions"):
        regions.add(regions.open_system("c", given.key, 0, 1))
    regions.close()


def test_a_system_whose_mappings_cannot_be_guarded_has_no_regions(shared):
    regions = Regions(allowed=True, has_guard=False)
    with pytest.raises(Unsupported, match="64-bit Linux"):
        regions.add(regions.open_system("r", shared().key, 0, 1))


@pytest.mark.parametrize(
    ("offset", "size"),
    [(0, 65), (64, 1), (65, 0), (-1, 2), (4, -1), (2**63, 2**63), (2**64 - 1, 2)],
)
def test_a_span_is_inside_its_region(regions, shared, offset, size):
    regions.add(regions.open_system("r", shared().key, 0, 64))
    what = "Invalid offset for" if offset > 64 else "Invalid offset \\+ byte size for"
    with pytest.raises(InvalidRequest, match=f"{what} shared memory region: 'r' has 64 bytes"):
        regions.span("r", offset, size)
    assert len(regions.span("r", 60, 4).view) == 4
    assert len(regions.span("r", 64, 0).view) == 0


def test_a_region_nobody_registered_is_not_found(regions):
    with pytest.raises(RegionNotFound, match="'nope'"):
        regions.span("nope", 0, 1)


def test_without_permission_nothing_is_registered_or_used(shared):
    regions = Regions(allowed=False)
    for call in (
        lambda: regions.add(regions.open_system("r", shared().key, 0, 1)),
        lambda: regions.add(regions.open_cuda("r", bytes(64), 0, 1)),
        lambda: regions.unregister(SystemRegion),
        lambda: regions.span("r", 0, 1),
    ):
        with pytest.raises(Unsupported, match="--allow-client-shm=true"):
            call()
    assert regions.system_status() == regions.cuda_status() == []


def test_closing_forgets_all(regions, shared):
    given = shared()
    regions.add(regions.open_system("r", given.key, 0, 64))
    regions.close()
    assert regions.system_status() == []
