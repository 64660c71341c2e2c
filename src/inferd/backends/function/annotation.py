"""Annotations: from the type of a parameter or return value to a FunctionPort."""

import inspect
import types
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import numpy as np

from inferd.backends.function.port import FunctionPort
from inferd.errors import InvalidConfig
from inferd.tensor.dtype import DATATYPES, DataType, datatype_of


@dataclass(frozen=True, slots=True)
class Spec:
    """Part of an annotation: `Annotated[np.ndarray, Spec("FP32", [-1, 4])]`.

    `datatype` is a name of the protocol (FP32, INT64, BYTES, ...). `shape` is the shape of the
    array that the function takes or returns, -1 for a variable dim; in a batched model the first
    dim is the batch, -1. `name` is the tensor's name for clients. Anything left out comes from the
    annotated type.
    """

    datatype: str = ""
    shape: Sequence[int] | None = None
    name: str = ""

    def __post_init__(self) -> None:
        """Make the Spec hashable, as annotations in `... | None` must be."""
        if isinstance(self.shape, list):
            object.__setattr__(self, "shape", tuple(self.shape))


SPELLINGS = (
    'Annotated[np.ndarray, inferd.Spec("FP32", [-1, 4])], numpy.typing.NDArray[np.float32], '
    "str, bytes, int, float, bool, np.float32 and the like, or a list of one of these"
)
"""How annotations are written, for error texts."""

_KINDS = {str: "O", bytes: "O", bool: "b", int: "iu", float: "f"}
_NUMPYS_TEXT = {np.str_: str, np.bytes_: bytes}
_LISTS = (list, Sequence, Collection, Iterable)
_NONE_TYPE = type(None)


def port_of(name: str, annotation: object, place: str, *, batched: bool = False) -> FunctionPort:
    """Return the port that `annotation` describes; `place` begins every error text.

    Raises InvalidConfig, which says how to write the annotation.
    """
    annotation, spec = _spec_in(_bare(annotation), place)
    annotation = _bare(annotation)
    if annotation is inspect.Parameter.empty or annotation is Any:
        if not spec.datatype:
            raise InvalidConfig(f"{place} has no type; write {SPELLINGS}")
        # With a datatype in its Spec, a parameter needs no type:
        # arrays are what most functions take.
        annotation = np.ndarray
    name = spec.name or name
    if _is_array(annotation):
        return _array_port(name, annotation, spec, place, batched=batched)
    depth, kind = _element_of(annotation)
    if kind in _KINDS or _is_numpys(kind):
        if depth:
            return _list_port(name, kind, depth, spec, place, batched=batched)
        return _scalar_port(name, kind, spec, place, batched=batched)
    raise InvalidConfig(f"{place} is of type {_shown(annotation)}; write {SPELLINGS}")


def unaliased(annotation: Any) -> Any:
    """Return the type behind a PEP 695 alias; NDArray is one from numpy 2.5 on."""
    while True:
        origin = get_origin(annotation)
        if hasattr(origin, "__value__"):
            annotation = origin.__value__[get_args(annotation)]
        elif origin is None and hasattr(annotation, "__value__"):
            annotation = annotation.__value__
        else:
            return annotation


def _array_port(
    name: str, annotation: Any, spec: Spec, place: str, *, batched: bool
) -> FunctionPort:
    shape, datatype = _of_ndarray(annotation, place)
    given = _datatype(spec, place)
    if datatype is None and given is None:
        raise InvalidConfig(
            f"{place} is an array without a datatype; write numpy.typing.NDArray[np.float32] or "
            f'Annotated[np.ndarray, inferd.Spec("FP32", [-1, 4])]'
        )
    # NumPy has no BF16, so its arrays are uint16 or ml_dtypes' own, whatever NDArray says.
    if datatype is not None and given not in (None, datatype, DataType.BF16):
        msg = f"{place} is an array of {datatype.value}, its Spec says {spec.datatype}"
        raise InvalidConfig(msg)
    if spec.shape is not None:
        shape = _shape(spec.shape, place)
    if shape is None:
        shape = (-1,) * (1 + batched)
    if batched and shape[:1] != (-1,):
        msg = f"{place} has shape {list(shape)}; of a batched model the first dim is the batch, -1"
        raise InvalidConfig(msg)
    return FunctionPort(name, given or datatype or DataType.FP32, shape, is_batched=batched)


def _scalar_port(name: str, kind: type, spec: Spec, place: str, *, batched: bool) -> FunctionPort:
    if batched:
        msg = f"{place} is one {kind.__name__}; a batched model has a list[{kind.__name__}] there"
        raise InvalidConfig(msg)
    if spec.shape is not None:
        raise InvalidConfig(f"{place} is one {kind.__name__}, and its Spec gives a shape")
    return FunctionPort(name, _element_type(kind, spec, place), (), "scalar", kind)


def _list_port(
    name: str, kind: type, depth: int, spec: Spec, place: str, *, batched: bool
) -> FunctionPort:
    """Return the port of a list, or of lists nested `depth` deep."""
    shape = (-1,) * depth if spec.shape is None else _shape(spec.shape, place)
    if len(shape) != depth or (batched and shape[0] != -1):
        wanted = "one dim" if depth == 1 else f"{depth} dims"
        if batched:
            wanted = "[-1], the batch" if depth == 1 else f"{wanted}, the first -1, the batch"
        raise InvalidConfig(f"{place} is a list, its Spec says {list(shape)}, expected {wanted}")
    return FunctionPort(name, _element_type(kind, spec, place), shape, "list", kind, batched)


def _spec_in(annotation: object, place: str) -> tuple[Any, Spec]:
    if get_origin(annotation) is not Annotated:
        return annotation, Spec()
    inner, *notes = get_args(annotation)
    # The class itself instead of an object of it, which would be ignored without a word.
    if Spec in notes:
        raise InvalidConfig(f'{place}: write inferd.Spec("FP32", [-1, 4]), not inferd.Spec alone')
    specs = [note for note in notes if isinstance(note, Spec)]
    if len(specs) > 1:
        raise InvalidConfig(f"{place} has {len(specs)} Specs, expected one")
    return inner, specs[0] if specs else Spec()


def _bare(annotation: Any) -> Any:
    """Return the type behind aliases, and without `| None`."""
    return unaliased(_without_none(unaliased(annotation)))


def _without_none(annotation: Any) -> Any:
    if get_origin(annotation) not in (Union, types.UnionType):
        return annotation
    # `| None` says that the input may be left out, which the default says already.
    rest = [one for one in get_args(annotation) if one is not _NONE_TYPE]
    return rest[0] if len(rest) == 1 else annotation


def _element_of(annotation: Any) -> tuple[int, Any]:
    """Return how many nested lists an annotation has, and the type of their elements."""
    depth = 0
    while get_origin(annotation) in _LISTS:
        [annotation] = get_args(annotation)
        annotation = unaliased(annotation)
        depth += 1
    is_plain = isinstance(annotation, type)
    return depth, _NUMPYS_TEXT.get(annotation, annotation) if is_plain else None


def _is_numpys(kind: Any) -> bool:
    """Return whether `kind` is a concrete type such as np.float32, not np.floating."""
    # np.floating and the like stand for several dtypes; concrete ones have no subclasses.
    return isinstance(kind, type) and issubclass(kind, np.generic) and not kind.__subclasses__()


def _is_array(annotation: Any) -> bool:
    return (get_origin(annotation) or annotation) is np.ndarray


def _of_ndarray(annotation: Any, place: str) -> tuple[tuple[int, ...] | None, DataType | None]:
    """Return the shape and datatype of np.ndarray[shape, dtype]; None for each left open."""
    arguments = get_args(annotation)
    if not arguments:
        return None, None
    shape, dtype = arguments
    # Plain np.dtype, without an argument, leaves the element type open.
    [element] = get_args(dtype) or [Any]
    if isinstance(element, TypeVar) or element is Any:
        return _static_shape(shape), None
    if element in (np.str_, str):
        raise InvalidConfig(f"{place}: an array of text is list[str], or of np.object_ with bytes")
    is_numpys = isinstance(element, type) and issubclass(element, np.generic)
    if is_numpys and element.__subclasses__():
        raise InvalidConfig(f"{place}: np.{element.__name__} is no single dtype; name one")
    return _static_shape(shape), _own_datatype(element, place)


def _static_shape(shape: Any) -> tuple[int, ...] | None:
    """Return the shape that tuple[int, Literal[4]] means, None if it is open."""
    sizes = get_args(shape)
    if not sizes or Ellipsis in sizes:
        return None
    return tuple(get_args(one)[0] if get_origin(one) is Literal else -1 for one in sizes)


def _shape(sizes: Sequence[int], place: str) -> tuple[int, ...]:
    # type() is int, since True is an int, too.
    if isinstance(sizes, str) or not all(type(size) is int for size in sizes):
        raise InvalidConfig(f"{place}: its shape is {sizes!r}, expected a list of numbers")
    if bad := [size for size in sizes if size < 1 and size != -1]:
        msg = f"{place}: its shape has {bad[0]}, expected 1 or more, or -1 for a dim that varies"
        raise InvalidConfig(msg)
    return tuple(sizes)


def _datatype(spec: Spec, place: str) -> DataType | None:
    if not spec.datatype:
        return None
    found = DATATYPES.get(spec.datatype) if isinstance(spec.datatype, str) else None
    if found is None:
        names = ", ".join(DATATYPES)
        raise InvalidConfig(f"{place}: Spec({spec.datatype!r}): expected one of {names}")
    return found


def _element_type(kind: type, spec: Spec, place: str) -> DataType:
    # NumPy's own int is of 32 bits on some machines.
    own = _own_datatype(np.int64 if kind is int else kind, place)
    datatype = _datatype(spec, place) or own
    if datatype is DataType.BF16 or datatype.numpy.kind not in _KINDS.get(kind, own.numpy.kind):
        raise InvalidConfig(f"{place}: {kind.__name__} cannot be {spec.datatype}")
    return datatype


def _own_datatype(kind: type, place: str) -> DataType:
    """Return the datatype that `kind` has by itself."""
    try:
        return datatype_of(np.dtype(kind))
    except TypeError as error:
        raise InvalidConfig(f"{place}: {error}") from error


def _shown(annotation: object) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)
