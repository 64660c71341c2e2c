"""Where the servers are that run.py has started, for the tests of any client."""

import asyncio
import inspect
import json
import os

import pytest


class Address:
    """One server: `url`, `grpc` (host and port), `metrics` (URL), `ca` (who vouches for it)."""

    def __init__(self, url, grpc, metrics=None, ca=None):
        self.url, self.grpc, self.metrics, self.ca = url, grpc, metrics, ca


ADDRESSES = {name: Address(**found) for name, found in json.loads(os.environ["SERVERS"]).items()}


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """Run tests that are coroutines."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.fixture(scope="session")
def addresses():
    """Each server by its name."""
    return ADDRESSES


@pytest.fixture
def two_ports():
    """The server with a port for HTTP and one for gRPC."""
    return ADDRESSES["two_ports"]


@pytest.fixture
def tls():
    """The server with one port, over TLS."""
    return ADDRESSES["tls"]


@pytest.fixture(params=ADDRESSES)
def anywhere(request):
    """Each server in turn."""
    return ADDRESSES[request.param]
