"""Session: a graph in TensorFlow, run by callables that cost a tenth of a Session.run.

TensorFlow ends the process when such a callable is fed an array of another type than its
placeholder, and looks at no shape. So nothing is fed that has not been checked: types and shapes of
a request against the configuration, by the engine, and the configuration against the file.
"""

import os
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

from inferd.backends.tensorflow.files import Interface
from inferd.backends.tensorflow.graph import has_loops
from inferd.config.model import ModelConfig
from inferd.config.parameter import whole_number
from inferd.core.arrays import Array, Run
from inferd.errors import BackendFailed, InferdError, InvalidConfig, InvalidRequest, foreign_text
from inferd.tensor.dtype import DataType

MAX_CALLABLES = 32
"""So many different choices of outputs get a callable of their own; others compute all of them."""

_TO_VIEW = frozenset((DataType.BF16, DataType.BYTES))


def tensorflow() -> ModuleType:
    """Return tensorflow, imported now if it was not. Raises ModuleNotFoundError without it."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # else it greets on stderr
    import tensorflow  # seconds and hundreds of megabytes, so only when a model needs it

    module: ModuleType = tensorflow
    return module


def open_session(tf: ModuleType, config: ModelConfig, known: Interface) -> Any:
    """Return a v1 Session with a graph of its own. Raises InvalidConfig for a bad parameter."""
    options = tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=whole_number(config, "TF_NUM_INTRA_THREADS", 1, 0, 1024),
        inter_op_parallelism_threads=whole_number(config, "TF_NUM_INTER_THREADS", 1, 0, 1024),
        use_per_session_threads=True,
    )
    if not has_loops(known.nodes):
        options.experimental.executor_type = "SINGLE_THREADED_EXECUTOR"
    return tf.compat.v1.Session(graph=tf.Graph(), config=options)


class Loaded:
    """A model in a session; alive as long as an instance, or a coming one, needs it."""

    def __init__(self, tf: ModuleType, session: Any, interface: Interface) -> None:
        self.tf = tf
        self.session = session
        self.interface = interface


def load_saved_model(tf: ModuleType, folder: str, config: ModelConfig, known: Interface) -> Loaded:
    """Return the SavedModel in `folder`, loaded. Raises BackendFailed."""
    session = open_session(tf, config, known)
    try:
        with session.graph.as_default():
            tf.compat.v1.saved_model.load(session, list(known.tags), folder)
        return _checked(Loaded(tf, session, known), config)
    except InferdError:
        session.close()
        raise
    except Exception as error:
        session.close()
        raise failure(tf, config, "load it", error) from error


def load_graph(tf: ModuleType, content: bytes, config: ModelConfig, known: Interface) -> Loaded:
    """Return the GraphDef `content`, loaded. Raises BackendFailed."""
    session = open_session(tf, config, known)
    try:
        with session.graph.as_default():
            graph_def = tf.compat.v1.GraphDef.FromString(content)
            tf.import_graph_def(graph_def, name="")
        return _checked(Loaded(tf, session, known), config)
    except InferdError:
        session.close()
        raise
    except Exception as error:
        session.close()
        raise failure(tf, config, "load it", error) from error


def session_run(loaded: Loaded, config: ModelConfig) -> Run:
    """Return how one request runs through `loaded`."""
    tf, known = loaded.tf, loaded.interface
    inputs = [tensor.name for tensor in config.input]
    names = [tensor.name for tensor in config.output]
    halves = frozenset(t.name for t in config.input if t.datatype is DataType.BF16)
    # Of these the result is an array as it should be; a text alone is given as bytes.
    is_plain = _TO_VIEW.isdisjoint(t.datatype for t in config.output)
    bfloat16 = tf.bfloat16.as_numpy_dtype
    feeds = [known.feeds[name] for name in inputs]
    callables = {tuple(names): _callable(loaded, feeds, [known.fetches[n] for n in names])}

    def run(feed: dict[str, Array], wanted: Sequence[str]) -> Sequence[Array]:
        key = tuple(wanted)
        call = callables.get(key)
        if call is None:
            if len(callables) >= MAX_CALLABLES:
                everything = run(feed, names)
                return [everything[names.index(name)] for name in wanted]
            fetches = [known.fetches[name] for name in wanted]
            call = callables[key] = _callable(loaded, feeds, fetches)
        if halves:
            feed = {name: a.view(bfloat16) if name in halves else a for name, a in feed.items()}
        try:
            arrays: Sequence[Array] = call(*[feed[name] for name in inputs])
        except Exception as error:
            raise failure(tf, config, "run it", error) from error
        if is_plain:
            return arrays
        return [
            np.asarray(array).view(np.uint16) if array.dtype == bfloat16 else np.asarray(array)
            for array in arrays
        ]

    return run


def _callable(loaded: Loaded, feeds: list[str], fetches: list[str]) -> Any:
    from tensorflow.core.protobuf import config_pb2

    made = config_pb2.CallableOptions(feed=feeds, fetch=fetches)
    made.run_options.inter_op_thread_pool = -1  # in the caller's thread
    return loaded.session._make_callable_from_options(made)


def _checked(loaded: Loaded, config: ModelConfig) -> Loaded:
    """Check every feed and fetch against the graph itself. Raises InvalidConfig."""
    graph, known = loaded.session.graph, loaded.interface
    for names, declared in (
        (known.feeds, known.signature.inputs),
        (known.fetches, known.signature.outputs),
    ):
        for name, tensor in names.items():
            dtype = graph.get_tensor_by_name(tensor).dtype.base_dtype
            expected = declared[name].datatype
            if expected is None or dtype != _dtype(loaded.tf, expected):
                msg = (
                    f"model '{config.name}': tensor '{name}' is {dtype.name} in the graph, not "
                    f"{expected.value if expected else declared[name].kind}"
                )
                raise InvalidConfig(msg)
    return loaded


def _dtype(tf: ModuleType, datatype: DataType) -> Any:
    if datatype is DataType.BYTES:
        return tf.string
    if datatype is DataType.BF16:
        return tf.bfloat16
    return tf.as_dtype(datatype.numpy)


def failure(tf: ModuleType, config: ModelConfig, doing: str, error: BaseException) -> InferdError:
    """Return what the client is told of TensorFlow's `error`: its own fault, or the model's."""
    text = str(getattr(error, "message", error)).partition("\n")[0]
    is_fault = isinstance(error, tf.errors.InvalidArgumentError) and doing == "run it"
    kind = InvalidRequest if is_fault else BackendFailed
    told = foreign_text(RuntimeError(text)).removeprefix("RuntimeError: ")
    failed = kind(f"model '{config.name}': TensorFlow cannot {doing}: {told}")
    failed.__cause__ = error
    return failed
