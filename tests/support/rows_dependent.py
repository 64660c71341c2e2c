"""Graphs whose rows depend on each other, or on their places, or on how many they are."""

from typing import Any

import numpy as np
from rows_graphs import FLOAT, INT64, Case, body, ints, node, simple, weights

_L = {"w": weights(1, 8, 4), "r": weights(1, 8, 2)}


def _gate(condition: list) -> Case:
    """Return a graph that doubles x where a condition computed before, `c`, holds."""
    then = body([node("Add", ["x", "x"], ["a"])], {}, {"a": FLOAT})
    other = body([node("Identity", ["x"], ["b"])], {}, {"b": FLOAT})
    choose = node("If", ["c"], ["y"], then_branch=then, else_branch=other)
    return simple(*condition, choose, t=np.float32(2), k=ints(1000), one=ints(0), sc=np.int64(1000))


def _scan() -> Case:
    step = body(
        [node("Add", ["s", "v"], ["t"]), node("Identity", ["t"], ["o"])],
        {"s": FLOAT, "v": FLOAT},
        {"t": FLOAT, "o": FLOAT},
    )
    return simple(node("Scan", ["z", "x"], ["e", "y"], body=step, num_scan_inputs=1), z=weights(4))


def _loop(*nodes, result: str) -> Case:
    step = body(
        [node("Identity", ["go"], ["on"]), *nodes],
        {"i": INT64, "go": 9, "s": FLOAT},
        {"on": 9, result: FLOAT},
    )
    return simple(
        node("Loop", ["m", "yes", "x"], ["y"], body=step),
        m=np.int64(3),
        yes=np.array(True),
        ax=ints(0),
    )


def _counted() -> Case:
    step = body(
        [node("Identity", ["go"], ["on"]), node("Add", ["s", "x"], ["t"])],
        {"i": INT64, "go": 9, "s": FLOAT},
        {"on": 9, "t": FLOAT},
    )
    return simple(
        node("Shape", ["x"], ["h"]),
        node("Gather", ["h", "zero"], ["m"]),
        node("Loop", ["m", "yes", "x"], ["y"], body=step),
        zero=np.int64(0),
        yes=np.array(True),
    )


def _counting(*nodes: Any, **constants: Any) -> Case:
    """Return a graph that adds to x all that `nodes` make, as p, of the number of rows, b."""
    return simple(
        node("Shape", ["x"], ["b"], start=0, end=1),
        *nodes,
        node("ReduceSum", ["p"], ["s"], keepdims=0),
        node("Add", ["x", "s"], ["y"]),
        **constants,
    )


DEPENDENT: dict[str, Case] = {
    "softmax over the batch": simple(node("Softmax", ["x"], ["y"], axis=0)),
    "softmax over axis -2": simple(node("Softmax", ["x"], ["y"], axis=-2)),
    "old softmax flattens": simple(node("Softmax", ["x"], ["y"], axis=0), opset=11),
    "log softmax": simple(node("LogSoftmax", ["x"], ["y"], axis=0)),
    "hardmax": simple(node("Hardmax", ["x"], ["y"], axis=0)),
    "sum over the batch": simple(
        node("ReduceSum", ["x", "a"], ["s"]), node("Div", ["x", "s"], ["y"]), a=ints(0)
    ),
    "mean over all": simple(node("ReduceMean", ["x"], ["s"]), node("Sub", ["x", "s"], ["y"])),
    "max over the batch, old": simple(
        node("ReduceMax", ["x"], ["s"], axes=[-2]), node("Sub", ["x", "s"], ["y"])
    ),
    "norm over all": simple(node("ReduceL2", ["x"], ["s"]), node("Div", ["x", "s"], ["y"])),
    "argmax over the batch": simple(
        node("ArgMax", ["x"], ["i"], axis=0),
        node("Gather", ["x", "i"], ["g"], axis=0),
        node("ReduceSum", ["g", "a"], ["s"]),
        node("Add", ["x", "s"], ["y"]),
        a=ints(0, 1),
    ),
    "argmax by default": simple(
        node("ArgMax", ["x"], ["i"]),
        node("Cast", ["i"], ["f"], to=1),
        node("Add", ["x", "f"], ["y"]),
    ),
    "cumulative sum": simple(node("CumSum", ["x", "a"], ["y"]), a=np.int64(0)),
    "cumulative sum, negative": simple(node("CumSum", ["x", "a"], ["y"]), a=np.int64(-2)),
    "lstm time first": simple(
        node("LSTM", ["x", "w", "r"], ["y"], hidden_size=2), x=(-1, 3, 4), **_L
    ),
    "gru time first": simple(
        node("GRU", ["x", "w", "r"], ["y"], hidden_size=2),
        x=(-1, 3, 4),
        w=weights(1, 6, 4),
        r=weights(1, 6, 2),
    ),
    "rnn time first": simple(
        node("RNN", ["x", "w", "r"], ["y"], hidden_size=2),
        x=(-1, 3, 4),
        w=weights(1, 2, 4),
        r=weights(1, 2, 2),
    ),
    "rnn over unsqueezed rows": simple(
        node("Unsqueeze", ["x", "a"], ["u"]),
        node("RNN", ["u", "w", "r"], ["z"], hidden_size=2),
        node("Reshape", ["z", "s"], ["y"]),
        a=ints(1),
        s=ints(-1, 2),
        w=weights(1, 2, 4),
        r=weights(1, 2, 2),
    ),
    "rolled": simple(
        node("Slice", ["x", "m", "e", "a"], ["p"]),
        node("Slice", ["x", "z", "m", "a"], ["q"]),
        node("Concat", ["p", "q"], ["y"], axis=0),
        m=ints(-1),
        e=ints(2**62),
        z=ints(0),
        a=ints(0),
    ),
    "reversed": simple(
        node("Slice", ["x", "b", "e", "a", "s"], ["y"]),
        b=ints(-1),
        e=ints(-(2**62)),
        a=ints(0),
        s=ints(-1),
    ),
    "differences": simple(
        node("Slice", ["x", "o", "e", "a"], ["p"]),
        node("Pad", ["p", "pad"], ["q"]),
        node("Sub", ["x", "q"], ["y"]),
        o=ints(1),
        e=ints(2**62),
        a=ints(0),
        pad=ints(0, 0, 1, 0),
    ),
    "first row for all": simple(
        node("Gather", ["x", "i"], ["g"], axis=0), node("Add", ["x", "g"], ["y"]), i=np.int64(0)
    ),
    "last row for all": simple(
        node("Gather", ["x", "i"], ["g"], axis=0), node("Add", ["x", "g"], ["y"]), i=ints(-1)
    ),
    "rows by constant numbers": simple(node("Gather", ["x", "i"], ["y"], axis=0), i=ints(0, 0)),
    "gathered across rows": simple(
        node("TopK", ["x", "k"], ["v", "i"], axis=0),
        node("GatherElements", ["x", "i"], ["g"], axis=0),
        node("Add", ["x", "g"], ["y"]),
        k=ints(1),
    ),
    "top over all rows": simple(
        node("TopK", ["x", "k"], ["v", "i"], axis=0), node("Sub", ["x", "v"], ["y"]), k=ints(1)
    ),
    "scattered into a row": simple(
        node("ScatterND", ["x", "i", "u"], ["y"]), i=ints(0).reshape(1, 1), u=weights(1, 4)
    ),
    "scattered along the batch": simple(
        node("ScatterElements", ["x", "i", "u"], ["y"], axis=0),
        i=ints(0, 0, 0, 0).reshape(1, 4),
        u=weights(1, 4),
    ),
    "nonzero": simple(
        node("NonZero", ["x"], ["z"]),
        node("Cast", ["z"], ["f"], to=1),
        node("ReduceMax", ["f"], ["m"]),
        node("Add", ["x", "m"], ["y"]),
    ),
    "unique": simple(
        node("Unique", ["x"], ["u"]),
        node("ReduceSum", ["u"], ["m"]),
        node("Add", ["x", "m"], ["y"]),
    ),
    "compressed": simple(
        node("ReduceSum", ["x", "a"], ["s"], keepdims=0),
        node("Greater", ["s", "z"], ["c"]),
        node("Compress", ["x", "c"], ["y"], axis=0),
        a=ints(1),
        z=np.float32(0),
    ),
    "attention across the batch": simple(
        node("Transpose", ["x"], ["t"]),
        node("MatMul", ["x", "t"], ["m"]),
        node("Softmax", ["m"], ["p"]),
        node("MatMul", ["p", "x"], ["y"]),
    ),
    "attention over sequences first": simple(
        node("Transpose", ["x"], ["q"], perm=[1, 0, 2]),
        node("Transpose", ["x"], ["k"], perm=[1, 2, 0]),
        node("MatMul", ["q", "k"], ["m"]),
        node("Softmax", ["m"], ["p"]),
        node("MatMul", ["p", "q"], ["o"]),
        node("Transpose", ["o"], ["y"], perm=[1, 0, 2]),
        x=(-1, 3, 4),
    ),
    "gram matrix": simple(
        node("Gemm", ["x", "x"], ["g"], transA=1), node("MatMul", ["x", "g"], ["y"])
    ),
    "einsum over rows": simple(
        node("Einsum", ["x", "x"], ["g"], equation="ni,nj->ij"), node("MatMul", ["x", "g"], ["y"])
    ),
    "einsum of pairs": simple(node("Einsum", ["x", "x"], ["y"], equation="ni,mi->nm")),
    "pairwise distances": simple(
        node("Unsqueeze", ["x", "a"], ["p"]),
        node("Unsqueeze", ["x", "b"], ["q"]),
        node("Sub", ["p", "q"], ["d"]),
        node("ReduceSum", ["d", "c"], ["y"], keepdims=0),
        a=ints(0),
        b=ints(1),
        c=ints(1),
    ),
    "batch norm in training": simple(
        node("BatchNormalization", ["x", "s", "s", "s", "s"], ["y", "m", "v"], training_mode=1),
        s=np.abs(weights(4)) + 1,
    ),
    "mean variance by default": simple(
        node("MeanVarianceNormalization", ["x"], ["y"]), x=(-1, 2, 3, 3)
    ),
    "instance norm of turned images": simple(
        node("Transpose", ["x"], ["t"], perm=[1, 2, 0]),
        node("InstanceNormalization", ["t", "s", "b"], ["o"]),
        node("Transpose", ["o"], ["y"], perm=[2, 0, 1]),
        x=(-1, 2, 3),
        s=weights(3),
        b=weights(3),
    ),
    "layer norm from axis 0": simple(
        node("Transpose", ["x"], ["t"]),
        node("LayerNormalization", ["t", "s"], ["o"], axis=0),
        node("Transpose", ["o"], ["y"]),
        x=(-1, 1),
        s=weights(1, 1),
    ),
    "lp norm": simple(node("LpNormalization", ["x"], ["y"], axis=0)),
    "convolution over the batch": simple(
        node("Transpose", ["x"], ["t"]),
        node("Unsqueeze", ["t", "a"], ["u"]),
        node("Conv", ["u", "w"], ["c"], pads=[1, 1]),
        node("Squeeze", ["c", "a"], ["s"]),
        node("Transpose", ["s"], ["y"]),
        a=ints(0),
        w=weights(4, 4, 3),
    ),
    "pool over the batch": simple(
        node("Transpose", ["x"], ["t"]),
        node("Unsqueeze", ["t", "a"], ["u"]),
        node("AveragePool", ["u"], ["c"], kernel_shape=[3], pads=[1, 1]),
        node("Squeeze", ["c", "a"], ["s"]),
        node("Transpose", ["s"], ["y"]),
        a=ints(0),
    ),
    "dynamic quantization": simple(
        node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        node("DequantizeLinear", ["q", "s", "z"], ["y"]),
    ),
    "dynamically quantized product": simple(
        node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        node("MatMulInteger", ["q", "w", "z"], ["m"]),
        node("Cast", ["m"], ["f"], to=1),
        node("Mul", ["f", "s"], ["y"]),
        w=np.arange(12, dtype=np.uint8).reshape(4, 3),
    ),
    "dynamic quantization in one operator": simple(
        node("DynamicQuantizeMatMul", ["x", "w", "s"], ["y"], domain="com.microsoft"),
        w=np.arange(12, dtype=np.uint8).reshape(4, 3),
        s=np.float32([0.1]),
    ),
    "divided by the number of rows": simple(
        node("Shape", ["x"], ["h"], start=0, end=1),
        node("Cast", ["h"], ["f"], to=1),
        node("Div", ["x", "f"], ["y"]),
    ),
    "numbered rows": simple(
        node("Shape", ["x"], ["h"]),
        node("Gather", ["h", "z"], ["n"]),
        node("Range", ["z", "n", "o"], ["r"]),
        node("Unsqueeze", ["r", "a"], ["u"]),
        node("Cast", ["u"], ["f"], to=1),
        node("Add", ["x", "f"], ["y"]),
        z=np.int64(0),
        o=np.int64(1),
        a=ints(1),
    ),
    "if of the sum": _gate(
        [node("ReduceSum", ["x"], ["s"], keepdims=0), node("Greater", ["s", "t"], ["c"])]
    ),
    "if of the count beyond 1000": _gate(
        [
            node("Shape", ["x"], ["h"]),
            node("Gather", ["h", "one"], ["n"]),
            node("Greater", ["n", "k"], ["c"]),
        ]
    ),
    "where the count is large": simple(
        node("Shape", ["x"], ["h"]),
        node("Gather", ["h", "i"], ["n"]),
        node("Greater", ["n", "k"], ["c"]),
        node("Neg", ["x"], ["m"]),
        node("Where", ["c", "m", "x"], ["y"]),
        i=np.int64(0),
        k=np.int64(1000),
    ),
    "scan over rows": _scan(),
    "loop with a sum in it": _loop(
        node("ReduceSum", ["s", "ax"], ["q"]), node("Add", ["s", "q"], ["t"]), result="t"
    ),
    "loop with a softmax in it": _loop(node("Softmax", ["s"], ["t"], axis=0), result="t"),
    "loop as often as rows": _counted(),
    "reshaped across rows": simple(
        node("Reshape", ["x", "s"], ["r"]),
        node("Softmax", ["r"], ["p"]),
        node("Reshape", ["p", "b"], ["y"]),
        s=ints(-1, 8),
        b=ints(-1, 4),
        x=(-1, 4),
    ),
    "viewed, not transposed": simple(
        node("Shape", ["x"], ["h"], start=0, end=1),
        node("Concat", ["two", "h", "two"], ["s"], axis=0),
        node("Reshape", ["x", "s"], ["y"]),
        two=ints(2),
    ),
    "squeezed of everything": simple(node("Squeeze", ["x"], ["y"])),
    "random": simple(node("RandomNormalLike", ["x"], ["r"]), node("Add", ["x", "r"], ["y"])),
    "a position for each row": simple(node("Add", ["x", "p"], ["y"]), p=weights(5, 4)),
    "lower triangle": simple(node("Trilu", ["x"], ["y"], upper=0)),
    "tiled": simple(node("Tile", ["x", "t"], ["y"]), t=ints(2, 1)),
    "joined with a constant": simple(node("Concat", ["c", "x"], ["y"], axis=0), c=weights(1, 4)),
    "no row for each item": simple(node("ReduceSum", ["x"], ["y"])),
    "one hot by the largest id": simple(
        node("ReduceMax", ["x"], ["m"], keepdims=0),
        node("Cast", ["m"], ["d"], to=7),
        node("Add", ["d", "five"], ["depth"]),
        node("OneHot", ["ids", "depth", "v"], ["y"]),
        more={"ids": (INT64, (-1,))},
        five=np.int64(5),
        v=np.float32([0, 1]),
    ),
    "turned sequences": simple(
        node("ReverseSequence", ["x", "n"], ["y"], batch_axis=1, time_axis=0), n=ints(2, 2, 1, 1)
    ),
    "as many weights as rows": _counting(
        node("Slice", ["w", "z", "b"], ["p"]), w=weights(2000), z=ints(0)
    ),
    "the weights behind the number of rows": _counting(
        node("Slice", ["w", "b", "e"], ["p"]), w=weights(2000), e=ints(2**62)
    ),
    "filled up to the number of rows": _counting(
        node("Concat", ["z", "b"], ["q"], axis=0),
        node("Pad", ["w", "q", "one"], ["p"]),
        z=ints(0),
        w=weights(1),
        one=np.float32(1),
    ),
    "resized to the number of rows": _counting(
        node("Concat", ["o", "o", "o", "b"], ["q"], axis=0),
        node("Resize", ["w", "", "", "q"], ["p"], mode="nearest"),
        o=ints(1),
        w=np.ones((1, 1, 1, 1), np.float32),
    ),
    "the number of rows for each": simple(
        node("Shape", ["x"], ["b"], start=0, end=1),
        node("Tile", ["b", "b"], ["t"]),
        node("Cast", ["t"], ["f"], to=FLOAT),
        node("Unsqueeze", ["f", "a"], ["u"]),
        node("Add", ["x", "u"], ["y"]),
        a=ints(1),
    ),
    "a mask of the heads": simple(
        node("Attention", ["x", "x", "x", "mask"], ["y"], q_num_heads=2, kv_num_heads=2),
        x=(-1, 3, 4),
        more={"mask": (FLOAT, (-1, 3, 3))},
        opset=23,
    ),
}
