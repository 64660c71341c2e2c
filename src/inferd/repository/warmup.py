"""Warm-up samples: requests that every instance of a model runs before the model is ready."""

from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from inferd.config.model import ModelConfig, Warmup, WarmupInput
from inferd.config.rules.complaint import within
from inferd.core.request import InferRequest
from inferd.errors import InferdError, InvalidConfig
from inferd.repository.contents import read_inside
from inferd.tensor.dtype import DataType
from inferd.tensor.strings import check_strings, encode_strings
from inferd.tensor.tensor import Tensor, fits

FOLDER = "warmup"
"""The folder for data files within the model's folder."""

MAX_BATCH = 10_000
"""The most requests a sample may have; more is a mistake."""

MAX_TEXT_BYTES = 64 << 20
"""The largest data file of strings; of others, as much is read as the tensor needs."""


class Sample(msgspec.Struct):
    """One sample: `requests` run together, `count` times."""

    name: str
    requests: list[InferRequest]
    count: int


def warmup_samples(folder: Path, config: ModelConfig) -> list[Sample]:
    """Return the samples of the model in `folder`, in order.

    A sample without a batch size is ignored, as in Triton. Raises InvalidConfig for a sample whose
    inputs or data files are missing or do not fit.
    """
    samples = []
    for number, one in enumerate(config.model_warmup):
        if one.batch_size > 0:
            with within("model_warmup", number):
                samples.append(_sample(folder, config, one))
    return samples


def _sample(folder: Path, config: ModelConfig, warmup: Warmup) -> Sample:
    place = f"model '{config.name}', model_warmup '{warmup.name}'"
    if warmup.batch_size > MAX_BATCH:
        msg = f"{place} has batch_size {warmup.batch_size}, expected at most {MAX_BATCH}"
        raise InvalidConfig(msg, ("batch_size",))
    # Samples go past the checks that requests have, so what is checked there is checked here.
    missing = {i.name for i in config.input if not i.optional} - warmup.inputs.keys()
    if missing:
        names = ", ".join(f"'{name}'" for name in sorted(missing))
        raise InvalidConfig(f"{place} has no input {names}, which the model needs")
    tensors = []
    # A map of protobuf has no order, and models may take the first input for the first of theirs.
    place_of = {declared.name: number for number, declared in enumerate(config.input)}
    for name in sorted(warmup.inputs, key=lambda name: (place_of.get(name, len(place_of)), name)):
        with within("inputs", name):
            given = warmup.inputs[name]
            tensors.append(_tensor(folder, config, f"{place}, input '{name}'", name, given))
    # Triton runs batch_size single requests in one execution, not one request with that batch
    # (facts/model_repository.md, section 16).
    requests = [
        InferRequest(config.name, id=warmup.name, inputs=list(tensors))
        for _ in range(warmup.batch_size)
    ]
    # count 0 is 1, as in Triton.
    return Sample(warmup.name, requests, max(1, warmup.count))


def _tensor(folder: Path, config: ModelConfig, place: str, name: str, given: WarmupInput) -> Tensor:
    if given.datatype is None:
        raise InvalidConfig(f"{place} has no data_type", ("data_type",))
    if any(dim < 0 for dim in given.dims):
        msg = f"{place} has dims {list(given.dims)}, expected none that varies"
        raise InvalidConfig(msg, ("dims",))
    _check_declared(config, place, name, given.datatype, given.dims)
    shape = (1, *given.dims) if config.max_batch_size > 0 else given.dims
    if given.input_data_file:
        with within("input_data_file"):
            data: Any = _file_data(folder, place, given.input_data_file, given.datatype, shape)
    # Strings have no random values in Triton, either: they are empty.
    elif given.random_data and given.datatype is not DataType.BYTES:
        data = _random_data(given.datatype, shape)
    elif given.random_data or given.zero_data:
        data = bytes(
            (given.datatype.size_bytes or 4) * prod(shape)
        )  # an empty string is its length
    else:
        raise InvalidConfig(f"{place} has none of zero_data, random_data and input_data_file")
    return Tensor(name, given.datatype, shape, data)


def _check_declared(
    config: ModelConfig, place: str, name: str, datatype: DataType, dims: tuple[int, ...]
) -> None:
    """Check a sample's input against the model's, which do not include those of schedulers."""
    declared = next((tensor for tensor in config.input if tensor.name == name), None)
    # Controls and states of sequences are no declared inputs, and samples may give them.
    if declared is None:
        return
    if datatype is not declared.datatype:
        expected = "none" if declared.datatype is None else declared.datatype.value
        msg = f"{place} has data_type {datatype.value}, the model's is {expected}"
        raise InvalidConfig(msg, ("data_type",))
    if not fits(declared.dims, dims):
        msg = f"{place} has dims {list(dims)}, the model's are {list(declared.dims)}"
        raise InvalidConfig(msg, ("dims",))


def _random_data(datatype: DataType, shape: Sequence[int]) -> object:
    """Return small random numbers, the same each time; BF16 gets small bit patterns."""
    random = np.random.default_rng(0)
    if datatype.numpy.kind == "f":
        return random.random(tuple(shape)).astype(datatype.numpy)
    # Below 100, which fits every type, INT8 too.
    return random.integers(0, 2 if datatype is DataType.BOOL else 100, shape).astype(datatype.numpy)


def _file_data(
    folder: Path, place: str, filename: str, datatype: DataType, shape: Sequence[int]
) -> bytes:
    count, place = prod(shape), f"{place}: input_data_file"
    if datatype is DataType.BYTES:
        data = read_inside(folder / FOLDER, filename, place, MAX_TEXT_BYTES + 1)
        if len(data) > MAX_TEXT_BYTES:
            raise InvalidConfig(f"{place} '{filename}' is larger than {MAX_TEXT_BYTES} bytes")
        try:
            # Triton's form first: a length of four bytes before each string.
            check_strings(data, count, filename)
        except InferdError as error:
            return _plain_text(data, count, f"{place} '{filename}'", error)
        return data
    size_bytes = datatype.size_bytes * count
    data = read_inside(folder / FOLDER, filename, place, size_bytes)
    if len(data) < size_bytes:
        raise InvalidConfig(
            f"{place} '{filename}' has {len(data)} bytes, the input needs {size_bytes}: "
            f"{count} of {datatype.value}, little-endian, as numpy.tofile writes them"
        )
    return data


def _plain_text(data: bytes, count: int, place: str, error: InferdError) -> bytes:
    """Return the elements of a file that somebody wrote as plain text, encoded.

    It is one element, or has a line for each; the line break at its end belongs to none. Lengths
    before elements are never mistaken for text: that of one shorter than MAX_TEXT_BYTES has a zero
    byte. Raises InvalidConfig, whose cause is `error`.
    """
    said = f"{place} does not hold {count} strings: {error.message}"
    how = (
        "; write plain UTF-8 text, a line for each string (all of it if there is one), or before "
        "each string its length in bytes as 4 bytes, little-endian"
    )
    try:
        text = data.decode("utf-8-sig")  # some editors mark UTF-8
    except UnicodeDecodeError:
        raise InvalidConfig(said + how) from error
    if not text or "\0" in text:
        raise InvalidConfig(said + how) from error
    text = text.removesuffix("\r\n" if text.endswith("\r\n") else "\n")
    lines = [text] if count == 1 else [line.removesuffix("\r") for line in text.split("\n")]
    if len(lines) != count:
        msg = f"{place} is plain text of {len(lines)} line(s), the input needs {count}"
        raise InvalidConfig(msg + how) from error
    return bytes(encode_strings(lines, place))
