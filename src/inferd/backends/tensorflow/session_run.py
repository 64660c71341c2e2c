"""How a request runs through a session: the per-request path."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from inferd.backends.tensorflow.session import LoadedSession, failure
from inferd.config.model import ModelConfig
from inferd.core.arrays import Run
from inferd.tensor.array import Array
from inferd.tensor.dtype import DataType

MAX_CALLABLES = 32
"""How many selections of outputs get their own callable; others compute all outputs."""

_TO_VIEW = frozenset((DataType.BF16, DataType.BYTES))


def session_run(loaded: LoadedSession, config: ModelConfig) -> Run:
    """Return the function that runs one request through `loaded`."""
    tf, known = loaded.tf, loaded.interface
    inputs = [tensor.name for tensor in config.input]
    names = [tensor.name for tensor in config.output]
    halves = frozenset(t.name for t in config.input if t.datatype is DataType.BF16)
    # Results of other datatypes are proper arrays; a single text comes as bytes.
    is_plain = _TO_VIEW.isdisjoint(t.datatype for t in config.output)
    bfloat16 = tf.bfloat16.as_numpy_dtype
    feeds = [known.feeds[name] for name in inputs]
    callables = {tuple(names): _callable(loaded, feeds, [known.fetches[n] for n in names])}

    def run(feed: dict[str, Array], wanted: Sequence[str]) -> Sequence[Array]:
        key = tuple(wanted)
        call = callables.get(key)
        if call is None:
            # Each callable keeps a pruned copy of the graph, and clients
            # choose which outputs they want.
            if len(callables) >= MAX_CALLABLES:
                everything = run(feed, names)
                return [everything[names.index(name)] for name in wanted]
            fetches = [known.fetches[name] for name in wanted]
            # Two threads may both make one; the second simply replaces an equal one.
            call = callables[key] = _callable(loaded, feeds, fetches)
        if halves:
            feed = {name: a.view(bfloat16) if name in halves else a for name, a in feed.items()}
        try:
            arrays: Sequence[Array] = call(*[feed[name] for name in inputs])
        except Exception as error:
            raise failure(tf, config, "run it", error) from error
        if is_plain:
            return arrays
        return [_as_array(result, bfloat16) for result in arrays]

    return run


def _as_array(result: Any, bfloat16: Any) -> Array:
    if isinstance(result, bytes):
        return np.array(result, object)  # of another dtype it would lose NULs at its end
    array = np.asarray(result)
    return array.view(np.uint16) if array.dtype == bfloat16 else array


def _callable(loaded: LoadedSession, feeds: list[str], fetches: list[str]) -> Any:
    # Late, like TensorFlow itself, of which it is a part.
    from tensorflow.core.protobuf import config_pb2

    made = config_pb2.CallableOptions(feed=feeds, fetch=fetches)
    made.run_options.inter_op_thread_pool = -1  # in the caller's thread
    return loaded.session._make_callable_from_options(made)
