"""The public list: sorted, complete, and documented."""

import inspect

import pytest

import inferd
from inferd.core import interfaces


def test_the_public_names_are_sorted_and_there():
    assert inferd.__all__ == sorted(inferd.__all__)
    assert all(hasattr(inferd, name) for name in inferd.__all__)


def test_nothing_public_is_missing_from_the_list():
    public = {
        name
        for name, value in vars(inferd).items()
        if not name.startswith("_") and not inspect.ismodule(value)
    }
    assert public <= set(inferd.__all__)
    assert "__version__" in inferd.__all__


@pytest.mark.parametrize(
    "plug", [one for one in vars(interfaces).values() if getattr(one, "_is_protocol", False)]
)
def test_every_plug_says_what_it_asks_for(plug):
    methods = [
        one
        for name, one in vars(plug).items()
        if (inspect.isfunction(one) or isinstance(one, property)) and not name.startswith("_")
    ]
    if plug.__module__ == interfaces.__name__:
        assert methods
        assert plug.__doc__
        assert all(method.__doc__ for method in methods)
