"""HostedBackend: any of our backends, in worker processes or in the server, as each model chooses.

With a process for each instance, a crashing model cannot take the server down, and it runs in
parallel with the server's own Python. In the server (`inferd_process: server`) a request costs
least, and all models of a framework share one import of it.

The worker modules are imported with the first model that runs in a worker.
"""

from collections.abc import Sequence
from importlib.metadata import EntryPoint
from importlib.util import find_spec
from typing import TYPE_CHECKING

from inferd.backends.worker.parameters import check_in_server, runs_in_server
from inferd.config.model import ModelConfig
from inferd.core.interfaces import (
    Backend,
    BackendContext,
    ConnectedBackend,
    Instance,
    LightBackend,
    ModelFiles,
    Placement,
)
from inferd.core.traits import Traits
from inferd.errors import InvalidConfig

if TYPE_CHECKING:
    from inferd.backends.worker.hosted import HostedModels


class HostedBackend:
    """Runs the models of the backend `target` ("module:Class"), which needs `packages`.

    `place` is where a model runs by default: "worker" or "server".
    """

    # An instance in a worker says that it is not bounded.
    traits = Traits(is_bounded=True, is_concurrent=True, joins=True)

    def __init__(self, target: str, packages: Sequence[str], place: str = "worker") -> None:
        for package in packages:
            # Looked for, not imported: the import belongs to the worker.
            if find_spec(package) is None:
                raise ModuleNotFoundError(name=package)
        self._target = target
        self._place = place
        self._here: Backend | None = None
        self._context = BackendContext()

    def connect(self, context: BackendContext) -> None:
        """See ConnectedBackend.connect."""
        self._context = context

    def complete(self, files: ModelFiles, config: ModelConfig) -> ModelConfig:
        """See Backend.complete.

        A worker is asked only if the configuration is incomplete, and the backend no LightBackend
        or cannot fill the gaps as one.
        """
        if not self.is_in_worker(config):
            return self._in_server().complete(files, config)
        if issubclass(self._kind(), LightBackend):  # others would import their framework here
            here = self._in_server()
            found = here.complete_alone(files, config) if isinstance(here, LightBackend) else None
            if found is not None:
                return found
        # Whole already: no process is started just to look.
        if config.input and config.output:
            return config
        return self._in_workers().complete(files, config)

    def open(self, files: ModelFiles, config: ModelConfig, placement: Placement) -> Instance:
        """See Backend.open."""
        if not self.is_in_worker(config):
            check_in_server(config)
            return self._in_server().open(files, config, placement)
        return self._in_workers().open(files, config, placement)

    def convert(self, files: ModelFiles, config: ModelConfig) -> bytes:
        """Return the model converted to ONNX, by a worker. Raises InferdError.

        Raises InvalidConfig if the configuration wants to run it in one, too.
        """
        if not runs_in_server(config, BackendContext(), "server"):
            raise InvalidConfig(
                f"model '{config.name}': converted to ONNX it runs in the server, but a parameter "
                f"of it needs a process of its own: serve what 'inferd convert' writes instead"
            )
        return self._in_workers().convert(files, config)

    def _in_server(self) -> Backend:
        if self._here is None:  # two threads may each create one; the last one stays
            backend = self._kind()()
            if isinstance(backend, ConnectedBackend):
                backend.connect(self._context)
            self._here = backend
        return self._here

    def _in_workers(self) -> "HostedModels":
        from inferd.backends.worker.hosted import HostedModels

        return HostedModels(self._target, self._context)

    def _kind(self) -> type[Backend]:
        kind: type[Backend] = EntryPoint("", self._target, "").load()
        return kind

    def is_in_worker(self, config: ModelConfig) -> bool:
        """Return whether a model runs in worker processes. Raises InvalidConfig."""
        return not runs_in_server(config, self._context, self._place)
