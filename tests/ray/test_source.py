import asyncio
import os
import socket
from importlib.util import find_spec
from pathlib import Path

import pytest

from inferd.ray.source import RaySource, place_of
from inferd.ray.status import ReplicaPlace
from inferd.route.place import Place, PlaceState, SourceFailed


async def first(source):
    return await anext(source.follow())


def test_a_place_is_what_fronts_call_one():
    one = ReplicaPlace("g-1", "10.0.0.1", 8000, 8001, ("a", "b"))
    assert place_of(one) == Place("g-1", "10.0.0.1", 8000, 8001, frozenset({"a", "b"}))
    other = place_of(ReplicaPlace("g-2", "h", 80, 80, None, is_draining=True))
    assert other.models is None
    assert other.state is PlaceState.DRAINING
    asleep = place_of(ReplicaPlace("g", "", 0, 0, ("a",), is_asleep=True))
    assert asleep == Place("g", "", 0, 0, frozenset({"a"}), PlaceState.ASLEEP)


@pytest.mark.slow
def test_a_source_without_a_cluster_fails_and_says_why():
    # What follows Ray is a process: python -m inferd.ray.follower.
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))  # it does not listen
        address = f"127.0.0.1:{one.getsockname()[1]}"
        source = RaySource(address, "shop")
        assert source.name == f"deployment shop on Ray at {address}"
        said = "no Ray cluster can be reached at" if find_spec("ray") else "Ray is not installed"
        with pytest.raises(SourceFailed, match=said):
            asyncio.run(first(source))


@pytest.fixture
def stand_in(monkeypatch):
    """Processes that are started find another ray, which needs no cluster."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent / "stand_in"))


@pytest.fixture
def children():
    """children() are the processes that this one has."""
    return lambda: Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()


@pytest.mark.slow
@pytest.mark.usefixtures("stand_in")
def test_each_change_is_yielded_whatever_ray_writes_in_between(children):
    async def two():
        places = RaySource("auto", "shop").follow()
        found = [await anext(places), await anext(places)]
        await places.aclose()
        return found

    before = children()
    first, second = asyncio.run(two())
    assert [one.name for one in first] == ["g-1"]
    assert [(one.name, one.state) for one in second] == [
        ("g-1", PlaceState.READY),
        ("g-2", PlaceState.DRAINING),
    ]
    assert children() == before  # what followed Ray has ended


@pytest.mark.slow
@pytest.mark.usefixtures("stand_in")
def test_an_end_of_what_follows_ray_is_a_failure_with_its_reason(monkeypatch):
    monkeypatch.setenv("STAND_IN_ENDS", "1")

    async def until_the_end():
        return [places async for places in RaySource("auto", "shop").follow()]

    with pytest.raises(SourceFailed, match=r"^Ray: the head is away$"):
        asyncio.run(until_the_end())


@pytest.mark.slow
@pytest.mark.usefixtures("stand_in")
def test_a_deployment_that_is_not_there_is_a_failure():
    with pytest.raises(SourceFailed, match="nothing is deployed under the name 'other'"):
        asyncio.run(first(RaySource("auto", "other")))
