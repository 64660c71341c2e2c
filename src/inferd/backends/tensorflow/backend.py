"""TensorflowBackend: runs SavedModel folders and GraphDef files in TensorFlow."""

from functools import partial
from pathlib import Path

from inferd.backends.tensorflow.files import ServedSignature, read_graph, read_saved_model
from inferd.backends.tensorflow.graph import reaches_outside
from inferd.backends.tensorflow.session import LoadedSession, load_session
from inferd.backends.tensorflow.session_run import session_run
from inferd.config.model import ModelConfig
from inferd.core.arrays import ArrayInstance
from inferd.core.completing import CompletingBackend
from inferd.core.interfaces import ModelFiles, Placement
from inferd.core.offline import OfflineReport
from inferd.core.shared import Shared, fingerprint
from inferd.core.signature import check_config
from inferd.errors import InvalidConfig


class TensorflowBackend(CompletingBackend):
    """Runs TensorFlow's two formats. Instances of a version share one session.

    TensorFlow is imported when the first model opens.
    """

    def __init__(self) -> None:
        super().__init__()
        self._loaded: Shared[LoadedSession] = Shared(one_by_one=True)

    def complete(self, files: ModelFiles, config: ModelConfig) -> ModelConfig:
        """See Backend.complete. Loads nothing."""
        return self._complete_checked(config, _interface(files, config).signature)

    complete_alone = complete
    """See LightBackend: TensorFlow itself is not needed."""

    def read_offline(self, files: ModelFiles, config: ModelConfig) -> OfflineReport:
        """See OfflineBackend.read_offline."""
        return self.report_of(config, _interface(files, config).signature)

    def open(self, files: ModelFiles, config: ModelConfig, placement: Placement) -> ArrayInstance:
        """See Backend.open. Raises InvalidConfig, or BackendFailed if it cannot be loaded."""
        del placement  # TensorFlow places operations itself
        # Again, as the files may have changed since `complete`.
        known = _interface(files, config)
        check_config(config, known.signature)
        _check_given(config, known)
        key = _fingerprint(files.file), config.parameters, known.fetches
        loaded = self._loaded.get(key, partial(load_session, files.file, config, known))
        run = session_run(loaded, config)
        scalars = known.signature.scalars(config)
        return ArrayInstance(config, files.version, run, scalars=scalars)


def _fingerprint(file: Path) -> list[tuple[str, int, int]]:
    """Return name, mtime and size of the model's files, which tell a replaced model apart."""
    parts = sorted(file.rglob("*")) if file.is_dir() else [file]
    return fingerprint(one for one in parts if one.is_file())


def _interface(files: ModelFiles, config: ModelConfig) -> ServedSignature:
    """Return the model's interface. Raises InvalidConfig, also if the model is hostile."""
    what = f"model '{config.name}', '{files.file.name}'"
    if files.file.is_dir():
        known = read_saved_model(files.file, config, what)
    else:
        known = read_graph(files.file, config, what)
    if (node := reaches_outside(known.nodes)) is not None:
        msg = f"{what}: node '{node.name}' is a {node.op}, which reaches out of the model"
        raise InvalidConfig(msg)
    return known


def _check_given(config: ModelConfig, known: ServedSignature) -> None:
    """Check that every placeholder is fed: an unfed one may crash the process."""
    given = {tensor.name for tensor in config.input if not tensor.optional}
    if missing := [name for name in known.feeds if name not in given]:
        msg = f"model '{config.name}': input '{missing[0]}' has to be given with every request"
        raise InvalidConfig(msg)
