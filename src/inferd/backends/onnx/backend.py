"""OnnxBackend: runs ONNX files in ONNX Runtime."""

import threading
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from inferd.backends.onnx.guard import guarded
from inferd.backends.onnx.instance import OnnxInstance, failures
from inferd.backends.onnx.library import find_libraries, register, words
from inferd.backends.onnx.loaded import Loaded
from inferd.backends.onnx.settings import (
    Provider,
    Threads,
    onnxruntime,
    providers,
    session_options,
    usual_threads,
)
from inferd.config.model import ModelConfig
from inferd.config.parameter import TABLE
from inferd.core.completing import CompletingBackend
from inferd.core.interfaces import BackendContext, ModelFiles, Placement
from inferd.core.signature import check_config
from inferd.errors import BackendFailed, InvalidConfig

_CPU = Placement("cpu")
_EXTERNAL = "session.model_external_initializers_file_folder_path"


class OnnxBackend(CompletingBackend):
    """Runs ONNX models; the instances of a version on one device share one session."""

    bounded = True
    concurrent = True
    joins = True
    leaves_inputs = True

    def __init__(self, default_max_batch_size: int = 4) -> None:
        super().__init__(default_max_batch_size)
        self._threads = Threads()
        self._loaded: WeakValueDictionary[Any, Loaded] = WeakValueDictionary()
        # Keeps what `complete` loaded for `open`; few, so that an abandoned load holds little.
        self._completed: deque[Loaded] = deque(maxlen=4)
        self._lock = threading.Lock()

    def connect(self, context: BackendContext) -> None:
        """See ConnectedBackend.connect."""
        super().connect(context)
        self._threads = usual_threads(context.settings)

    def complete(self, files: ModelFiles, config: ModelConfig) -> ModelConfig:
        """See Backend.complete; the file is loaded, and kept for the `open` that follows."""
        loaded = self._load(files, config, _CPU)
        completed = self._complete_checked(config, loaded.signature)
        with self._lock:
            self._completed.append(loaded)
        return completed

    def open(self, files: ModelFiles, config: ModelConfig, placement: Placement) -> OnnxInstance:
        """See Backend.open. Raises InvalidConfig, or BackendFailed if the file cannot run."""
        loaded = self._load(files, config, placement)
        check_config(config, loaded.signature)
        with self._lock:
            if loaded in self._completed:
                self._completed.remove(loaded)
        return OnnxInstance(loaded, config, files.version)

    def _load(self, files: ModelFiles, config: ModelConfig, placement: Placement) -> Loaded:
        available = onnxruntime().get_available_providers()
        chosen = providers(config, placement, available)
        parameters = {k: v for k, v in config.parameters.items() if k != TABLE}  # for requests only
        libraries = find_libraries(files, config)
        key = repr(
            (
                self._key(files, config),
                chosen,
                parameters,
                config.optimization,
                _fingerprint(libraries),
            )
        )
        with self._lock:
            loaded = self._loaded.get(key)
        if loaded is None:
            model = self._model(files, config)
            options = session_options(config, self._threads)
            register(options, libraries, files, config)
            loaded = Loaded(_session(files, model, config, chosen, options))
            with self._lock:
                loaded = self._loaded.setdefault(key, loaded)
        return loaded

    def _key(self, files: ModelFiles, config: ModelConfig) -> Any:
        """Return a key that is equal for loads that may share a session."""
        return fingerprint(_model_file(files))

    def _model(self, files: ModelFiles, config: ModelConfig) -> str | bytes:
        """Return the ONNX model: its path, or its bytes if it is rewritten or converted."""
        file = _model_file(files)
        return guarded(file) or str(file)


def _session(
    files: ModelFiles,
    model: str | bytes,
    config: ModelConfig,
    chosen: list[Provider],
    options: Any,
) -> Any:
    if isinstance(model, bytes):
        folder = files.file if files.file.is_dir() else files.file.parent
        options.add_session_config_entry(_EXTERNAL, str(folder))
    try:
        # Without its fallback: a provider's failure must be an error, not printed and replaced.
        return onnxruntime().InferenceSession(model, options, providers=chosen, enable_fallback=0)
    except failures()[1] as error:
        msg = f"model '{config.name}': ONNX Runtime cannot load it: {words(error, files)}"
        raise BackendFailed(msg) from error


def _model_file(files: ModelFiles) -> Path:
    """Return the ONNX file itself: in a folder it is model.onnx, beside its external data."""
    file = files.file
    if file.is_dir():
        candidates = [file / "model.onnx", *sorted(file.glob("*.onnx"))]
        file = next((one for one in candidates if one.is_file()), candidates[0])
    if not file.is_file():
        msg = f"there is no ONNX file '{file.relative_to(files.folder)}' in the model's folder"
        raise InvalidConfig(msg)
    return file


def fingerprint(file: Path) -> list[tuple[str, int, int]]:
    """Return name, mtime and size of every file beside `file`, including external data.

    A model replaced on disk must not get the session of its predecessor.
    """
    return _fingerprint(one for one in sorted(file.parent.iterdir()) if one.is_file())


def _fingerprint(files: Iterable[Path]) -> list[tuple[str, int, int]]:
    found = [(str(one), one.stat()) for one in files]
    return [(name, stat.st_mtime_ns, stat.st_size) for name, stat in found]
