"""PytorchBackend: TorchScript, torch.export and, where allowed, AOTInductor through PyTorch.

An AOTInductor package (.pt2) is a shared library with almost no metadata. It has no names,
datatypes or shapes, and its code checks none: a tensor other than what it was compiled for is read
out of bounds. So inputs and outputs have to be listed, in order, and it is loaded only if the
model's configuration allows native code.
"""

from collections.abc import Sequence
from functools import cached_property, partial
from pathlib import Path
from types import ModuleType
from typing import Any

from inferd.backends.pytorch.archive import has_native_code
from inferd.backends.pytorch.export import Export, export_run, load_export
from inferd.backends.pytorch.interface import Interface, read_interface
from inferd.backends.pytorch.naming import outputs_in_order
from inferd.backends.pytorch.rows.verdict import verdict_on_export, verdict_on_script
from inferd.backends.pytorch.runtime import (
    Context,
    device_of,
    failure,
    pytorch,
    to_array,
    to_tensor,
)
from inferd.backends.pytorch.script import (
    Script,
    check_arguments,
    check_listed,
    load_script,
    possible_scalars,
)
from inferd.backends.pytorch.script_run import script_run
from inferd.config.model import ModelConfig, ModelInput, ModelOutput
from inferd.config.parameter import check_native, is_on
from inferd.config.parameter_names import ALLOW_NATIVE
from inferd.core.arrays import ArrayInstance, Run
from inferd.core.completing import CompletingBackend
from inferd.core.interfaces import ModelFiles, Placement
from inferd.core.offline import OfflineReport
from inferd.core.shared import Shared, fingerprint
from inferd.core.signature import check_config
from inferd.errors import BackendFailed, InvalidConfig
from inferd.tensor.array import Array
from inferd.tensor.dtype import DataType


class CompiledTorch:
    """A loaded library."""

    def __init__(self, torch: ModuleType, call: Any, device: Any) -> None:
        self.torch = torch
        self.call = call
        self.device = device


def load_compiled(
    torch: ModuleType, file: Path, config: ModelConfig, device: object
) -> CompiledTorch:
    """Return the package in `file`. Raises BackendFailed if torch refuses it."""
    # Late: the compiler's package takes much longer to import than torch itself.
    from torch._inductor import aoti_load_package

    try:
        return CompiledTorch(torch, aoti_load_package(str(file)), device)
    except Exception as error:
        raise failure(config, "load it", error) from error


def check_compiled(config: ModelConfig) -> None:
    """Check that `config` has everything that the file lacks. Raises InvalidConfig."""
    tensors: tuple[ModelInput | ModelOutput, ...] = (*config.input, *config.output)
    if not (config.input and config.output):
        raise InvalidConfig(
            f"model '{config.name}': compiled code tells no inputs and outputs; config.pbtxt has "
            f"to list them, exactly as the model was exported, since the code checks nothing"
        )
    for tensor in tensors:
        if tensor.datatype is DataType.BYTES:
            msg = f"model '{config.name}': '{tensor.name}' is BYTES, which PyTorch has not"
            raise InvalidConfig(msg)
    if any(tensor.optional for tensor in config.input):
        raise InvalidConfig(f"model '{config.name}': compiled code has no optional inputs")


def compiled_run(compiled: CompiledTorch, config: ModelConfig) -> Run:
    """Return the function that runs one request."""
    torch, device = compiled.torch, compiled.device
    local = Context(torch, config)
    inputs = [(tensor.name, tensor.datatype) for tensor in config.input]
    outputs = outputs_in_order(config)
    guard = torch._C._InferenceMode
    call = compiled.call

    def run(feed: dict[str, Array], names: Sequence[str]) -> Sequence[Array]:
        local.__dict__  # noqa: B018  a thread's first access initializes it
        tensors = [to_tensor(torch, feed[name], datatype).to(device) for name, datatype in inputs]
        try:
            with guard(True):
                given = call(*tensors)
        except (RuntimeError, ValueError, TypeError) as error:
            raise failure(config, "run it", error) from error
        # The loader gives back what was exported: a tensor, or a tuple, list or dict of them.
        values = list(given.values()) if isinstance(given, dict) else given
        listed = [values] if isinstance(values, torch.Tensor) else list(values)
        by_name = dict(zip(outputs, listed, strict=False))
        missing = [name for name in names if name not in by_name]
        if missing:
            msg = f"model '{config.name}' gave {len(listed)} outputs, none is '{missing[0]}'"
            raise BackendFailed(msg)
        return [to_array(torch, by_name[name]) for name in names]

    return run


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
            # Where the scheduler makes inputs, only `open` gets them all.
            is_whole = not (config.batch_input or config.sequence_batching)
            (check_arguments if is_whole else check_listed)(loaded, config)
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
            raise InvalidConfig(f"model '{config.name}': '{file.name}' is no file")
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
