"""Conversion: a model of a library as an ONNX model, compared with what it was made of."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from inferd.backends.estimator.backend import INPUT, EstimatorBackend
from inferd.backends.estimator.conversion import libraries, unusual
from inferd.backends.estimator.conversion.drawn import drawn_rows, read_sample, rows_of_training
from inferd.backends.estimator.instance import array_of, outputs_named, tensor_of
from inferd.backends.estimator.model import PREDICT, PROBABILITY, Columns, LoadedModel
from inferd.backends.estimator.parts import parts_of
from inferd.backends.estimator.rows import stacked
from inferd.config.model import ModelConfig, ModelInput
from inferd.config.parameter import MAX_SHOWN, number
from inferd.config.parameter_names import CONVERT_SAMPLE, CONVERT_TOLERANCE
from inferd.core.interfaces import ModelFiles
from inferd.errors import BackendFailed, InferdError, InvalidConfig, Unsupported
from inferd.formats.onnx_model import OnnxPort
from inferd.tensor.array import Array
from inferd.tensor.dtype import DataType, datatype_of

TOLERANCE = 1e-4
"""How much a number may differ, as a share of it or, below 1, as it is, unless somebody says."""

Arrays = Mapping[str, Array]
"""Name of an output -> what it is, shape [rows, ...]."""


class Difference(NamedTuple):
    """The greatest difference in one output.

    `largest` is |got - want| / max(1, |want|); of labels, 1 if one differs and 0 if none does. The
    `row` has it; `differing` is how many rows differ by more than is tolerated.
    """

    output: str
    largest: float
    row: int
    got: Any
    want: Any
    differing: int

    def __str__(self) -> str:
        """Return the difference in words."""
        if not self.largest:
            return "all equal"
        return f"largest difference {self.largest:.1e} (row {self.row}: {self.got} for {self.want})"


def expected(model: LoadedModel, rows: Any, row_count: int, names: list[str]) -> Arrays:
    """Return what the library computes for `rows`, as `LoadedModel.rows` or `table` made them.

    Raises BackendFailed if it refuses them.
    """
    try:
        return {name: array_of(model.outputs[name].call(rows), name, row_count) for name in names}
    except model.faults as error:
        msg = f"the library does not take the rows that the models are compared on: {error}"
        raise BackendFailed(msg) from error


def differences(got: Arrays, want: Arrays, tolerance: float) -> list[Difference]:
    """Return the greatest difference in each output of `got`.

    Labels may differ where the two likeliest classes are as likely, within `tolerance`.
    """
    ties = _ties(want.get(PROBABILITY), tolerance)
    return [_difference(name, array, want[name], tolerance, ties) for name, array in got.items()]


def _ties(shares: Array | None, tolerance: float) -> Array | None:
    """Return for each row whether its two greatest shares are the same, None without shares."""
    if shares is None or shares.dtype.kind != "f" or shares.ndim != 2 or shares.shape[1] < 2:
        return None
    two = np.sort(shares, axis=1)[:, -2:]
    ties: Array = two[:, 1] - two[:, 0] <= tolerance
    return ties


def _difference(
    name: str, got: Array, want: Array, tolerance: float, ties: Array | None
) -> Difference:
    if got.size != want.size or len(got) != len(want):
        return Difference(name, np.inf, 0, f"shape {got.shape}", f"shape {want.shape}", len(want))
    # Converters add or leave out a last dim of 1.
    got = got.reshape(want.shape)
    if want.dtype.kind == "f" and got.dtype.kind == "f":
        apart = _apart(got.astype(np.float64), want.astype(np.float64))
    else:
        # Of labels that are numbers, a converter may have made other ones: 1 for True.
        apart = np.array(_plain(got) != _plain(want), float)
        # Of two classes with the same probability, either is the likeliest: rounding decides.
        if name == PREDICT and ties is not None:
            apart[ties] = 0.0
    if not apart.size:
        return Difference(name, 0.0, 0, None, None, 0)
    at = int(np.argmax(apart))
    row = at // max(1, apart.size // len(apart))
    differing = int((apart.reshape(len(apart), -1) > tolerance).any(axis=1).sum())
    return Difference(
        name, float(apart.flat[at]), row, _plain(got).flat[at], _plain(want).flat[at], differing
    )


def _apart(got: Array, want: Array) -> Array:
    with np.errstate(all="ignore"):
        apart = np.abs(got - want) / np.maximum(1.0, np.abs(want))
    # Equal infinities have a difference of NaN, and so have equal NaN.
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    apart = np.where(same, 0.0, apart)
    # Only one side is NaN: no tolerance covers that.
    return np.where(np.isnan(apart), np.inf, apart)


def _plain(array: Array) -> Array:
    if array.dtype.kind not in "OSU":
        return array
    # ONNX gives text as str, labels of libraries may be bytes.
    texts = [one.decode() if isinstance(one, bytes) else str(one) for one in array.ravel().tolist()]
    return np.array(texts, object).reshape(array.shape)


ROWS = 2000
"""How many rows a model is compared on if there is no sample."""


class Conversion(NamedTuple):
    """The ONNX model, and how it differs from the library on `row_count` rows.

    These were drawn around `threshold_count` thresholds of the model; None: they are a sample.
    Rows with NaN or infinity are `refused` where it would answer otherwise than the library.
    """

    content: bytes
    differences: list[Difference]
    row_count: int
    threshold_count: int | None
    refused: unusual.RefusedValues

    @property
    def where(self) -> str:
        """The drawn rows in words, "" for a sample."""
        if self.threshold_count is None:
            return ""
        if self.threshold_count:
            return f"{self.row_count} rows drawn around its {self.threshold_count} thresholds"
        return f"{self.row_count} drawn rows"


_BACKENDS = {
    "sklearn": ("sklearn", "SklearnBackend"),
    "xgboost": ("boosters", "XgboostBackend"),
    "lightgbm": ("boosters", "LightgbmBackend"),
    "catboost": ("boosters", "CatboostBackend"),
}
"""Library -> the module, and its class, that loads its models."""

LIBRARIES = tuple(_BACKENDS)


def loaded(library: str, file: Path, config: ModelConfig) -> LoadedModel:
    """Return the model of `library` in `file`. Raises InferdError.

    Raises Unsupported if a package it needs is not installed.
    """
    name, kind = _BACKENDS[library]
    module = import_module(f"inferd.backends.estimator.{name}")
    try:
        backend: EstimatorBackend = getattr(module, kind)()
        return backend.load(ModelFiles(file.parent, 1, file.parent, file), config)
    except ModuleNotFoundError as error:
        msg = f"the package '{error.name}' is not installed: pip install 'inferd[{library}]'"
        raise Unsupported(msg) from error


def converted(
    model: LoadedModel,
    sample: Columns | None = None,
    config: ModelConfig | None = None,
    *,
    tolerance: float = TOLERANCE,
    row_count: int = ROWS,
) -> Conversion:
    """Convert `model`, and compare both on the columns, or the one array of rows, of `sample`.

    An array of shape [rows, columns] is the only one in `sample`; columns have the shape [rows].
    Inputs and outputs have the names and datatypes that `config` gives them, or else those of
    `sample` and of the library's answers. Raises Unsupported for what cannot be converted,
    BackendFailed for rows that the library refuses, InvalidConfig for inputs or outputs that are
    not the model's.
    """
    config = config or ModelConfig("")
    columns, threshold_count = sample, None
    if columns is None:
        columns, threshold_count = _drawn(model, row_count)
    columns = as_configured(columns, config)
    ports = [OnnxPort(name, _datatype(column), _shape(column)) for name, column in columns.items()]
    try:
        # The outputs are rewritten with it below; that it is missing
        # should not take a conversion to say.
        import_module("onnx")
        content = libraries.onnx_of(model.origin, ports, transforms=PREDICT not in model.outputs)
    except ModuleNotFoundError as error:
        msg = f"converting needs the package '{error.name}': pip install 'inferd[convert]'"
        raise Unsupported(msg) from error
    row_count = len(next(iter(columns.values())))
    # A converter may give the shares of an SVC that computes none.
    answers = _answers(content, columns)
    got = {name: array for name, array in answers.items() if name in model.outputs}
    want = expected(model, _rows(model, columns), row_count, list(got))
    # Otherwise the comparison below reports the sizes; no Reshape could make them fit.
    if all(array.size == want[name].size for name, array in got.items()):
        wanted = _wanted(model, config, want)
        content = libraries.with_outputs(content, wanted)
        answers = _answers(content, columns)
        got = {one.source: answers[name] for name, one in wanted.items()}
        want = {one.source: one.answer for one in wanted.values()}
    found = differences(got, want, tolerance)
    refused = unusual.RefusedValues()
    if all(one.largest <= tolerance for one in found):
        compare = partial(_outcome, model, content, config, list(want), tolerance)
        if places := unusual.unseen_in(columns, compare):
            raise Unsupported(
                f"converted to ONNX, it would answer values of column {places[0].number} of "
                f"'{places[0].name}' that the library refuses, or answers otherwise, such as "
                f"categories that no row has on which the models are compared: have the library "
                f"take them (handle_unknown of its encoders)"
            )
        refused = unusual.refused_in(columns, compare)
        content = unusual.guarded(content, refused, columns)
    return Conversion(content, found, row_count, threshold_count, refused)


def _outcome(
    model: LoadedModel,
    content: bytes,
    config: ModelConfig,
    names: list[str],
    tolerance: float,
    columns: Columns,
) -> unusual.Outcome:
    """Return what the ONNX model in `content` does with `columns`, by the outputs `names`."""
    row_count = len(next(iter(columns.values())))
    try:
        answers = _answers(content, columns)
    except Exception:  # noqa: BLE001  operators raise anything
        return "refused"
    try:
        want = expected(model, _rows(model, columns), row_count, names)
        wanted = _wanted(model, config, want)
    except Exception:  # noqa: BLE001  so do libraries
        return "other"
    got = {one.source: answers[name] for name, one in wanted.items()}
    want = {one.source: one.answer for one in wanted.values()}
    is_same = all(one.largest <= tolerance for one in differences(got, want, tolerance))
    return "same" if is_same else "other"


def converted_for(model: LoadedModel, folder: Path, config: ModelConfig) -> tuple[bytes, str]:
    """Return the ONNX model of `model`, and in words how it differs, as `config` asks; see CONVERT.

    `folder` is the model's. Raises InferdError.
    """
    sample = None
    if name := config.parameters.get(CONVERT_SAMPLE):
        # A configuration may come from a client, who must not have other files of the server read.
        if not (folder / name).resolve().is_relative_to(folder.resolve()):
            raise InvalidConfig(
                f"parameter {CONVERT_SAMPLE} is '{name[:MAX_SHOWN]}', outside of the model's folder"
            )
        sample = read_sample(folder / name, f"parameter {CONVERT_SAMPLE}: {name[:MAX_SHOWN]}")
    tolerance = number(config, CONVERT_TOLERANCE, default=TOLERANCE)
    found = converted(model, sample, config, tolerance=tolerance)
    check(found, tolerance)
    where = found.where or f"the {found.row_count} rows of {name}"
    said = "; ".join(f"{one.output} {one}" for one in found.differences)
    more = f"; {found.refused}" if str(found.refused) else ""
    return found.content, f"converted to ONNX, compared with the library on {where}: {said}{more}"


def check(found: Conversion, tolerance: float) -> None:
    """Raise Unsupported if an output differs by more than `tolerance`."""
    for one in found.differences:
        if one.largest > tolerance:
            rows = f"{one.differing} of {found.row_count} rows"
            raise Unsupported(
                f"converted to ONNX, its {one.output} is not the library's: {one}; {rows} differ "
                f"by more than {tolerance:g}"
            )


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
        known = libraries.thresholds_of(model.origin, parts)
    except InferdError:
        known = {}  # whatever is wrong with its trees, the conversion says so
    rows, threshold_count = drawn_rows(known, rows_of_training(parts, count), count, row_count)
    return {INPUT: rows}, threshold_count


def as_configured(columns: Columns, config: ModelConfig) -> Columns:
    """Return `columns` with the names and datatypes of the inputs in `config`, if it lists them.

    Without them, a single array has the name of the library's input. Raises InvalidConfig.
    """
    inputs = config.input
    arrays = list(columns.values())
    if not inputs:
        return columns if len(arrays) > 1 else {INPUT: arrays[0]}
    if len(inputs) > 1 and len(arrays) == 1:
        arrays = list(arrays[0].T)
    if len(inputs) > 1 and all(one.name in columns for one in inputs):
        arrays = [columns[one.name] for one in inputs]
    if len(arrays) != len(inputs):
        raise InvalidConfig(
            f"the configuration lists {len(inputs)} inputs, the rows that the models are compared "
            f"on have {len(arrays)} columns"
        )
    return {one.name: _typed(array, one) for one, array in zip(inputs, arrays, strict=True)}


def _typed(array: Array, tensor: ModelInput) -> Array:
    if (array.dtype == object) != (tensor.datatype is DataType.BYTES):
        raise InvalidConfig(
            f"input '{tensor.name}' is {tensor.datatype.value}, the rows that the models are "
            f"compared on are {_datatype(array).value}: give a sample that fits"
        )
    with np.errstate(all="ignore"):
        return array if array.dtype == object else array.astype(tensor.datatype.numpy)


def _wanted(model: LoadedModel, config: ModelConfig, want: Arrays) -> dict[str, libraries.Wanted]:
    """Return the outputs that a converted model is to have, by name."""
    if not config.output:
        return {name: libraries.Wanted(name, array) for name, array in want.items()}
    wanted = {}
    named = outputs_named(config, model.outputs)
    for output in config.output:
        source = named[output.name].name
        if source not in want:
            msg = f"output '{source}' has no counterpart in ONNX; there are {', '.join(want)}"
            raise Unsupported(msg)
        array = want[source]
        # Cast as an answer to a client would be, so that what cannot be cast is refused now. The
        # reshape is the server's to do, on either side.
        tensor = tensor_of(replace(output, reshape=None), array, len(array), is_cast=True)
        wanted[output.name] = libraries.Wanted(source, tensor.numpy())
    return wanted


def _answers(content: bytes, columns: Columns) -> Arrays:
    """Return what an ONNX model answers as tensors, by the names of its outputs."""
    session = _session(content)
    names = [output.name for output in session.get_outputs()]
    answers = zip(names, session.run(names, _feed(session, columns)), strict=True)
    # A list of arrays, perhaps of different shapes, are the shares of several targets.
    return {name: np.asarray(answer) for name, answer in answers if not isinstance(answer, list)}


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
    # Fatal only: rows that the model refuses are part of the comparison, and no news.
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def _feed(session: Any, columns: Columns) -> Mapping[str, Array]:
    """Return what the ONNX model takes for `columns`: floats as wide as its own."""
    inputs = session.get_inputs()
    if len(inputs) == 1 and len(columns) > 1:
        # The converter made one input of all columns.
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
