"""FunctionBackend: runs a Python function, in threads or on an event loop of its own."""

from collections.abc import Callable
from dataclasses import replace

from inferd.backends.function.instance import (
    AsyncFunctionInstance,
    AsyncStreamInstance,
    FunctionCall,
    FunctionInstance,
    StreamInstance,
)
from inferd.backends.function.signature import FunctionSignature
from inferd.config.model import ModelConfig, ModelInput, ModelOutput
from inferd.core.interfaces import Instance, ModelFiles, Placement
from inferd.core.traits import Traits
from inferd.errors import InvalidConfig


class FunctionBackend:
    """Runs one function, or a class.

    If `target` is a class, it is called for each instance, which gets its own object. There is no
    model file.
    """

    def __init__(self, target: Callable[..., object], signature: FunctionSignature) -> None:
        self._target = target
        self._signature = signature
        self.traits = Traits(
            joins=any(port.is_batched for port in signature.outputs.values()),
            opens_in_turn=True,  # a class of the user's program need not expect threads
        )

    def complete(self, files: ModelFiles, config: ModelConfig) -> ModelConfig:
        """See Backend.complete; a configuration with other inputs or outputs is refused."""
        del files
        return self.completed(config)

    def completed(self, config: ModelConfig) -> ModelConfig:
        """Return `config` with the function's inputs and outputs. Raises InvalidConfig."""
        signature = self._signature
        hidden = _hidden(config)
        inputs = tuple(
            ModelInput(port.name, port.datatype, port.dims, optional=port.optional)
            for port in signature.inputs.values()
            if port.name not in hidden
        )
        outputs = tuple(
            ModelOutput(port.name, port.datatype, port.dims)
            for port in signature.outputs.values()
            if port.name not in hidden
        )
        for given, own in ((config.input, inputs), (config.output, outputs)):
            # Names, datatypes and dims must agree; what else config.pbtxt says of a
            # tensor, say a label file, is welcome.
            if given and [_plain(one) for one in given] != [_plain(one) for one in own]:
                shown = ", ".join(f"{one.name} {one.datatype.value}" for one in own)
                msg = f"model '{config.name}': its function has other inputs or outputs: {shown}"
                raise InvalidConfig(msg)
        joins = self.traits.joins
        if bool(config.max_batch_size) != joins:
            wanted = "1 or more, because it is batched" if joins else "0: it is not batched"
            raise InvalidConfig(
                f"model '{config.name}': max_batch_size is {config.max_batch_size}, "
                f"expected {wanted}"
            )
        return replace(
            config,
            input=config.input or inputs,
            output=config.output or outputs,
            decoupled=signature.streams,
        )

    def open(self, files: ModelFiles, config: ModelConfig, placement: Placement) -> Instance:
        """See Backend.open. Raises what the class raises when it is called."""
        del placement
        signature, function, close = self._signature, self._target, None
        if isinstance(function, type):
            function = function()
            close = getattr(function, "close", None)
        call = FunctionCall(function, signature, config.name, files.version, close)
        if signature.is_async:
            return AsyncStreamInstance(call) if signature.streams else AsyncFunctionInstance(call)
        return StreamInstance(call) if signature.streams else FunctionInstance(call)


def _plain(one: ModelInput | ModelOutput) -> tuple[object, ...]:
    return one.name, one.datatype, one.dims


def _hidden(config: ModelConfig) -> set[str]:
    """Return the names of the tensors of sequence_batching, which clients do not see."""
    sequence = config.sequence_batching
    if sequence is None:
        return set()
    states = [name for one in sequence.state for name in (one.input_name, one.output_name)]
    return {*states, *(control.name for control in sequence.control_input)}
