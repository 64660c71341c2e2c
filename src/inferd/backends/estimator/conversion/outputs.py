"""Outputs of a converted model, with the names, datatypes and shapes of the library's answers."""

from collections.abc import Mapping
from importlib import import_module
from typing import NamedTuple

import numpy as np

from inferd.formats.onnx_model import onnx_type
from inferd.tensor.array import Array
from inferd.tensor.dtype import datatype_of

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
