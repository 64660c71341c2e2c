"""A server of the conformance suite's models, and clients of each kind for it."""

import asyncio
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def served():
    from client_serving import serve

    yield from serve("--model-control-mode=explicit", "--load-model=*")


@pytest.fixture(params=["sync", "async"])
def kind(request):
    from blocking import KINDS

    return KINDS[request.param]


@pytest.fixture(params=["http", "grpc"])
def protocol(request):
    return request.param


@pytest.fixture
def client(kind, protocol, served):
    with kind(served.url(protocol), timeout_s=20) as made:
        yield made


@pytest.fixture
def loop():
    made = asyncio.new_event_loop()
    yield made
    made.close()
