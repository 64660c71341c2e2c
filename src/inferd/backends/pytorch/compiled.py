"""CompiledTorch: an AOTInductor package (.pt2), a shared library with almost no metadata.

It has no names, datatypes or shapes, and its code checks none: a tensor other than what it was
compiled for is read out of bounds. So inputs and outputs have to be listed, in order, and it is
loaded only if the model's configuration allows native code.
"""

from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from inferd.backends.pytorch.naming import outputs_in_order
from inferd.backends.pytorch.runtime import Context, failure, to_array, to_tensor
from inferd.config.model import ModelConfig, ModelInput, ModelOutput
from inferd.core.arrays import Run
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
        msg = (
            f"model '{config.name}': compiled code tells no inputs and outputs; config.pbtxt has "
            f"to list them, exactly as the model was exported, since the code checks nothing"
        )
        raise InvalidConfig(msg)
    for tensor in tensors:
        if tensor.datatype is DataType.BYTES:
            msg = f"model '{config.name}': '{tensor.name}' is BYTES, which PyTorch has not"
            raise InvalidConfig(msg)
    if any(tensor.optional for tensor in config.input):
        msg = f"model '{config.name}': compiled code has no optional inputs"
        raise InvalidConfig(msg)


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
