"""Rules for the inputs and outputs of a configuration, and for what is made of them."""

from collections.abc import Iterator
from math import prod

from inferd.config.model import BatchInput, ModelConfig, ModelInput, ModelOutput
from inferd.config.rules.complaint import Complaint
from inferd.config.rules.inside import is_inside
from inferd.errors import FieldPath
from inferd.tensor.dtype import DataType

MAX_DIMS = 63
"""numpy arrays have at most 64 dims, and one may be the batch dim."""


def io_complaints(config: ModelConfig) -> Iterator[Complaint]:
    """Yield what is wrong with the inputs and outputs, of clients and of batches."""
    for number, taken in enumerate(config.input):
        yield from _tensor_complaints(config, ("input", number), taken)
    for number, given in enumerate(config.output):
        yield from _tensor_complaints(config, ("output", number), given)
    for number, one in enumerate(config.batch_input):
        yield from _batch_input_complaints(config, ("batch_input", number), one)
    yield from _batch_output_complaints(config)


def _tensor_complaints(
    config: ModelConfig, path: FieldPath, tensor: ModelInput | ModelOutput
) -> Iterator[Complaint]:
    kind = "input" if isinstance(tensor, ModelInput) else "output"
    if not tensor.name:
        yield Complaint(f"an {kind} has no name", (*path, "name"))
    place = f"{kind} '{tensor.name}'"
    yield from _dim_complaints(place, path, tensor)
    # Elsewhere the shape of a tensor is read from it, and a batch dim would be added wrongly.
    if tensor.is_shape_tensor and config.backend != "tensorrt":
        text = f"{place}: is_shape_tensor is for TensorRT models only"
        yield Complaint(text, (*path, "is_shape_tensor"))
    if isinstance(tensor, ModelInput):
        # NHWC and NCHW name three dims after the batch; the format itself changes nothing.
        if tensor.format != "FORMAT_NONE" and len(tensor.dims) != 3:
            text = f"{place} has {tensor.format}, which needs 3 dims, not {len(tensor.dims)}"
            yield Complaint(text, (*path, "format"))
    elif not is_inside(tensor.label_filename):
        text = f"{place}: label_filename '{tensor.label_filename}' leads out of the model's folder"
        yield Complaint(text, (*path, "label_filename"))
    # A dim that is wrong has its own complaint; sizes computed from it would be a second one about
    # the same.
    is_sound = all(dim > 0 or dim == -1 for dim in tensor.dims)
    if tensor.reshape is not None and is_sound:
        path = (*path, "reshape")
        yield from _reshape_complaints(config, place, path, (tensor.dims, tensor.reshape))


def _dim_complaints(
    place: str, path: FieldPath, tensor: ModelInput | ModelOutput
) -> Iterator[Complaint]:
    yield from rank_complaints(place, (*path, "dims"), tensor.dims)
    yield from rank_complaints(f"{place}: reshape", (*path, "reshape"), tensor.reshape or ())
    # Triton's rule: a request's shape has at least one dim, and an empty reshape takes it away
    # again.
    if not tensor.dims:
        text = f"{place} has no dims; write 1 for a scalar, with an empty reshape"
        yield Complaint(text, (*path, "dims"))
    for field, dims in (("dims", tensor.dims), ("reshape", tensor.reshape or ())):
        for dim in dims:
            if dim < 1 and dim != -1:
                text = f"{place} has dim {dim}, expected 1 or more, or -1 for one that varies"
                yield Complaint(text, (*path, field))


def rank_complaints(place: str, path: FieldPath, dims: tuple[int, ...]) -> Iterator[Complaint]:
    """Yield that there are too many of the `dims` at `path`, if there are."""
    if len(dims) > MAX_DIMS:
        yield Complaint(f"{place} has {len(dims)} dims, expected at most {MAX_DIMS}", path)


def _reshape_complaints(
    config: ModelConfig, place: str, path: FieldPath, both: tuple[tuple[int, ...], tuple[int, ...]]
) -> Iterator[Complaint]:
    dims, reshape = both
    # Without a batch dim the model would get a tensor of no dims and no batch, which no framework
    # splits.
    if not reshape and config.max_batch_size == 0:
        text = f"{place} has an empty reshape, which needs a max_batch_size above 0"
        yield Complaint(text, path)
    # Variable dims keep their order, so the dims between them must have the same product.
    if _fixed_parts(dims) != _fixed_parts(reshape):
        text = (
            f"{place}: dims {list(dims)} and reshape {list(reshape)} differ in size"
            f" between their variable dims, or in how many of these they have"
        )
        yield Complaint(text, path)


def _fixed_parts(dims: tuple[int, ...]) -> list[int]:
    parts: list[list[int]] = [[]]
    for dim in dims:
        if dim == -1:
            parts.append([])
        else:
            parts[-1].append(dim)
    return [prod(part) for part in parts]


def _batch_input_complaints(
    config: ModelConfig, path: FieldPath, one: BatchInput
) -> Iterator[Complaint]:
    place = f"batch_input of kind {one.kind}"
    # Triton's rule: counts are integers or, for models that know only floats, FP32.
    if one.datatype not in (DataType.INT32, DataType.FP32):
        kind = config_name(one.datatype)
        text = f"{place} has data_type {kind}, expected TYPE_INT32 or TYPE_FP32"
        yield Complaint(text, (*path, "data_type"))
    yield from _source_complaints(config, place, path, one.source_input)


def _batch_output_complaints(config: ModelConfig) -> Iterator[Complaint]:
    outputs = [output.name for output in config.output]
    for number, one in enumerate(config.batch_output):
        place, path = f"batch_output of kind {one.kind}", ("batch_output", number)
        yield from _source_complaints(config, place, path, one.source_input)
        for inner, name in enumerate(one.target_name):
            if name not in outputs:
                text = f"{place}: target_name '{name}' is no output"
                yield Complaint(text, (*path, "target_name", inner))


def _source_complaints(
    config: ModelConfig, place: str, path: FieldPath, sources: tuple[str, ...]
) -> Iterator[Complaint]:
    path = (*path, "source_input")
    # Lists in the protocol, for kinds to come; those there are have one.
    if len(sources) != 1:
        yield Complaint(f"{place} has {len(sources)} of source_input, expected 1", path)
    inputs = [given.name for given in config.input]
    for number, name in enumerate(sources):
        if name not in inputs:
            yield Complaint(f"{place}: source_input '{name}' is no input", (*path, number))


def config_name(datatype: DataType | None) -> str:
    """Return how config.pbtxt calls a datatype."""
    if datatype is None:
        return "TYPE_INVALID"
    return "TYPE_STRING" if datatype is DataType.BYTES else f"TYPE_{datatype.value}"
