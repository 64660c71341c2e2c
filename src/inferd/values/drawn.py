"""Values drawn at random for a model's inputs, the same for the same seed."""

from collections.abc import Iterable, Mapping, Sequence
from math import prod

import numpy as np

from inferd.core.metadata import TensorMetadata
from inferd.errors import InvalidRequest
from inferd.tensor.array import Array
from inferd.tensor.dtype import DataType
from inferd.tensor.halves import float64_to_half
from inferd.tensor.tensor import Tensor, dims_text, fits
from inferd.values.value import objects

STRING_BYTES = 16


def read_shapes(words: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """Return the dims that words like "image:3,224,224" say. Raises InvalidRequest."""
    found = {}
    for word in words:
        # The last colon: names of TensorFlow's tensors have one, as in "input:0".
        name, colon, text = word.rpartition(":")
        try:
            dims = tuple(int(one) for one in text.split(","))
        except ValueError:
            dims = (-1,)
        if not colon or not name or any(dim < 0 for dim in dims):
            raise InvalidRequest(f"--shape {word} is not NAME:D,D with dims from 0 on")
        found[name] = dims
    return found


def drawn(
    declared: Sequence[TensorMetadata],
    random: np.random.Generator,
    shapes: Mapping[str, tuple[int, ...]],
    batch: int = 1,
    *,
    is_batched: bool = False,
) -> list[Tensor]:
    """Return a tensor for each input: numbers from 0 to 1, integers from 0 to 9, short strings.

    Dims that are -1 come from `shapes`, by the input's name, without the batch if the model has one
    (`is_batched`: the first dim is then `batch`). Raises InvalidRequest for one that is not given.
    """
    if not declared:
        msg = "the model does not say what it takes, so nothing can be drawn for it: give --input"
        raise InvalidRequest(msg)
    return [
        _drawn(one, random, _dims(one, shapes, batch, is_batched=is_batched)) for one in declared
    ]


def _dims(
    declared: TensorMetadata,
    shapes: Mapping[str, tuple[int, ...]],
    batch: int,
    *,
    is_batched: bool,
) -> tuple[int, ...]:
    first = (batch,) if is_batched else ()
    dims = declared.shape[len(first) :]
    given = shapes.get(declared.name)
    if given is None:
        if -1 in dims:
            example = ",".join(str(dim) if dim >= 0 else "8" for dim in dims)
            raise InvalidRequest(
                f"input '{declared.name}' has dims {dims_text(dims)}, of which -1 may be any: say "
                f"which, as in --shape {declared.name}:{example}"
            )
        return first + dims
    if not fits(dims, given):
        raise InvalidRequest(
            f"--shape {declared.name}:{','.join(map(str, given))} does not fit the input's dims "
            f"{dims_text(dims)}"
        )
    return first + given


def _drawn(declared: TensorMetadata, random: np.random.Generator, shape: tuple[int, ...]) -> Tensor:
    datatype = declared.datatype
    try:
        if datatype is DataType.BYTES:
            array = _strings(random, shape)
            return Tensor.from_numpy(declared.name, array, datatype)
        return Tensor(declared.name, datatype, shape, _numbers(datatype, random, shape))
    # NumPy's words for more than there is memory for, and for more than an array can have.
    except (MemoryError, ValueError, OverflowError) as error:
        raise InvalidRequest(
            f"input '{declared.name}' cannot be drawn with dims {dims_text(shape)}: {error}"
        ) from error


def _strings(random: np.random.Generator, shape: tuple[int, ...]) -> Array:
    # Letters alone, since ONNX and PyTorch take UTF-8 only.
    letters = random.integers(ord("a"), ord("z") + 1, (prod(shape), STRING_BYTES), np.uint8)
    return objects([row.tobytes() for row in letters]).reshape(shape)


def _numbers(datatype: DataType, random: np.random.Generator, shape: tuple[int, ...]) -> Array:
    if datatype in (DataType.FP16, DataType.BF16):
        return float64_to_half(random.random(shape), datatype)
    if datatype is DataType.BOOL:
        return random.integers(0, 2, shape).astype(bool)
    if datatype.numpy.kind == "f":
        return random.random(shape).astype(datatype.numpy)
    # Small, so that they fit into every integer type, and are likely to be in a table of words.
    return random.integers(0, 10, shape).astype(datatype.numpy)
