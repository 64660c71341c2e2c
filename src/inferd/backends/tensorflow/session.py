"""Session: a graph in TensorFlow, run by callables that cost a tenth of a Session.run.

TensorFlow ends the process if such a callable is fed an array of another type than its
placeholder's, and ignores shapes. So everything fed has been checked: the engine checks types and
shapes of a request against the configuration, and the configuration is checked against the file.
"""

import os
from pathlib import Path
from types import ModuleType
from typing import Any

from inferd.backends.tensorflow.files import ServedSignature
from inferd.backends.tensorflow.graph import DATATYPES, has_loops
from inferd.config.model import ModelConfig
from inferd.config.parameter import whole_number
from inferd.errors import BackendFailed, InferdError, InvalidConfig, InvalidRequest, foreign_text


def tensorflow() -> ModuleType:
    """Return tensorflow, imported on first use. Raises ModuleNotFoundError without it."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # otherwise it prints a banner on stderr
    import tensorflow  # seconds and hundreds of megabytes, so only when a model needs it

    module: ModuleType = tensorflow
    return module


def open_session(tf: ModuleType, config: ModelConfig, known: ServedSignature) -> Any:
    """Return a v1 Session with a graph of its own. Raises InvalidConfig for a bad parameter."""
    options = tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=whole_number(config, "TF_NUM_INTRA_THREADS", 1, 0, 1024),
        inter_op_parallelism_threads=whole_number(config, "TF_NUM_INTER_THREADS", 1, 0, 1024),
        # Otherwise the first session of the process decides the number of threads for all.
        use_per_session_threads=True,
    )
    # This executor runs a tiny graph in 3 us, the usual one in 20;
    # it refuses loops of TensorFlow 1.
    if not has_loops(known.nodes):
        options.experimental.executor_type = "SINGLE_THREADED_EXECUTOR"
    return tf.compat.v1.Session(graph=tf.Graph(), config=options)


class LoadedSession:
    """A model in a session; alive as long as a present or coming instance needs it."""

    def __init__(self, tf: ModuleType, session: Any, interface: ServedSignature) -> None:
        self.tf = tf
        self.session = session
        self.interface = interface


def load_session(file: Path, config: ModelConfig, known: ServedSignature) -> LoadedSession:
    """Return the SavedModel folder or GraphDef `file`, loaded. Raises BackendFailed."""
    tf = tensorflow()
    content = b"" if file.is_dir() else file.read_bytes()
    session = open_session(tf, config, known)
    try:
        with session.graph.as_default():
            if file.is_dir():
                tf.compat.v1.saved_model.load(session, list(known.tags), str(file))
            else:
                tf.import_graph_def(tf.compat.v1.GraphDef.FromString(content), name="")
        return _checked(LoadedSession(tf, session, known), config)
    except Exception as error:
        # A session frees its memory and threads only when it is closed.
        session.close()
        if isinstance(error, InferdError):
            raise
        raise failure(tf, config, "load it", error) from error


def _checked(loaded: LoadedSession, config: ModelConfig) -> LoadedSession:
    """Check every feed and fetch against the graph itself. Raises InvalidConfig."""
    graph, known = loaded.session.graph, loaded.interface
    for names, declared in (
        (known.feeds, known.signature.inputs),
        (known.fetches, known.signature.outputs),
    ):
        for name, tensor in names.items():
            # base_dtype: a variable of version 1 is a reference, with a dtype of its own.
            dtype = graph.get_tensor_by_name(tensor).dtype.base_dtype
            expected = declared[name].datatype
            if expected is None or DATATYPES.get(dtype.as_datatype_enum) is not expected:
                raise InvalidConfig(
                    f"model '{config.name}': tensor '{name}' is {dtype.name} in the graph, not "
                    f"{expected.value if expected else declared[name].kind}"
                )
    return loaded


def failure(tf: ModuleType, config: ModelConfig, doing: str, error: BaseException) -> InferdError:
    """Return TensorFlow's `error` for the client: the client's own fault, or the model's."""
    # The lines after the first quote the graph, with the paths of whoever built it.
    text = str(getattr(error, "message", error)).partition("\n")[0]
    is_fault = isinstance(error, tf.errors.InvalidArgumentError) and doing == "run it"
    kind = InvalidRequest if is_fault else BackendFailed
    reason_text = foreign_text(RuntimeError(text)).removeprefix("RuntimeError: ")
    failed = kind(f"model '{config.name}': TensorFlow cannot {doing}: {reason_text}")
    failed.__cause__ = error  # for the log; compiled, `raise ... from` would not set it
    return failed
