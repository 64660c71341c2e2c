"""OnnxBackend: runs ONNX files in ONNX Runtime.

Compiled custom operators of a model are in libraries that its configuration names. They must lie
in the model's folder, which the configuration check enforces: a client that sends a configuration
must not make the server load other files. Triton accepts absolute paths as well.
"""

import threading
from collections import deque
from functools import partial
from pathlib import Path
from typing import Any

from inferd.backends.onnx import settings
from inferd.backends.onnx.doors.guard import MOST, Guarded, guarded
from inferd.backends.onnx.guarded import GuardedInstance, TimedInstance, limit_s
from inferd.backends.onnx.instance import OnnxInstance, error_text, failures
from inferd.backends.onnx.signature import Loaded, declared_signature
from inferd.compiled import override
from inferd.config.model import ModelConfig
from inferd.config.parameter import check_native, whole_number
from inferd.config.parameter_names import MOST_ELEMENTS
from inferd.core.completing import CompletingBackend
from inferd.core.interfaces import BackendContext, Instance, ModelFiles, Placement
from inferd.core.offline import OfflineReport
from inferd.core.shared import Shared, fingerprint
from inferd.core.signature import check_config
from inferd.errors import BackendFailed, InvalidConfig
from inferd.rows.verdict import verdict_on

CPU = Placement("cpu")
_EXTERNAL = "session.model_external_initializers_file_folder_path"


class OnnxBackend(CompletingBackend):
    """Runs ONNX models; the instances of a version on one device share one session."""

    def __init__(self) -> None:
        super().__init__()
        self._threads = settings.Threads()
        self._loaded: Shared[Loaded] = Shared()
        # Keeps what `complete` loaded for `open`; few, so that an abandoned load holds little.
        self._completed: deque[Loaded] = deque(maxlen=4)
        # Models are loaded in several threads, and looking a load up and removing it are two steps.
        self._lock = threading.Lock()

    @override
    def connect(self, context: BackendContext) -> None:
        super().connect(context)
        self._threads = settings.usual_threads(context.settings)

    def complete(self, files: ModelFiles, config: ModelConfig) -> ModelConfig:
        """See Backend.complete; the file is loaded, and kept for the `open` that follows."""
        loaded = self._load(files, config, CPU)
        completed = self._complete_checked(config, loaded.signature)
        with self._lock:
            self._completed.append(loaded)
        return completed

    def read_offline(self, files: ModelFiles, config: ModelConfig) -> OfflineReport:
        """See OfflineBackend.read_offline: the file is read without ONNX Runtime."""
        model = self._model(files, config).model
        if model is None:
            name = _model_file(files).name
            raise InvalidConfig(f"model '{config.name}': '{name}' is no ONNX model, or is cut off")
        find_libraries(files, config)
        settings.session_settings(config, self._threads)
        settings.check_accelerators(config)
        signature = declared_signature(model)
        if signature is None:
            return OfflineReport(config, is_complete=False)
        return self.report_of(config, signature)

    def open(self, files: ModelFiles, config: ModelConfig, placement: Placement) -> Instance:
        """See Backend.open. Raises InvalidConfig, or BackendFailed if the file cannot run."""
        loaded = self._load(files, config, placement)
        # Again, after `complete`: the configuration may come from a client, or have changed since.
        check_config(config, loaded.signature)
        with self._lock:
            # From now on the instance keeps it alive; a load that was
            # given up leaves it to the maxlen.
            if loaded in self._completed:
                self._completed.remove(loaded)
        plain = OnnxInstance(loaded, config, files.version)
        limit = limit_s(config)
        is_limited = limit and not loaded.is_bounded
        instance = TimedInstance(plain, limit, config.name) if is_limited else plain
        # The inputs of a batch have one first dim.
        is_batched = config.max_batch_size > 0
        checks = [one for one in loaded.checks if not (is_batched and one.is_of_batches)]
        if checks:
            return GuardedInstance(instance, checks, config.name)
        return instance

    def _load(
        self,
        files: ModelFiles,
        config: ModelConfig,
        placement: Placement,
        loaded: Loaded | None = None,
    ) -> Loaded:
        """Return the model, which is `loaded` if the caller has it already."""
        available = settings.onnxruntime().get_available_providers()
        chosen = settings.providers(config, placement, available)
        libraries = find_libraries(files, config)
        own = self._key(files, config)
        # All that a session is made from. Anything that is forgotten here would let a model load
        # with the session of another configuration.
        key = own, chosen, config.parameters, config.optimization, fingerprint(libraries)
        read = partial(self._read, files, config, chosen, libraries)
        return self._loaded.get(key, (lambda: loaded) if loaded is not None else read)

    def _read(
        self,
        files: ModelFiles,
        config: ModelConfig,
        chosen: list[settings.Provider],
        libraries: list[Path],
    ) -> Loaded:
        found = self._model(files, config)
        # By its path if nothing was rewritten: ONNX Runtime then maps the file,
        # and finds weights that lie beside it.
        model = found.content or str(_model_file(files))
        options = settings.session_options(config, self._threads)
        register(options, libraries, files, config)
        # A model from memory has no folder of its own to look for external weights in.
        if isinstance(model, bytes):
            folder = files.file if files.file.is_dir() else files.file.parent
            options.add_session_config_entry(_EXTERNAL, str(folder))
        open_session = settings.onnxruntime().InferenceSession
        try:
            # Without its fallback: a provider's failure must be an error, not printed and replaced.
            session = open_session(model, options, providers=chosen, enable_fallback=0)
        except failures()[1] as error:
            msg = f"model '{config.name}': ONNX Runtime cannot load it: {words(error, files)}"
            raise BackendFailed(msg) from error
        read = found.model
        scalars = None if read is None else read.graph.scalars
        verdict = verdict_on(read)
        return Loaded(session, found.checks, verdict, scalars, is_bounded=found.is_bounded)

    def _key(self, files: ModelFiles, config: ModelConfig) -> Any:
        """Return a key that is equal for loads that may share a session."""
        return fingerprint_beside(_model_file(files))

    def _model(self, files: ModelFiles, config: ModelConfig) -> Guarded:
        """Return the ONNX model with its doors shut."""
        most = whole_number(config, MOST_ELEMENTS, MOST, 1, 2**63 - 1)
        return guarded(_model_file(files), most)


def _model_file(files: ModelFiles) -> Path:
    """Return the ONNX file itself: in a folder it is model.onnx, beside its external data."""
    file = files.file
    if file.is_dir():
        # Sorted, because glob's order is the file system's, and every process must take the same.
        candidates = [file / "model.onnx", *sorted(file.glob("*.onnx"))]
        file = next((one for one in candidates if one.is_file()), candidates[0])
    if not file.is_file():
        msg = f"there is no ONNX file '{file.relative_to(files.folder)}' in the model's folder"
        raise InvalidConfig(msg)
    return file


def fingerprint_beside(file: Path) -> list[tuple[str, int, int]]:
    """Return the fingerprint of every file beside `file`, including external data."""
    # Which of them hold external weights only the graph tells, so a change of any counts.
    return fingerprint(one for one in sorted(file.parent.iterdir()) if one.is_file())


def find_libraries(files: ModelFiles, config: ModelConfig) -> list[Path]:
    """Return the libraries of a model. Raises InvalidConfig if one is missing.

    Raises Unsupported unless the configuration allows compiled code.
    """
    found = []
    for name in config.model_operations:
        file = files.folder / name
        if not file.is_file():
            raise InvalidConfig(
                f"model '{config.name}': there is no file '{name}' in the model's folder, which "
                f"model_operations names as a library of operators"
            )
        check_native(config, f"the library of operators '{name}' is compiled code")
        found.append(file)
    return found


def register(options: Any, libraries: list[Path], files: ModelFiles, config: ModelConfig) -> None:
    """Register the operators of `libraries` in session `options`. Raises BackendFailed."""
    for file in libraries:
        try:
            # dlopen looks a name without a slash up in the system's folders, not in ours.
            options.register_custom_ops_library(str(file.absolute()))
        except failures()[1] as error:
            raise BackendFailed(
                f"model '{config.name}': ONNX Runtime cannot load the library of operators "
                f"'{file.relative_to(files.folder)}': {words(error, files)}"
            ) from error


def words(error: Exception, files: ModelFiles) -> str:
    """Return ONNX Runtime's error text, without the path to the model's folder."""
    text = error_text(error)
    # ONNX Runtime tells the path as it was given, made absolute, or behind symbolic links.
    # Clients read these texts, and where the server keeps its models is none of their business.
    for folder in (files.folder, files.folder.absolute(), files.folder.resolve()):
        text = text.replace(f"{folder}/", "")
    return text
