"""ONNX models made of models of scikit-learn, XGBoost, LightGBM and CatBoost.

Outputs are named after the methods whose results they are. What has no counterpart is refused; that
the others are right is for the comparison to say.
"""

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

from inferd.backends.estimator.conversion.drawn import Known, by_column, thresholds_in
from inferd.backends.estimator.model import PREDICT, PROBABILITY
from inferd.errors import InferdError, Unsupported, foreign_text
from inferd.formats.onnx_model import OnnxPort, onnx_type
from inferd.formats.trees.ensemble import PAIR, VALUES, Ensemble, encode_ensemble
from inferd.formats.trees.lightgbm import read_lightgbm
from inferd.formats.trees.xgboost import read_xgboost
from inferd.tensor.array import Array
from inferd.tensor.dtype import DataType, datatype_of

_OPSETS = {"": 18, "ai.onnx.ml": 3}

_SHOWN = 300


def onnx_of(estimator: Any, ports: Sequence[OnnxPort], *, transforms: bool) -> bytes:
    """Return `estimator` as an ONNX model with the inputs `ports`; trees take FP32 only.

    `transforms` tells that it cannot predict. Raises Unsupported for what cannot be converted,
    ModuleNotFoundError without a converter.
    """
    root = root_of(estimator)
    try:
        if root in _ENSEMBLES:
            ensemble = _ENSEMBLES[root](estimator)
            output = PREDICT if ensemble.labels is None else PROBABILITY
            return encode_ensemble(ensemble, ports[0].name, output, PREDICT)
        if root == "catboost":
            return _of_catboost(estimator, ports[0].name)
        return _of_sklearn(estimator, ports, "transform" if transforms else PREDICT)
    except (InferdError, ModuleNotFoundError):
        raise
    except Exception as error:
        why = foreign_text(error)[:_SHOWN]
        msg = f"{type(estimator).__name__} cannot be converted to ONNX: {why}"
        raise Unsupported(msg) from error


def root_of(estimator: Any) -> str:
    """Return the name of the package that an estimator's class is from."""
    # Its Booster and its scikit-learn classes; subclasses of a user's own are in other packages.
    if hasattr(estimator, "get_booster"):
        return "xgboost"
    return type(estimator).__module__.partition(".")[0]


def thresholds_of(estimator: Any, parts: Sequence[object]) -> Known:
    """Return the thresholds of the trees in `estimator`, which consists of `parts`, by column."""
    root = root_of(estimator)
    if root in _ENSEMBLES:
        trees = _ENSEMBLES[root](estimator).trees
        inner = [tree.left >= 0 for tree in trees]
        features = [tree.feature[which] for tree, which in zip(trees, inner, strict=True)]
        values = [tree.value[which] for tree, which in zip(trees, inner, strict=True)]
        return by_column(features, values)
    if root == "catboost":
        borders = estimator._get_borders()
        return {int(column): np.asarray(values) for column, values in borders.items()}
    return thresholds_in(parts)


def _of_xgboost(model: Any) -> Ensemble:
    booster = model.get_booster()
    best = _best_iteration(model)
    if best is not None:
        # predict() of a model that stopped early uses the trees up to the best round only.
        booster = booster[: best + 1]
    return _with_labels(read_xgboost(bytes(booster.save_raw("ubj"))), model)


def _best_iteration(model: Any) -> int | None:
    try:
        found: int | None = model.best_iteration
    except AttributeError:  # it was trained without early stopping
        return None
    return found


def _of_lightgbm(model: Any) -> Ensemble:
    booster = getattr(model, "booster_", model)
    # Likewise. best_iteration is 0 without early stopping, and -1 asks for all trees.
    text = booster.model_to_string(num_iteration=booster.best_iteration or -1)
    return _with_labels(read_lightgbm(text.encode()), model)


def _with_labels(ensemble: Ensemble, model: Any) -> Ensemble:
    classes = getattr(model, "classes_", None)
    if classes is None:
        return ensemble
    labels = np.asarray(classes)
    if labels.dtype.kind in "OSU":
        labels = np.array([str(label).encode() for label in labels.tolist()], object)
    ensemble.labels = labels
    ensemble.answer = PAIR if len(ensemble.base) == 1 else VALUES
    if ensemble.transform == "argmax":
        ensemble.transform = "softmax"
    if ensemble.columns != len(labels):
        msg = f"it has {len(labels)} classes and {ensemble.columns} outputs: several targets"
        raise Unsupported(msg)
    return ensemble


_ENSEMBLES = {"xgboost": _of_xgboost, "lightgbm": _of_lightgbm}


def _of_sklearn(estimator: Any, ports: Sequence[OnnxPort], main: str) -> bytes:
    skl2onnx = import_module("skl2onnx")
    types = import_module("skl2onnx.common.data_types")
    kinds = {
        DataType.FP32: types.FloatTensorType,
        DataType.FP64: types.DoubleTensorType,
        DataType.INT64: types.Int64TensorType,
        DataType.BOOL: types.BooleanTensorType,
        DataType.BYTES: types.StringTensorType,
    }
    inputs = []
    for port in ports:
        # BF16 stands for "none": skl2onnx has no type for it.
        kind = kinds.get(port.datatype or DataType.BF16)
        if kind is None or port.shape is None:
            names = ", ".join(one.value for one in kinds)
            msg = f"input '{port.name}' is {port.datatype}, a converted model takes {names}"
            raise Unsupported(msg)
        inputs.append((port.name, kind([None, *port.shape[1:]])))
    model = skl2onnx.convert_sklearn(
        estimator,
        initial_types=inputs,
        # By default it makes a list of maps from label to share, which no tensor can be.
        options={id(estimator): {"zipmap": False}} if hasattr(estimator, "classes_") else None,
        target_opset=_OPSETS,
    )
    return _renamed(model, {"label": PREDICT, "probabilities": PROBABILITY, "variable": main}, main)


def _of_catboost(model: Any, name: str) -> bytes:
    onnx = import_module("onnx")
    # CatBoost writes ONNX to files only.
    with TemporaryDirectory() as folder:
        file = Path(folder) / "model.onnx"
        model.save_model(str(file), format="onnx")
        found = onnx.load(str(file))
    # Classes come as a list of maps; their keys are those of the labels, in order.
    for node in [one for one in found.graph.node if one.op_type == "ZipMap"]:
        found.graph.node.remove(node)
        for output in found.graph.output:
            if output.name == node.output[0]:
                output.CopyFrom(
                    onnx.helper.make_tensor_value_info(node.input[0], onnx.TensorProto.FLOAT, None)
                )
    renamed = {one.name: name for one in found.graph.input}
    outputs = {"label": PREDICT, "probability_tensor": PROBABILITY, "predictions": PREDICT}
    return _renamed(found, renamed | outputs | {"probabilities": PROBABILITY}, PREDICT)


def _renamed(model: Any, names: dict[str, str], main: str) -> bytes:
    """Return an onnx.ModelProto with its tensors renamed, and only the outputs named so.

    Raises Unsupported if `main` is not among them.
    """
    graph = model.graph
    ports = {port.name for port in (*graph.input, *graph.output)}
    names = {old: new for old, new in names.items() if old in ports}
    for output in [one for one in graph.output if one.name not in names]:
        graph.output.remove(output)
    for node in graph.node:
        node.output[:] = [names.get(name, name) for name in node.output]
        node.input[:] = [names.get(name, name) for name in node.input]
    for port in (*graph.input, *graph.output):
        port.name = names.get(port.name, port.name)
    found = [output.name for output in graph.output]
    if main not in found:
        msg = f"the converter gives {', '.join(found) or 'no known output'}, not {main}"
        raise Unsupported(msg)
    content: bytes = model.SerializeToString()
    return content


_OPSET = 18  # for a model that has no operator of this domain so far


class Wanted(NamedTuple):
    """An output: the one that `source` is in the model so far, and the library's own `answer`."""

    source: str
    answer: Array


def with_outputs(content: bytes, wanted: Mapping[str, Wanted]) -> bytes:
    """Return an ONNX model that has the outputs `wanted`, by name, and no others.

    Each takes the datatype of its answer, and all dims but the first. Raises ModuleNotFoundError
    without the package onnx.
    """
    onnx = import_module("onnx")
    model = onnx.load_model_from_string(content)
    graph = model.graph
    if not any(opset.domain in ("", "ai.onnx") for opset in model.opset_import):
        model.opset_import.add(domain="", version=_OPSET)
    # The new outputs may have the names that the old ones had, so those give way.
    sources = {one.source: f"{one.source} as computed" for one in wanted.values()}
    for node in graph.node:
        for names in (node.input, node.output):
            names[:] = [sources.get(name, name) for name in names]
    del graph.output[:]
    # It may describe tensors under names that they no longer have.
    del graph.value_info[:]
    for name, (source, answer) in wanted.items():
        kind = onnx_type(datatype_of(answer.dtype))
        dims = answer.shape[1:]
        cast, shape = f"{name} of its datatype", f"shape of {name}"
        # 0 keeps the number of rows (ONNX, Reshape).
        graph.initializer.append(onnx.numpy_helper.from_array(np.array([0, *dims]), shape))
        graph.node.append(onnx.helper.make_node("Cast", [sources[source]], [cast], to=kind))
        graph.node.append(onnx.helper.make_node("Reshape", [cast, shape], [name]))
        graph.output.append(onnx.helper.make_tensor_value_info(name, kind, [None, *dims]))
    made: bytes = model.SerializeToString()
    return made
