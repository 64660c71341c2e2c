"""Engines whose models come and go, and what their index says."""

import asyncio
import contextlib
import functools
import json
import os

from patience import PATIENCE_S

from inferd.core.metadata import ModelState
from inferd.engine.engine import Engine
from inferd.engine.loading.load import LoadOptions

READY, UNAVAILABLE = ModelState.READY, ModelState.UNAVAILABLE


def identity(dims=1, more=""):
    """Return a config whose model gives back FP32 [dims]."""
    return (
        'backend: "identity"\n'
        f'input {{ name: "INPUT0" data_type: TYPE_FP32 dims: {dims} }}\n'
        f'output {{ name: "OUTPUT0" data_type: TYPE_FP32 dims: {dims} }}\n{more}'
    )


IN_THREADS = 'backend: "theirs"\nparameters { key: "unbounded" value: { string_value: "1" } }'
ALL_VERSIONS = "version_policy { all {} }"
BROKEN = 'backend: "faulty"\nparameters { key: "fault" value: { string_value: "load" } }'
SENT = json.dumps(
    {
        "backend": "identity",
        "input": [{"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [3]}],
        "output": [{"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [3]}],
    }
)


def write(path, text=""):
    """Write a file so that it looks other than before, however quick the test is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    before = path.stat().st_mtime_ns if path.exists() else 0
    path.write_text(text)
    os.utime(path, ns=(before + 10**9, before + 10**9))


@contextlib.asynccontextmanager
async def engine_on(*roots, mode="explicit", **options):
    """An engine that has loaded what its mode says of `roots`."""
    options = LoadOptions(model_control_mode=mode, repository_poll_secs=0, **options)
    engine = Engine(load_options=options)
    try:
        await engine.load_all(roots)
        yield engine
    finally:
        await engine.close(PATIENCE_S)


def run(test):
    """Return `test`, a coroutine function, as one pytest can run; fixtures come as arguments."""

    @functools.wraps(test)
    def runner(*args, **kwargs):
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), PATIENCE_S))

    return runner


def states(engine):
    """Return (name, version) -> state, or (state, reason) where there is a reason."""
    return {
        (row.name, row.version): (row.state, row.reason) if row.reason else row.state
        for row in engine.catalog.index()
    }


UNLOADED = (UNAVAILABLE, "unloaded")
