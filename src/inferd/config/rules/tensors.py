"""Rules for the inputs and outputs of a configuration, and for what is made of them."""

from collections.abc import Iterator
from math import prod

from inferd.config.model import ModelConfig, ModelInput, ModelOutput
from inferd.config.names import is_inside
from inferd.config.rules.complaint import Complaint, ConfigField
from inferd.tensor.dtype import DataType

MAX_DIMS = 63
"""numpy arrays have at most 64 dims, and one may be the batch dim."""


def io_complaints(config: ModelConfig) -> Iterator[Complaint]:
    """Yield what is wrong with the inputs and outputs, of clients and of batches."""
    for number, taken in enumerate(config.input):
        yield from _tensor_complaints(config, ConfigField("input", ("input", number)), taken)
    for number, given in enumerate(config.output):
        yield from _tensor_complaints(config, ConfigField("output", ("output", number)), given)
    for number, one in enumerate(config.batch_input):
        field = ConfigField(f"batch_input of kind {one.kind}", ("batch_input", number))
        # Triton's rule: counts are integers or, for models that know only floats, FP32.
        if one.datatype not in (DataType.INT32, DataType.FP32):
            kind = config_name(one.datatype)
            text = f" has data_type {kind}, expected TYPE_INT32 or TYPE_FP32"
            yield field.complaint(text, "data_type")
        yield from _source_complaints(config, field, one.source_input)
    outputs = [output.name for output in config.output]
    for number, each in enumerate(config.batch_output):
        field = ConfigField(f"batch_output of kind {each.kind}", ("batch_output", number))
        yield from _source_complaints(config, field, each.source_input)
        for inner, name in enumerate(each.target_name):
            if name not in outputs:
                yield field.complaint(f": target_name '{name}' is no output", "target_name", inner)


def _tensor_complaints(
    config: ModelConfig, place: ConfigField, tensor: ModelInput | ModelOutput
) -> Iterator[Complaint]:
    if not tensor.name:
        yield Complaint(f"an {place.name} has no name", (*place.path, "name"))
    place = ConfigField(f"{place.name} '{tensor.name}'", place.path)
    yield from _dim_complaints(place, tensor)
    # Elsewhere the shape of a tensor is read from it, and a batch dim would be added wrongly.
    if tensor.is_shape_tensor and config.backend != "tensorrt":
        yield place.complaint(": is_shape_tensor is for TensorRT models only", "is_shape_tensor")
    if isinstance(tensor, ModelInput):
        # NHWC and NCHW name three dims after the batch; the format itself changes nothing.
        if tensor.format != "FORMAT_NONE" and len(tensor.dims) != 3:
            text = f" has {tensor.format}, which needs 3 dims, not {len(tensor.dims)}"
            yield place.complaint(text, "format")
    elif not is_inside(tensor.label_filename):
        text = f": label_filename '{tensor.label_filename}' leads out of the model's folder"
        yield place.complaint(text, "label_filename")
    # A dim that is wrong has its own complaint; sizes computed from it would be a second one about
    # the same.
    is_sound = all(dim > 0 or dim == -1 for dim in tensor.dims)
    if tensor.reshape is not None and is_sound:
        yield from _reshape_complaints(config, place, tensor.dims, tensor.reshape)


def _dim_complaints(place: ConfigField, tensor: ModelInput | ModelOutput) -> Iterator[Complaint]:
    yield from rank_complaints(place, tensor.dims)
    reshape = tensor.reshape or ()
    if len(reshape) > MAX_DIMS:
        text = f": reshape has {len(reshape)} dims, expected at most {MAX_DIMS}"
        yield place.complaint(text, "reshape")
    # Triton's rule: a request's shape has at least one dim, and an empty reshape takes it away
    # again.
    if not tensor.dims:
        text = " has no dims; write 1 for a scalar, with an empty reshape"
        yield place.complaint(text, "dims")
    for field, dims in (("dims", tensor.dims), ("reshape", reshape)):
        for dim in dims:
            if dim < 1 and dim != -1:
                text = f" has dim {dim}, expected 1 or more, or -1 for one that varies"
                yield place.complaint(text, field)


def rank_complaints(place: ConfigField, dims: tuple[int, ...]) -> Iterator[Complaint]:
    """Yield that what is at `place` has too many `dims`, if it has."""
    if len(dims) > MAX_DIMS:
        yield place.complaint(f" has {len(dims)} dims, expected at most {MAX_DIMS}", "dims")


def _reshape_complaints(
    config: ModelConfig, place: ConfigField, dims: tuple[int, ...], reshape: tuple[int, ...]
) -> Iterator[Complaint]:
    # Without a batch dim the model would get a tensor of no dims and no batch, which no framework
    # splits.
    if not reshape and config.max_batch_size == 0:
        text = " has an empty reshape, which needs a max_batch_size above 0"
        yield place.complaint(text, "reshape")
    # Variable dims keep their order, so the dims between them must have the same product.
    if _fixed_parts(dims) != _fixed_parts(reshape):
        text = (
            f": dims {list(dims)} and reshape {list(reshape)} differ in size"
            f" between their variable dims, or in how many of these they have"
        )
        yield place.complaint(text, "reshape")


def _fixed_parts(dims: tuple[int, ...]) -> list[int]:
    parts: list[list[int]] = [[]]
    for dim in dims:
        if dim == -1:
            parts.append([])
        else:
            parts[-1].append(dim)
    return [prod(part) for part in parts]


def _source_complaints(
    config: ModelConfig, place: ConfigField, sources: tuple[str, ...]
) -> Iterator[Complaint]:
    # Lists in the protocol, for kinds to come; those there are have one.
    if len(sources) != 1:
        yield place.complaint(f" has {len(sources)} of source_input, expected 1", "source_input")
    inputs = [given.name for given in config.input]
    for number, name in enumerate(sources):
        if name not in inputs:
            yield place.complaint(f": source_input '{name}' is no input", "source_input", number)


def config_name(datatype: DataType | None) -> str:
    """Return how config.pbtxt calls a datatype."""
    if datatype is None:
        return "TYPE_INVALID"
    return "TYPE_STRING" if datatype is DataType.BYTES else f"TYPE_{datatype.value}"
