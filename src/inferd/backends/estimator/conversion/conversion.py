"""Conversion: a model of a library as an ONNX model, compared with what it was made of."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from inferd.backends.estimator.backend import INPUT, EstimatorBackend
from inferd.backends.estimator.conversion.comparison import (
    TOLERANCE,
    Difference,
    differences,
    expected,
)
from inferd.backends.estimator.conversion.drawn import drawn_rows, rows_of_training
from inferd.backends.estimator.conversion.libraries import onnx_of, thresholds_of
from inferd.backends.estimator.model import PREDICT, Columns, LoadedModel
from inferd.backends.estimator.parts import parts_of
from inferd.backends.estimator.rows import stacked
from inferd.config.model import ModelConfig
from inferd.convert.onnx_model import OnnxPort
from inferd.core.arrays import Array
from inferd.core.interfaces import ModelFiles
from inferd.errors import InferdError, InvalidConfig, Unsupported
from inferd.tensor.dtype import DataType, datatype_of

ROWS = 2000
"""How many rows a model is compared on if there is no sample."""


class Conversion(NamedTuple):
    """The ONNX model, and how it differs from the library on `row_count` rows.

    These were drawn around `threshold_count` thresholds of the model; None: they are a sample.
    """

    content: bytes
    differences: list[Difference]
    row_count: int
    threshold_count: int | None


_BACKENDS = {
    "sklearn": "SklearnBackend",
    "xgboost": "XgboostBackend",
    "lightgbm": "LightgbmBackend",
    "catboost": "CatboostBackend",
}
"""Library -> the class that loads its models, in the module of that name."""

LIBRARIES = tuple(_BACKENDS)


def loaded(library: str, file: Path, config: ModelConfig) -> LoadedModel:
    """Return the model of `library` in `file`. Raises InferdError.

    Raises Unsupported if a package it needs is not installed.
    """
    module = import_module(f"inferd.backends.estimator.{library}")
    try:
        backend: EstimatorBackend = getattr(module, _BACKENDS[library])()
        return backend.load(ModelFiles(file.parent, 1, file.parent, file), config)
    except ModuleNotFoundError as error:
        msg = f"the package '{error.name}' is not installed: pip install 'inferd[{library}]'"
        raise Unsupported(msg) from error


def converted(
    model: LoadedModel,
    sample: Columns | None = None,
    *,
    tolerance: float = TOLERANCE,
    row_count: int = ROWS,
) -> Conversion:
    """Convert `model`, and compare both on the columns, or the one array of rows, of `sample`.

    An array of shape [rows, columns] is the only one in `sample`; columns have the shape [rows].
    Raises Unsupported for what cannot be converted, BackendFailed for rows that the library
    refuses.
    """
    columns, threshold_count = sample, None
    if columns is None:
        columns, threshold_count = _drawn(model, row_count)
    ports = [OnnxPort(name, _datatype(column), _shape(column)) for name, column in columns.items()]
    content = onnx_of(model.origin, ports, transforms=PREDICT not in model.outputs)
    session = _session(content)
    names = [output.name for output in session.get_outputs()]
    row_count = len(next(iter(columns.values())))
    got = dict(zip(names, session.run(names, _feed(session, columns)), strict=True))
    want = expected(model, _rows(model, columns), row_count, names)
    found = differences({name: np.asarray(got[name]) for name in names}, want, tolerance)
    return Conversion(content, found, row_count, threshold_count)


def check(found: Conversion, tolerance: float) -> None:
    """Raise Unsupported if an output differs by more than `tolerance`."""
    for one in found.differences:
        if one.largest > tolerance:
            rows = f"{one.differing} of {found.row_count} rows"
            msg = (
                f"converted to ONNX, its {one.output} is not the library's: {one}; {rows} differ "
                f"by more than {tolerance:g}"
            )
            raise Unsupported(msg)


def _drawn(model: LoadedModel, row_count: int) -> tuple[Columns, int]:
    count = model.features.width
    if count is None or model.features.are_texts:
        what = (
            "takes texts" if model.features.are_texts else "does not tell how many columns it has"
        )
        msg = f"the model {what}, so no rows can be drawn to compare it on: give a sample of yours"
        raise InvalidConfig(msg)
    parts = list(parts_of(model.origin))
    try:
        known = thresholds_of(model.origin, parts)
    except InferdError:
        known = {}  # whatever is wrong with its trees, the conversion says so
    rows, threshold_count = drawn_rows(known, rows_of_training(parts, count), count, row_count)
    return {INPUT: rows}, threshold_count


def _rows(model: LoadedModel, columns: Columns) -> object:
    [first, *others] = columns.values()
    return model.table(columns) if others else model.rows(first)


def _datatype(column: Array) -> DataType:
    return DataType.BYTES if column.dtype == object else datatype_of(column.dtype)


def _shape(column: Array) -> tuple[int, ...]:
    return (-1, *(column.shape[1:] or (1,)))


def _session(content: bytes) -> Any:
    onnxruntime = import_module("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def _feed(session: Any, columns: Columns) -> Mapping[str, Array]:
    """Return what the ONNX model takes for `columns`: floats as wide as its own."""
    inputs = session.get_inputs()
    if len(inputs) == 1 and len(columns) > 1:
        columns = {inputs[0].name: stacked(columns)}
    feed = {}
    for wanted, (name, column) in zip(inputs, columns.items(), strict=True):
        array = column.reshape(len(column), -1)
        if array.dtype.kind == "f" or wanted.type == "tensor(float)":
            array = array.astype(np.float64 if wanted.type == "tensor(double)" else np.float32)
        feed[name if len(inputs) > 1 else wanted.name] = array
    return feed


def named_ports(content: bytes) -> Sequence[str]:
    """Return the inputs and outputs of an ONNX model in words."""
    session = _session(content)
    return [
        f"{role} '{one.name}' {one.type} {one.shape}"
        for role, ports in (("input", session.get_inputs()), ("output", session.get_outputs()))
        for one in ports
    ]
