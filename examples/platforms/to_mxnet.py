"""Writes the digit classifier as an MXNet symbol with its parameters.

    python examples/platforms/to_mxnet.py FOLDER

FOLDER becomes a model repository: `inferd serve FOLDER`. MXNet is not needed: a symbol is JSON, and
parameters are a list of arrays, of which this writes the version that MXNet 1.x does.
"""

import json
import struct
import sys
from pathlib import Path

import digits
import numpy as np

MODELS = ("digits_mxnet",)

INPUT = 'input { name: "image" data_type: TYPE_FP32 dims: [8, 8] }\n'
"""Symbols do not tell what their inputs look like."""

ARRAYS, ARRAY, CPU, FLOAT32 = 0x112, 0xF993FAC9, 1, 0


def export(repository: Path) -> None:
    """Write the symbol and the parameters."""
    numbers = digits.weights()
    file = digits.place(repository, MODELS[0], "model-symbol.json", INPUT)
    file.write_text(symbol())
    parameters = {
        "arg:hidden_weight": numbers["hidden_weights"].T,
        "arg:hidden_bias": numbers["hidden_bias"],
        "arg:scores_weight": numbers["score_weights"].T,
        "arg:scores_bias": numbers["score_bias"],
    }
    file.with_name("model-0000.params").write_bytes(arrays(parameters))


def symbol() -> str:
    """Return the graph; a node is (operator, name, the nodes it reads, attributes)."""
    nodes = [
        ("null", "image", [], {}),
        ("Flatten", "pixels", ["image"], {}),
        ("_div_scalar", "scaled", ["pixels"], {"scalar": str(digits.PIXEL_MAX)}),
        ("null", "hidden_weight", [], {}),
        ("null", "hidden_bias", [], {}),
        (
            *("FullyConnected", "hidden", ["scaled", "hidden_weight", "hidden_bias"]),
            {"num_hidden": "48"},
        ),
        ("Activation", "active", ["hidden"], {"act_type": "relu"}),
        ("null", "scores_weight", [], {}),
        ("null", "scores_bias", [], {}),
        (
            *("FullyConnected", "scores", ["active", "scores_weight", "scores_bias"]),
            {"num_hidden": "10"},
        ),
        ("argmax", "best", ["scores"], {"axis": "1", "keepdims": "True"}),
        ("Cast", "digit", ["best"], {"dtype": "int64"}),
        ("softmax", "probability", ["scores"], {"axis": "-1"}),
    ]
    numbers = {name: number for number, (_, name, _, _) in enumerate(nodes)}
    written = [
        {
            "op": operator,
            "name": name,
            "attrs": attributes,
            "inputs": [[numbers[read], 0, 0] for read in reads],
        }
        for operator, name, reads, attributes in nodes
    ]
    return json.dumps(
        {
            "nodes": written,
            "arg_nodes": [number for number, node in enumerate(nodes) if node[0] == "null"],
            "heads": [[numbers["digit"], 0, 0], [numbers["probability"], 0, 0]],
            "attrs": {"mxnet_version": ["int", 10901]},
        },
        indent=2,
    )


def arrays(named: dict[str, np.ndarray]) -> bytes:
    """Return the list that `mx.nd.load` reads: the arrays, then their names."""
    parts = [struct.pack("<QQQ", ARRAYS, 0, len(named))]
    for array in named.values():
        dims = array.shape
        parts.append(struct.pack(f"<Iii{len(dims)}q", ARRAY, 0, len(dims), *dims))
        parts.append(struct.pack("<iii", CPU, 0, FLOAT32))
        parts.append(np.ascontiguousarray(array, "<f4").tobytes())
    parts.append(struct.pack("<Q", len(named)))
    parts += [struct.pack("<Q", len(name)) + name.encode() for name in named]
    return b"".join(parts)


if __name__ == "__main__":
    export(Path(sys.argv[1]))
