from types import SimpleNamespace

import pytest

from inferd.core.request import InferRequest
from inferd.errors import Unavailable
from inferd.forward.owned import OwnedVersions


def version(name, form=b"1", number="1", *, has_instances=True, sequences=()):
    return SimpleNamespace(
        model=name,
        version=number,
        form=form,
        is_leaving=False,
        has_instances=has_instances,
        sequence_count=len(sequences),
        has_sequence=lambda id: id in sequences,
    )


def test_of_two_that_are_alike_the_one_that_serves_is_found():
    """The new one is loaded, then the old one leaves, then it has gone."""
    versions = OwnedVersions()
    request = InferRequest("m", "1")
    old, new, other = version("m"), version("m"), version("m", b"2")
    for one in (other, old, new):
        versions.add(one)
    assert versions.find(request, b"1") is old
    old.is_leaving = True
    assert versions.find(request, b"1") is new
    new.is_leaving = True
    assert versions.find(request, b"1") is new
    versions.remove(new)
    assert versions.find(request, b"1") is old
    versions.remove(old)
    versions.remove(old)
    assert versions.find(request, b"2") is other
    with pytest.raises(Unavailable, match="model 'm' version 1"):
        versions.find(request, b"1")


def test_names_and_numbers_are_told_apart():
    versions = OwnedVersions()
    for name, number in (("m", "1"), ("m", "2"), ("n", "1")):
        versions.add(version(name, number=number))
    assert versions.find(InferRequest("n", "1"), b"1").model == "n"
    assert versions.find(InferRequest("m", "2"), b"1").version == "2"
    with pytest.raises(Unavailable):
        versions.find(InferRequest("n", "2"), b"1")


def test_one_without_instances_is_not_found():
    """This process gets its first instance, and loses it again: each time the version is loaded."""
    versions = OwnedVersions()
    request = InferRequest("m", "1")
    before, during, after = (version("m", has_instances=has) for has in (False, True, False))
    versions.add(before)
    with pytest.raises(Unavailable):
        versions.find(request, b"1")
    versions.add(during)
    assert versions.find(request, b"1") is during
    before.is_leaving = True
    versions.remove(before)
    versions.add(after)
    during.is_leaving = True
    assert versions.find(request, b"1") is during
    versions.remove(during)
    with pytest.raises(Unavailable):
        versions.find(request, b"1")


def test_sequences_are_those_of_all_versions():
    versions = OwnedVersions()
    assert versions.sequence_count == 0
    versions.add(version("m", sequences=[1, "2"]))
    versions.add(version("m", b"2", sequences=[3]))
    versions.add(version("m", number="2", sequences=[4]))
    assert versions.sequence_count == 4
    assert all(versions.has_sequence("m", "1", id) for id in (1, "2", 3))
    assert not any(versions.has_sequence("m", "1", id) for id in (2, 4))
    assert not versions.has_sequence("n", "1", 1)
