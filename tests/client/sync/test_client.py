"""Client, RequestStream and SharedMemory have what those of asyncio have, without coroutines."""

import inspect
import re

import pytest

from inferd.client.aio.client import AsyncClient, AsyncRequestStream, AsyncSharedMemory
from inferd.client.sync.client import Client, RequestStream, SharedMemory

pairs = pytest.mark.parametrize(
    ("kind", "asynchronous"),
    [
        (Client, AsyncClient),
        (RequestStream, AsyncRequestStream),
        (SharedMemory, AsyncSharedMemory),
    ],
)


def calls_of(kind):
    """Return what a class has for its users, by the names without asyncio."""
    found = {re.sub("^__a(enter|exit|iter|next)__$", r"__\1__", name): name for name in vars(kind)}
    wanted = re.compile("[a-z].*|__(enter|exit|iter|next)__")
    return {mine: vars(kind)[name] for mine, name in found.items() if wanted.fullmatch(mine)}


@pairs
def test_both_have_the_same_calls(kind, asynchronous):
    assert calls_of(kind).keys() == calls_of(asynchronous).keys()


@pairs
def test_what_they_take_and_what_is_said_of_them_is_the_same(kind, asynchronous):
    for name, theirs in calls_of(asynchronous).items():
        mine = calls_of(kind)[name]
        assert inspect.getdoc(mine) == inspect.getdoc(theirs), name
        # Those of __exit__ are called by position.
        if not isinstance(mine, property) and name != "__exit__":
            signatures = [inspect.signature(one).parameters for one in (mine, theirs)]
            assert signatures[0] == signatures[1], name


@pairs
def test_nothing_of_a_client_for_threads_is_a_coroutine(kind, asynchronous):
    functions = [one for one in calls_of(kind).values() if inspect.isfunction(one)]
    assert functions
    assert not any(map(inspect.iscoroutinefunction, functions))
    assert not any(map(inspect.isasyncgenfunction, functions))
