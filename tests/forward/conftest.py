"""Several engines on one event loop that are the processes of one server, and their models."""

import asyncio
import sys
import time
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import pytest
from fields import with_fields

from inferd.core.processes import Processes
from inferd.core.request import InferRequest, Sequence
from inferd.engine.engine import Engine
from inferd.engine.loading.load import LoadOptions
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor

sys.path.insert(0, str(Path(__file__).parent))

PATIENCE_S = 60


class Together:
    """Engines by number. Each listens on a socket of its own, which all know."""

    def __init__(self, folder, count, **options):
        self.paths = {number: str(folder / "sockets" / f"{number}") for number in range(count)}
        self.processes = [Processes(number, count) for number in range(count)]
        self.engines = [
            Engine(processes=one, load_options=LoadOptions(**options)) for one in self.processes
        ]

    async def begin(self, root):
        """Load the models, and let the processes know each other."""
        for number, engine in enumerate(self.engines):
            await engine.load_all([root])
            await engine.exchange.open(self.paths[number])
        self.tell(*self.paths)

    def tell(self, *numbers):
        """Tell all processes that those of `numbers` are ready."""
        for one in self.processes:
            one.update({number: self.paths[number] for number in numbers})

    def scheduler(self, number, model, version="1"):
        """Return the scheduler of a model's version in process `number`."""
        return self.engines[number].find(model, version).scheduler

    def owner(self, model):
        """Return the number of the process that has the model's only instances."""
        [number] = [n for n, count in enumerate(self.instance_counts(model)) if count]
        return number

    def other(self, model):
        """Return the number of a process that has no instance of the model."""
        return (self.owner(model) + 1) % len(self.engines)

    def instance_counts(self, model):
        return [len(e.find(model, "").instances.places) for e in self.engines]

    def counted(self, model):
        """Return the successes, failures and executions of a model in each process."""
        rows = [engine.whole.statistics(model)[0] for engine in self.engines]
        return [
            (row.inference_stats.success.count, row.inference_stats.fail.count, row.execution_count)
            for row in rows
        ]

    async def close(self):
        for engine in self.engines:
            engine.exchange.stop()  # none sends to those that close: so they need not linger
        await asyncio.gather(*(engine.close(PATIENCE_S) for engine in self.engines))


@pytest.fixture
def together(tmp_path):
    """together(count, name=(config, model.py or None), ...) is a context: engines that serve."""
    root = tmp_path / "models"

    @asynccontextmanager
    async def serve(count, options=None, **models):
        for name, (config, source) in models.items():
            folder = root / name / "1"
            folder.mkdir(parents=True, exist_ok=True)
            (root / name / "config.pbtxt").write_text(config)
            if source is not None:
                (folder / "model.py").write_text(source)
        found = Together(tmp_path, count, **(options or {}))
        found.root = root
        try:
            await found.begin(root)
            yield found
        finally:
            await found.close()

    return serve


@pytest.fixture
def ask():
    """ask(model, NAME=array, sequence=...) is a request; integers are INT32."""

    def make(model, sequence=None, **inputs):
        tensors = [
            Tensor.from_numpy(name, np.asarray(values, np.int32), DataType.INT32)
            for name, values in inputs.items()
        ]
        made = sequence and Sequence(*sequence)
        return with_fields(InferRequest(model, "", "an id", tensors), sequence=made)

    return make


@pytest.fixture
def until():
    """`await until(function)` waits until it is true, and fails when that takes too long."""

    async def wait(is_so):
        deadline_s = time.monotonic() + PATIENCE_S
        while not (found := is_so()):
            assert time.monotonic() < deadline_s, "it never came true"
            await asyncio.sleep(0.001)
        return found

    return wait
