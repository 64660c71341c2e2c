"""Signature: the inputs and outputs a model file declares, compared with a configuration."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from inferd.config.model import DynamicBatching, ModelConfig, ModelInput, ModelOutput
from inferd.config.rules.complaint import Complaint
from inferd.core.rows import OPEN, UNKNOWN, Verdict
from inferd.errors import FieldPath, InvalidConfig
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import fits


@dataclass(frozen=True, slots=True)
class Declared:
    """One input or output of the file; `shape` includes any batch dim, -1 is a variable dim.

    `kind` is the framework's name of its type; `datatype` is None when the protocol has no
    equivalent. A tensor of unknown rank has shape (), as a scalar does, and `is_unranked` where the
    file tells the two apart. `first_dim` is what the author of the model calls the first dim, "" if
    nothing.
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    datatype: DataType | None
    first_dim: str = ""
    is_unranked: bool = False

    def __str__(self) -> str:
        """Return datatype and shape, for error texts."""
        kind = self.datatype.value if self.datatype else self.kind
        return f"{kind} of unknown rank" if self.is_unranked else f"{kind} {list(self.shape)}"


@dataclass(frozen=True, slots=True)
class Signature:
    """What a file declares. `defaulted` are inputs for which the file has a default value.

    `verdict` is what its operators say of the rows of a batch.
    """

    inputs: dict[str, Declared]
    defaulted: dict[str, Declared]
    outputs: dict[str, Declared]
    verdict: Verdict = UNKNOWN

    @property
    def may_mix_rows(self) -> bool:
        """Whether the author calls the first dim of an output differently than that of the inputs.

        Such an output may have any number of rows, whatever the size of the batch, and nobody can
        tell whose they are if requests run together. Names are a hint: what the operators say
        counts more.
        """
        if self.verdict.rows != OPEN:
            return False
        names = {one.first_dim for one in self.inputs.values()}
        return any(one.first_dim and one.first_dim not in names for one in self.outputs.values())

    def scalars(self, config: ModelConfig) -> frozenset[str]:
        """Return the tensors that may be scalars, and have dims [1] in the configuration.

        That is how a configuration declares a scalar. A tensor whose rank the file leaves open
        shows no dims either; `reshape { shape: [1] }` keeps its one dim.
        """
        # With a batch dim no tensor is a scalar.
        if config.max_batch_size > 0:
            return frozenset()
        declared = self.inputs | self.defaulted | self.outputs
        tensors: tuple[ModelInput | ModelOutput, ...] = (*config.input, *config.output)
        return frozenset(
            tensor.name
            for tensor in tensors
            if (tensor.dims == (1,) or (isinstance(tensor, ModelOutput) and is_unranked(tensor)))
            and tensor.reshape is None
            and not declared[tensor.name].shape
        )


def is_unranked(tensor: ModelInput | ModelOutput) -> bool:
    """Tell whether nobody, not even the model's file, says how many dims a tensor has.

    The dims of such an output are [-1], which others may have, too: files are not always right.
    """
    if isinstance(tensor, ModelInput):
        return tensor.is_unranked
    return tensor.is_declared and tensor.dims == (-1,)


DEFAULT_MAX_BATCH_SIZE = "default-max-batch-size"
"""The --backend-config setting with the max_batch_size of models that can batch; 0: no batching."""


def complete_config(
    config: ModelConfig, signature: Signature, default_max_batch_size: int
) -> ModelConfig:
    """Return `config` with what it leaves out of input, output and max_batch_size filled in.

    Nothing is filled in when both input and output are given. The outputs that are filled in are
    marked: a file may be wrong about them. The model can batch when the first
    dim of every input and output is variable; max_batch_size 0 then becomes
    `default_max_batch_size`, unless the 0 was written, the verdict is that this dim is no batch
    dim, or a tensor the configuration does give has as many dims as in the file, which shows that
    its dims include the batch dim. A model that
    batches and has no scheduling gets dynamic batching, unless it `may_mix_rows`. Raises
    InvalidConfig when max_batch_size is given for a model that cannot batch, or when the protocol
    has no equivalent of a type. A tensor of unknown rank gets dims [-1], has any shape, and does
    not contradict a max_batch_size.
    """
    # Inputs may all come from the scheduler.
    if (config.input or config.batch_input) and config.output:
        return config
    fixed = [
        tensor
        for tensor in (*signature.inputs.values(), *signature.outputs.values())
        # A slice, since a scalar has no first dim.
        if tensor.shape[:1] != (-1,)  # a variable first dim may be the batch dim
    ]
    known = [tensor for tensor in fixed if not tensor.is_unranked]
    if known and config.max_batch_size > 0:
        msg = (
            f"model '{config.name}' cannot batch, but max_batch_size is {config.max_batch_size}: "
            f"the first dim of '{known[0].name}' is not variable, the file has it as {known[0]}"
        )
        raise InvalidConfig(msg, ("max_batch_size",))
    max_batch_size = config.max_batch_size
    has_batch_dim = not fixed and signature.verdict.has_batch_dim
    # Whoever wrote the dims with the batch dim among them does not want one added.
    if has_batch_dim and not (config.is_unbatched or _counts_batch_dim(config, signature)):
        max_batch_size = max_batch_size or default_max_batch_size
    is_scheduled = config.dynamic_batching or config.sequence_batching
    return replace(
        config,
        max_batch_size=max_batch_size,
        dynamic_batching=(
            DynamicBatching()
            # With batches of one there is nothing to join.
            if max_batch_size > 1 and not is_scheduled and not signature.may_mix_rows
            else config.dynamic_batching
        ),
        input=config.input or _config_inputs(config, signature, batching=max_batch_size > 0),
        output=config.output or _config_outputs(config, signature, batching=max_batch_size > 0),
    )


def check_config(config: ModelConfig, signature: Signature) -> None:
    """Check that `config` and the file agree about names, datatypes and shapes.

    Raises InvalidConfig with the first complaint of `signature_complaints`.
    """
    for complaint in signature_complaints(config, signature):
        raise InvalidConfig(f"model '{config.name}'{complaint.text}", complaint.path)


def signature_complaints(config: ModelConfig, signature: Signature) -> Iterator[Complaint]:
    """Yield where `config` and the file do not agree about names, datatypes and shapes.

    Files often declare the outputs of the one run that they were made from. So a variable dim in
    the configuration, the batch dim included, allows an output more than the file does.
    The configuration may leave out outputs and inputs with a default value; it lists inputs that a
    scheduler fills in elsewhere. Each names the tensor, what the file says and what the
    configuration says; the text follows the name of the model.
    """
    takes = signature.inputs | signature.defaulted
    for number, tensor in enumerate(config.input):
        path: FieldPath = ("input", number)
        declared = takes.get(tensor.name)
        if declared is None:
            yield _unknown("input", path, tensor.name, takes)
            continue
        yield from _tensor_complaints(config, path, tensor, declared)
        if tensor.optional and tensor.name in signature.inputs:
            text = (
                f": the configuration calls input '{tensor.name}' optional, "
                f"but the file has no value for it when it is left out"
            )
            yield Complaint(text, (*path, "optional"))
    given = {tensor.name for tensor in config.input} | _scheduler_inputs(config)
    missing = [name for name in signature.inputs if name not in given]
    # Only if all names are right: a misspelt one has been named already, and its proper name would
    # be missing as well.
    if missing and all(tensor.name in takes for tensor in config.input):
        text = (
            f": the file needs input {_quoted(missing)}, the configuration has only "
            f"{_quoted(sorted(given))}"
        )
        yield Complaint(text, _place_of_missing(config, takes))
    # Outputs that the configuration leaves out are not served; Triton allows that.
    for number, output in enumerate(config.output):
        path = ("output", number)
        declared = signature.outputs.get(output.name)
        if declared is None:
            yield _unknown("output", path, output.name, signature.outputs)
            continue
        yield from _tensor_complaints(config, path, output, declared)


def _place_of_missing(config: ModelConfig, takes: Mapping[str, Declared]) -> FieldPath:
    """Return the field to blame for a missing input: one that names another, or `input`."""
    if _scheduler_inputs(config) <= takes.keys():
        return ("input",)
    return ("sequence_batching",) if config.sequence_batching else ("batch_input",)


def _counts_batch_dim(config: ModelConfig, signature: Signature) -> bool:
    declared = signature.inputs | signature.outputs
    tensors: tuple[ModelInput | ModelOutput, ...] = (*config.input, *config.output)
    return any(
        tensor.name in declared and len(_model_dims(tensor)) == len(declared[tensor.name].shape)
        for tensor in tensors
    )


def _scheduler_inputs(config: ModelConfig) -> set[str]:
    """Return the inputs that a scheduler fills in, so that no request carries them."""
    names = {name for batch_input in config.batch_input for name in batch_input.target_name}
    if config.sequence_batching:
        names.update(control.name for control in config.sequence_batching.control_input)
        names.update(state.input_name for state in config.sequence_batching.state)
    return names


def _config_inputs(
    config: ModelConfig, signature: Signature, *, batching: bool
) -> tuple[ModelInput, ...]:
    from_scheduler = _scheduler_inputs(config)
    return tuple(
        ModelInput(
            tensor.name,
            _datatype(config, tensor),
            *_config_dims(tensor, batching=batching),
            is_unranked=tensor.is_unranked,
        )
        for tensor in signature.inputs.values()
        if tensor.name not in from_scheduler
    )


def _config_outputs(
    config: ModelConfig, signature: Signature, *, batching: bool
) -> tuple[ModelOutput, ...]:
    states = config.sequence_batching.state if config.sequence_batching else ()
    # A state's output stays with the scheduler.
    for_scheduler = {state.output_name for state in states}
    return tuple(
        ModelOutput(
            tensor.name,
            _datatype(config, tensor),
            *_config_dims(tensor, batching=batching),
            is_declared=True,
        )
        for tensor in signature.outputs.values()
        if tensor.name not in for_scheduler
    )


def _config_dims(
    tensor: Declared, *, batching: bool
) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
    """Return dims and reshape. A configuration cannot express "no dims": that becomes [1]."""
    if tensor.is_unranked:
        return (-1,), None
    dims = tensor.shape[1:] if batching else tensor.shape
    if dims:
        return dims, None
    # An empty reshape: each item of the batch is a scalar for the model.
    return (1,), () if batching else None


def _datatype(config: ModelConfig, tensor: Declared) -> DataType:
    if tensor.datatype is None:
        raise InvalidConfig(f"model '{config.name}'{_no_datatype(tensor)}")
    return tensor.datatype


def _no_datatype(tensor: Declared) -> str:
    return (
        f": '{tensor.name}' is of type {tensor.kind} in the file, which "
        f"the protocol cannot carry; list the inputs and outputs to serve in config.pbtxt, or "
        f"export the model with plain tensors (scikit-learn: convert with zipmap=False)"
    )


def _model_dims(tensor: ModelInput | ModelOutput) -> tuple[int, ...]:
    return tensor.dims if tensor.reshape is None else tensor.reshape


def _tensor_complaints(
    config: ModelConfig, path: FieldPath, tensor: ModelInput | ModelOutput, declared: Declared
) -> Iterator[Complaint]:
    role = "input" if isinstance(tensor, ModelInput) else "output"
    if declared.datatype is None:
        yield Complaint(_no_datatype(declared), path)
    elif tensor.datatype is not declared.datatype:
        text = (
            f", {role} '{tensor.name}': the file has {declared.datatype.value}, "
            f"the configuration says {tensor.datatype.value}"
        )
        yield Complaint(text, (*path, "data_type"))
    if not _is_shaped_by_scheduler(config, tensor):
        yield from _shape_complaints(config, path, tensor, declared)


def _is_shaped_by_scheduler(config: ModelConfig, tensor: ModelInput | ModelOutput) -> bool:
    """Tell whether the model sees a tensor in another shape than the configuration says."""
    if isinstance(tensor, ModelInput):
        # Ragged inputs are joined along their elements, to one dim.
        return tensor.allow_ragged_batch
    return any(tensor.name in batch_output.target_name for batch_output in config.batch_output)


def _shape_complaints(
    config: ModelConfig, path: FieldPath, tensor: ModelInput | ModelOutput, declared: Declared
) -> Iterator[Complaint]:
    role = "input" if isinstance(tensor, ModelInput) else "output"
    batch = (-1,) if config.max_batch_size > 0 else ()
    wanted = batch + _model_dims(tensor)
    # A scalar, or of unknown rank: only a run can tell.
    if declared.shape and not fits(_allowed(declared, role, wanted, batch), wanted):
        text = (
            f", {role} '{tensor.name}': the file has shape "
            f"{list(declared.shape)}, the configuration says {list(wanted)}"
        )
        if batch:
            text += f", the first being the batch dim of max_batch_size {config.max_batch_size}"
        yield Complaint(text, (*path, "dims" if tensor.reshape is None else "reshape"))


def _allowed(
    declared: Declared, role: str, wanted: tuple[int, ...], batch: tuple[int, ...]
) -> tuple[int, ...]:
    """Return the dims that the file is taken to allow: any where an output is `wanted` variable.

    A batch dim is repaired only where the file has 1, as it was made from a batch of 1: outputs
    that really have a fixed number of rows could be split as if these were the batch.
    """
    shape = declared.shape
    if role != "output" or len(shape) != len(wanted):
        return shape
    repaired = [-1 if want == -1 else dim for dim, want in zip(shape, wanted, strict=True)]
    if batch and shape[0] > 1:
        repaired[0] = shape[0]
    return tuple(repaired)


def _unknown(role: str, path: FieldPath, name: str, declared: dict[str, Declared]) -> Complaint:
    text = f": the configuration has {role} '{name}', the file has only {_quoted(declared)}"
    return Complaint(text, (*path, "name"))


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in names) or "none"
