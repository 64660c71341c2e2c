"""Models whose timing the tests decide, and requests for them."""

import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from inferd.core.request import InferRequest, InferResponse
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor

sys.path.insert(0, str(Path(__file__).parent))

PATIENCE_S = 30


class Clock:
    """Time in nanoseconds that passes when somebody says so."""

    def __init__(self):
        self.now_ns = 0

    def __call__(self):
        return self.now_ns


class Echo:
    """Answers with the inputs; takes `takes_ns` of `clock`, raises or returns `outcome` if set."""

    def __init__(self, clock=None):
        self.clock = clock or Clock()
        self.takes_ns = 0
        self.outcome = None
        self.seen = []
        self.on_loop = []
        self.is_closed = False

    def execute(self, requests):
        self.seen += [request.id for request in requests]
        self.on_loop.append(threading.current_thread() is threading.main_thread())
        self.clock.now_ns += self.takes_ns
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        if self.outcome is not None:
            return self.outcome
        return [InferResponse(r.model, "1", r.id, list(r.inputs)) for r in requests]

    def close(self):
        self.is_closed = True


class Gate(Echo):
    """Answers when `opened` is set, by the test or, unless `is_deaf`, by its close."""

    def __init__(self):
        super().__init__()
        self.started = threading.Event()
        self.opened = threading.Event()
        self.is_deaf = False

    def execute(self, requests):
        self.thread = threading.current_thread()
        self.started.set()
        assert self.opened.wait(PATIENCE_S)
        return super().execute(requests)

    def close(self):
        super().close()
        if not self.is_deaf:
            self.opened.set()


class Counter(Echo):
    """Decoupled: answers 0, 1, 2, ... `count` times, then raises `error` if there is one."""

    def __init__(self, count, error=None):
        super().__init__()
        self.count = count
        self.error = error
        self.given = 0
        self.is_ahead = threading.Event()
        self.has_left = threading.Event()

    def stream(self, request):
        # Kept, so that only an explicit close ends it.
        self.generator = self._generate(request)
        return self.generator

    def _generate(self, request):
        try:
            for number in range(self.count):
                self.given += 1
                if self.given > 10:
                    self.is_ahead.set()
                data = np.array([number], np.int32)
                output = Tensor.from_numpy("N", data, DataType.INT32)
                yield InferResponse(request.model, "1", request.id, [output], final=False)
            if self.error is not None:
                raise self.error
        finally:
            self.has_left.set()


def _request(id="", elements=1):
    shape = (elements,) if isinstance(elements, int) else elements
    return InferRequest("m", id=id, inputs=[Tensor("A", DataType.INT8, shape, b"\0")])


@pytest.fixture
def request_of():
    """request_of(id, elements) makes a request with one input of that many elements, or shape."""
    return _request


@pytest.fixture
def clock():
    """A clock that stands still."""
    return Clock()


@pytest.fixture
def echo(clock):
    """An instance that answers at once, in the time of `clock`."""
    return Echo(clock)


@pytest.fixture
def gate():
    """An instance that hangs until its gate is opened, or it is closed."""
    return Gate()


@pytest.fixture
def counter():
    """counter(count, error) makes a decoupled instance."""
    return Counter
