"""PytorchBackend: TorchScript, torch.export and, where allowed, AOTInductor through PyTorch."""

from functools import cached_property, partial
from pathlib import Path
from types import ModuleType
from typing import Any

from inferd.backends.pytorch.archive import has_native_code
from inferd.backends.pytorch.compiled import (
    CompiledTorch,
    check_compiled,
    compiled_run,
    load_compiled,
)
from inferd.backends.pytorch.export import Export, export_run, load_export
from inferd.backends.pytorch.interface import Interface, read_interface
from inferd.backends.pytorch.rows.export import verdict_on_export
from inferd.backends.pytorch.rows.script import verdict_on_script
from inferd.backends.pytorch.runtime import device_of, pytorch
from inferd.backends.pytorch.script import (
    Script,
    check_arguments,
    load_script,
    possible_scalars,
)
from inferd.backends.pytorch.script_run import script_run
from inferd.config.model import ModelConfig
from inferd.config.parameter import check_native, is_on
from inferd.config.parameter_names import ALLOW_NATIVE
from inferd.core.arrays import ArrayInstance
from inferd.core.completing import CompletingBackend
from inferd.core.interfaces import ModelFiles, Placement
from inferd.core.offline import OfflineReport
from inferd.core.shared import Shared, fingerprint
from inferd.core.signature import check_config
from inferd.errors import InvalidConfig

_CPU = Placement("cpu")

Program = Script | Export | CompiledTorch
"""A loaded model file."""


class PytorchBackend(CompletingBackend):
    """Runs .pt and .pt2 files. Instances of a version on one device share the loaded model."""

    def __init__(self) -> None:
        super().__init__()
        self._loaded: Shared[Program] = Shared()
        self._last: Program | None = None  # loaded by `complete`, for the `open` that follows

    @cached_property
    def _torch(self) -> ModuleType:
        return pytorch()

    def complete_alone(self, files: ModelFiles, config: ModelConfig) -> ModelConfig | None:
        """See LightBackend: torch.export files have the metadata as JSON."""
        interface = _interface(files, config)
        if interface is None:
            return None
        return self._complete_checked(config, interface.signature(config))

    def read_offline(self, files: ModelFiles, config: ModelConfig) -> OfflineReport:
        """See OfflineBackend.read_offline: of TorchScript only PyTorch can tell anything."""
        interface = _interface(files, config)
        if interface is None:
            return OfflineReport(config, is_complete=False)
        return self.report_of(config, interface.signature(config))

    def complete(self, files: ModelFiles, config: ModelConfig) -> ModelConfig:
        """See Backend.complete. TorchScript has no metadata to complete with."""
        loaded = self._load(files, config, _CPU)
        self._last = loaded
        if isinstance(loaded, Script):
            check_arguments(loaded, config)
            return config
        if isinstance(loaded, CompiledTorch):
            check_compiled(config)
            return config
        return self._complete_checked(config, loaded.interface.signature(config))

    def open(self, files: ModelFiles, config: ModelConfig, placement: Placement) -> ArrayInstance:
        """See Backend.open. Raises InvalidConfig, or BackendFailed if the file cannot run."""
        loaded = self._load(files, config, placement)
        # The instance holds it from now on.
        self._last = None
        if isinstance(loaded, Script):
            check_arguments(loaded, config)
            run, scalars = script_run(loaded, config), possible_scalars(config)
            verdict = verdict_on_script(loaded, config)
            return ArrayInstance(config, files.version, run, scalars=scalars, verdict=verdict)
        if isinstance(loaded, CompiledTorch):
            check_compiled(config)
            return ArrayInstance(config, files.version, compiled_run(loaded, config))
        signature = loaded.interface.signature(config)
        check_config(config, signature)
        run, verdict = export_run(loaded, config), verdict_on_export(loaded)
        scalars = signature.scalars(config)
        return ArrayInstance(config, files.version, run, scalars=scalars, verdict=verdict)

    def _load(self, files: ModelFiles, config: ModelConfig, place: Placement) -> Program:
        device = device_of(self._torch, config, place)
        native = is_on(config, ALLOW_NATIVE)  # models not allowed it must not share
        key = fingerprint([files.file]), str(device), files.version, native
        return self._loaded.get(key, partial(self._read, files.file, config, device))

    def _read(self, file: Path, config: ModelConfig, device: Any) -> Program:
        if not file.is_file():
            msg = f"model '{config.name}': '{file.name}' is no file"
            raise InvalidConfig(msg)
        if file.suffix != ".pt2":
            return load_script(self._torch, file, config, device)
        if has_native_code(file, f"model '{config.name}', '{file.name}'"):
            check_native(config, f"'{file.name}' is compiled code (AOTInductor)")
            check_compiled(config)
            return load_compiled(self._torch, file, config, device)
        return load_export(self._torch, file, config, device)


def _interface(files: ModelFiles, config: ModelConfig) -> Interface | None:
    """Return the interface of a torch.export file, None if only PyTorch can tell it."""
    what = f"model '{config.name}', '{files.file.name}'"
    is_export = files.file.is_file() and files.file.suffix == ".pt2"
    if not is_export or has_native_code(files.file, what):
        return None
    return read_interface(files.file, what)
