import asyncio
import socket
from importlib.util import find_spec

import pytest

from inferd.ray.source import RaySource, place_of
from inferd.ray.status import ReplicaPlace
from inferd.route.place import Place, PlaceState, SourceFailed


def test_a_place_is_what_fronts_call_one():
    one = ReplicaPlace("g-1", "10.0.0.1", 8000, 8001, ("a", "b"))
    assert place_of(one) == Place("g-1", "10.0.0.1", 8000, 8001, frozenset({"a", "b"}))
    other = place_of(ReplicaPlace("g-2", "h", 80, 80, None, is_draining=True))
    assert other.models is None
    assert other.state is PlaceState.DRAINING


@pytest.mark.slow
def test_a_source_without_a_cluster_fails_and_says_why():
    async def first(source):
        return await anext(source.follow())

    # What follows Ray is a process: python -m inferd.ray.follower.
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))  # it does not listen
        address = f"127.0.0.1:{one.getsockname()[1]}"
        source = RaySource(address, "shop")
        assert source.name == f"deployment shop on Ray at {address}"
        said = "no Ray cluster can be reached at" if find_spec("ray") else "Ray is not installed"
        with pytest.raises(SourceFailed, match=said):
            asyncio.run(first(source))
