"""Graphs with independent rows, as the exporters of PyTorch, TensorFlow and others write them."""

import numpy as np
from onnx import helper
from rows_graphs import BOOL, FLOAT, INT64, Case, body, ints, node, simple, weights

_L = {"w": weights(1, 8, 4), "r": weights(1, 8, 2)}


def _dim(x: str, index: int, out: str) -> list:
    """Return how PyTorch's exporter writes x.shape[index]."""
    return [
        node("Shape", [x], [f"{out}_s"]),
        node("Constant", [], [f"{out}_i"], value_int=index),
        node("Gather", [f"{out}_s", f"{out}_i"], [out], axis=0),
    ]


def _view(x: str, y: str, *dims: str | int) -> list:
    """Return how PyTorch's exporter writes x.view(dims), each a scalar's name or a number."""
    nodes, parts = [], []
    for place, dim in enumerate(dims):
        part = f"{y}_d{place}"
        parts.append(part)
        if isinstance(dim, int):
            nodes.append(node("Constant", [], [part], value_ints=[dim]))
        else:
            nodes.append(node("Constant", [], [f"{part}_a"], value_ints=[0]))
            nodes.append(node("Unsqueeze", [dim, f"{part}_a"], [part]))
    nodes.append(node("Concat", parts, [f"{y}_shape"], axis=0))
    return [*nodes, node("Reshape", [x, f"{y}_shape"], [y])]


def _heads(x: str, y: str, *perm: int) -> list:
    return [*_view(x, f"{y}_v", "b", "t", 2, 2), node("Transpose", [f"{y}_v"], [y], perm=perm)]


def _attention(mask: list, *, x=(-1, "t", 4), scores: str = "qk", more=None) -> Case:
    nodes = [*_dim("x", 0, "b"), *_dim("x", 1, "t")]
    for one, perm in {"q": (0, 2, 1, 3), "k": (0, 2, 3, 1), "v": (0, 2, 1, 3)}.items():
        nodes += [node("MatMul", ["x", f"w{one}"], [f"l{one}"]), *_heads(f"l{one}", one, *perm)]
    nodes += [
        node("MatMul", ["q", "k"], ["qk0"]),
        node("Div", ["qk0", "root"], ["qk"]),
        *mask,
        node("Softmax", [scores], ["p"], axis=-1),
        node("MatMul", ["p", "v"], ["o"]),
        node("Transpose", ["o"], ["ot"], perm=[0, 2, 1, 3]),
        *_view("ot", "oc", "b", "t", 4),
        node("MatMul", ["oc", "wo"], ["od"]),
        node("Add", ["od", "x"], ["sum"]),
        node("LayerNormalization", ["sum", "g", "h"], ["y"], axis=-1),
    ]
    matrices = {f"w{one}": weights(4, 4) + index for index, one in enumerate("qkvo")}
    return simple(
        *nodes,
        x=x,
        more=more,
        root=np.float32(1.4),
        g=weights(4),
        h=weights(4),
        **matrices,
        a1=ints(1),
        a2=ints(2),
        one=np.float32(1),
        big=np.float32(-1e4),
        zero=np.int64(0),
        unit=np.int64(1),
    )


def _bert_mask() -> list:
    return [
        node("Unsqueeze", ["mask", "a1"], ["m1"]),
        node("Unsqueeze", ["m1", "a2"], ["m2"]),
        node("Cast", ["m2"], ["m3"], to=1),
        node("Sub", ["one", "m3"], ["m4"]),
        node("Mul", ["m4", "big"], ["m5"]),
        node("Add", ["qk", "m5"], ["masked"]),
    ]


def _causal_mask() -> list:
    return [
        node("Range", ["zero", "t", "unit"], ["r"]),
        node("Unsqueeze", ["r", "a1"], ["rows"]),
        node("Less", ["rows", "r"], ["later"]),
        node("Where", ["later", "big", "qk"], ["masked"]),
    ]


def _lstm(*tail, first: str = "LSTM", **settings) -> Case:
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[first]
    ways = 2 if settings.get("direction") == "bidirectional" else 1
    return simple(
        node("Transpose", ["x"], ["s"], perm=[1, 0, 2]),
        node(first, ["s", "w", "r"], ["o", "h"], hidden_size=2, **settings),
        *tail,
        x=(-1, "t", 4),
        w=weights(ways, 2 * gates, 4),
        r=weights(ways, 2 * gates, 2),
        a0=ints(0),
        a1=ints(1),
        flat=ints(0, 0, -1),
        last=np.int64(-1),
        d=weights(2, 3),
    )


def _conv(channels: int, given: int, kernel: int = 3) -> np.ndarray:
    return weights(channels, given, kernel, kernel)


def _swin() -> Case:
    return simple(
        *_dim("x", 0, "b"),
        *_view("x", "p", "b", 2, 2, 2, 2, 3),
        node("Transpose", ["p"], ["q"], perm=[0, 1, 3, 2, 4, 5]),
        *_view("q", "win", -1, 4, 3),
        node("MatMul", ["win", "w"], ["k"]),
        node("Transpose", ["k"], ["kt"], perm=[0, 2, 1]),
        node("MatMul", ["win", "kt"], ["s"]),
        node("Softmax", ["s"], ["a"]),
        node("MatMul", ["a", "win"], ["o"]),
        *_view("o", "u", "b", 2, 2, 2, 2, 3),
        node("Transpose", ["u"], ["v"], perm=[0, 1, 3, 2, 4, 5]),
        *_view("v", "y", "b", 4, 4, 3),
        x=(-1, 4, 4, 3),
        w=weights(3, 3),
    )


def _if(condition: list, **constants: np.ndarray) -> Case:
    then = body([node("Squeeze", ["x3", "a1"], ["p"])], {}, {"p": FLOAT})
    other = body([node("Identity", ["x3"], ["q"])], {}, {"q": FLOAT})
    choose = node("If", ["c"], ["y"], then_branch=then, else_branch=other)
    return simple(
        node("Unsqueeze", ["x", "a1"], ["x3"]), *condition, choose, a1=ints(1), **constants
    )


def _loop() -> Case:
    step = body(
        [
            node("Identity", ["go"], ["on"]),
            node("MatMul", ["s", "w"], ["u"]),
            node("Tanh", ["u"], ["t"]),
        ],
        {"i": INT64, "go": BOOL, "s": FLOAT},
        {"on": BOOL, "t": FLOAT},
    )
    return simple(
        node("Loop", ["m", "yes", "x"], ["y"], body=step),
        m=np.int64(3),
        yes=np.array(True),
        w=weights(4, 4),
    )


def _scan() -> Case:
    step = body(
        [node("Add", ["s", "v"], ["t"]), node("Tanh", ["t"], ["o"])],
        {"s": FLOAT, "v": FLOAT},
        {"t": FLOAT, "o": FLOAT},
    )
    return simple(
        node("Transpose", ["x"], ["f"], perm=[1, 0, 2]),
        node("ReduceSum", ["x", "a1"], ["z"], keepdims=0),
        node("Scan", ["z", "f"], ["e", "ys"], body=step, num_scan_inputs=1),
        node("Transpose", ["ys"], ["y"], perm=[1, 0, 2]),
        x=(-1, "t", 4),
        a1=ints(1),
    )


def _trees() -> Case:
    return simple(
        helper.make_node(
            "TreeEnsembleRegressor",
            ["x"],
            ["y"],
            domain="ai.onnx.ml",
            n_targets=1,
            nodes_treeids=[0, 0, 0],
            nodes_nodeids=[0, 1, 2],
            nodes_featureids=[0, 0, 0],
            nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"],
            nodes_values=[0.1, 0.0, 0.0],
            nodes_truenodeids=[1, 0, 0],
            nodes_falsenodeids=[2, 0, 0],
            target_treeids=[0, 0],
            target_nodeids=[1, 2],
            target_ids=[0, 0],
            target_weights=[1.0, 2.0],
        ),
        ml=3,
    )


_IMAGES = (-1, 3, 8, 8)

INDEPENDENT: dict[str, Case] = {
    "relu": simple(node("Relu", ["x"], ["y"])),
    "dense": simple(
        node("MatMul", ["x", "w"], ["m"]),
        node("Add", ["m", "b"], ["y"]),
        w=weights(4, 3),
        b=weights(3),
    ),
    "gemm, torch": simple(
        node("Gemm", ["x", "w", "b"], ["y"], transB=1), w=weights(3, 4), b=weights(3)
    ),
    "mlp": simple(
        node("Gemm", ["x", "w", "b"], ["h"], transB=1),
        node("Relu", ["h"], ["r"]),
        node("Gemm", ["r", "v"], ["o"]),
        node("Softmax", ["o"], ["y"], axis=1),
        w=weights(5, 4),
        b=weights(5),
        v=weights(5, 2),
    ),
    "old softmax": simple(node("Softmax", ["x"], ["y"]), opset=11),
    "gelu by erf": simple(
        node("Div", ["x", "r"], ["d"]),
        node("Erf", ["d"], ["e"]),
        node("Add", ["e", "o"], ["a"]),
        node("Mul", ["x", "a"], ["m"]),
        node("Mul", ["m", "h"], ["y"]),
        r=np.float32(1.41),
        o=np.float32(1),
        h=np.float32(0.5),
    ),
    "clip": simple(node("Clip", ["x", "a", "b"], ["y"]), a=np.float32(0), b=np.float32(6)),
    "dropout": simple(node("Dropout", ["x", "r"], ["y"]), r=np.float32(0.5)),
    "flattened": simple(
        node("Flatten", ["x"], ["f"]),
        node("Gemm", ["f", "w"], ["y"]),
        x=(-1, 2, 3),
        w=weights(6, 2),
    ),
    "keras reshape": simple(node("Reshape", ["x", "s"], ["y"]), x=(-1, 2, 6), s=ints(-1, 3, 4)),
    "view by batch size": simple(*_dim("x", 0, "b"), *_view("x", "y", "b", -1), x=(-1, 2, 3)),
    "view by 0": simple(node("Reshape", ["x", "s"], ["y"]), x=(-1, 2, 3), s=ints(0, -1)),
    "variable length merged and split": simple(
        *_dim("x", 0, "b"),
        *_dim("x", 1, "t"),
        *_view("x", "f", -1, 4),
        node("MatMul", ["f", "w"], ["m"]),
        *_view("m", "y", "b", "t", 3),
        x=(-1, "t", 4),
        w=weights(4, 3),
    ),
    "keras time distributed": simple(
        node("Reshape", ["x", "s"], ["f"]),
        node("MatMul", ["f", "w"], ["m"]),
        node("Reshape", ["m", "t"], ["y"]),
        x=(-1, 5, 4),
        w=weights(4, 3),
        s=ints(-1, 4),
        t=ints(-1, 5, 3),
    ),
    "channels turned": simple(node("Transpose", ["x"], ["y"], perm=[0, 2, 3, 1]), x=_IMAGES),
    "bert": _attention(_bert_mask(), scores="masked", more={"mask": (INT64, (-1, "t"))}),
    "attention": _attention([]),
    "gpt": _attention(_causal_mask(), scores="masked"),
    "embedding": simple(
        node("Gather", ["e", "x"], ["y"]), kind=INT64, x=(-1, "t"), e=weights(4, 3)
    ),
    "embedding with positions": simple(
        node("Gather", ["e", "x"], ["v"]),
        *_dim("x", 1, "t"),
        node("Range", ["z", "t", "o"], ["r"]),
        node("Gather", ["p", "r"], ["q"]),
        node("Add", ["v", "q"], ["y"]),
        kind=INT64,
        x=(-1, "t"),
        e=weights(4, 3),
        p=weights(8, 3),
        z=np.int64(0),
        o=np.int64(1),
    ),
    "bert's positions by slice": simple(
        node("Gather", ["e", "x"], ["v"]),
        node("Shape", ["x"], ["h"], start=1),
        node("Slice", ["p", "z", "h", "a"], ["q"]),
        node("Gather", ["pe", "q"], ["pq"]),
        node("Add", ["v", "pq"], ["y"]),
        kind=INT64,
        x=(-1, "t"),
        e=weights(4, 3),
        p=np.arange(8).reshape(1, 8),
        pe=weights(8, 3),
        z=ints(0),
        a=ints(1),
    ),
    "first token": simple(node("Gather", ["x", "i"], ["y"], axis=1), x=(-1, "t", 4), i=np.int64(0)),
    "last token by length": simple(
        *_dim("x", 0, "b"),
        node("Range", ["z", "b", "o"], ["r"]),
        node("Unsqueeze", ["r", "a"], ["ru"]),
        node("Unsqueeze", ["n", "a"], ["nu"]),
        node("Concat", ["ru", "nu"], ["i"], axis=-1),
        node("GatherND", ["x", "i"], ["y"]),
        x=(-1, "t", 4),
        more={"n": (INT64, (-1,))},
        z=np.int64(0),
        o=np.int64(1),
        a=ints(1),
    ),
    "mean of tokens by mask": simple(
        node("Unsqueeze", ["mask", "a2"], ["m"]),
        node("Cast", ["m"], ["f"], to=1),
        node("Mul", ["x", "f"], ["p"]),
        node("ReduceSum", ["p", "a1"], ["s"], keepdims=0),
        node("ReduceSum", ["f", "a1"], ["c"], keepdims=0),
        node("Max", ["c", "o"], ["d"]),
        node("Div", ["s", "d"], ["y"]),
        x=(-1, "t", 4),
        more={"mask": (INT64, (-1, "t"))},
        a1=ints(1),
        a2=ints(2),
        o=np.float32(1),
    ),
    "lstm, batch first": _lstm(
        node("Squeeze", ["o", "a1"], ["q"]), node("Transpose", ["q"], ["y"], perm=[1, 0, 2])
    ),
    "lstm's last state": _lstm(
        node("Squeeze", ["h", "a0"], ["q"]), node("MatMul", ["q", "d"], ["y"])
    ),
    "lstm's last output": _lstm(
        node("Squeeze", ["o", "a1"], ["q"]), node("Gather", ["q", "last"], ["y"], axis=0)
    ),
    "bidirectional lstm": _lstm(
        node("Transpose", ["o"], ["q"], perm=[0, 2, 1, 3]),
        node("Reshape", ["q", "flat"], ["f"]),
        node("Transpose", ["f"], ["y"], perm=[1, 0, 2]),
        direction="bidirectional",
    ),
    "gru": _lstm(
        node("Squeeze", ["o", "a1"], ["q"]),
        node("Transpose", ["q"], ["y"], perm=[1, 0, 2]),
        first="GRU",
    ),
    "rnn": _lstm(node("Squeeze", ["h", "a0"], ["y"]), first="RNN"),
    "lstm with states of zeros": simple(
        *_dim("x", 0, "b"),
        node("Unsqueeze", ["b", "a0"], ["bu"]),
        node("Concat", ["one", "bu", "two"], ["s"], axis=0),
        node("ConstantOfShape", ["s"], ["z"]),
        node("Transpose", ["x"], ["f"], perm=[1, 0, 2]),
        node("LSTM", ["f", "w", "r", "", "", "z", "z"], ["o", "h"], hidden_size=2),
        node("Squeeze", ["h", "a0"], ["y"]),
        x=(-1, "t", 4),
        a0=ints(0),
        one=ints(1),
        two=ints(2),
        **_L,
    ),
    "resnet block": simple(
        node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        node("BatchNormalization", ["c", "s", "h", "h", "s"], ["n"]),
        node("Relu", ["n"], ["r"]),
        node("Conv", ["r", "v"], ["d"], pads=[1, 1, 1, 1]),
        node("Add", ["d", "x"], ["y"]),
        x=_IMAGES,
        w=_conv(4, 3),
        v=_conv(3, 4),
        s=np.abs(weights(4)) + 1,
        h=weights(4),
    ),
    "resnet head": simple(
        node("GlobalAveragePool", ["x"], ["p"]),
        node("Flatten", ["p"], ["f"]),
        node("Gemm", ["f", "w"], ["y"]),
        x=_IMAGES,
        w=weights(3, 2),
    ),
    "lenet": simple(
        node("Conv", ["x", "w"], ["c"]),
        node("MaxPool", ["c"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Reshape", ["p", "s"], ["f"]),
        node("Gemm", ["f", "v"], ["y"]),
        x=_IMAGES,
        w=_conv(4, 3),
        v=weights(36, 2),
        s=ints(-1, 36),
    ),
    "mobilenet": simple(
        node("Conv", ["x", "w"], ["c"], group=3, pads=[1, 1, 1, 1]),
        node("HardSwish", ["c"], ["h"]),
        node("ReduceMean", ["h"], ["m"], axes=[2, 3]),
        node("HardSigmoid", ["m"], ["g"]),
        node("Mul", ["h", "g"], ["y"]),
        x=_IMAGES,
        w=_conv(3, 1),
    ),
    "shuffle of channels": simple(
        *_dim("x", 0, "b"),
        *_view("x", "p", "b", 2, 2, 8, 8),
        node("Transpose", ["p"], ["q"], perm=[0, 2, 1, 3, 4]),
        *_view("q", "y", "b", -1, 8, 8),
        x=(-1, 4, 8, 8),
    ),
    "unet": simple(
        node("Conv", ["x", "w"], ["d"], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Resize", ["d", "", "s"], ["u"], mode="nearest"),
        node("Concat", ["x", "u"], ["y"], axis=1),
        x=_IMAGES,
        w=_conv(4, 3),
        s=np.float32([1, 1, 2, 2]),
    ),
    "transposed convolution": simple(
        node("ConvTranspose", ["x", "w"], ["y"], strides=[2, 2]), x=_IMAGES, w=_conv(3, 2)
    ),
    "interpolated to a size": simple(
        node("Shape", ["x"], ["h"]),
        node("Slice", ["h", "z", "two", "z"], ["n"]),
        node("Concat", ["n", "s"], ["size"], axis=0),
        node("Resize", ["x", "", "", "size"], ["y"]),
        x=_IMAGES,
        z=ints(0),
        two=ints(2),
        s=ints(4, 4),
    ),
    "group norm, torch": simple(
        node("Reshape", ["x", "s"], ["g"]),
        node("InstanceNormalization", ["g", "o", "z"], ["i"]),
        node("Shape", ["x"], ["h"]),
        node("Reshape", ["i", "h"], ["y"]),
        x=(-1, 4, 8, 8),
        s=ints(0, 2, -1),
        o=np.float32([1, 1]),
        z=np.float32([0, 0]),
    ),
    "instance norm": simple(
        node("InstanceNormalization", ["x", "s", "b"], ["y"]), x=_IMAGES, s=weights(3), b=weights(3)
    ),
    "layer norm in parts": simple(
        node("ReduceMean", ["x"], ["m"], axes=[-1]),
        node("Sub", ["x", "m"], ["d"]),
        node("Pow", ["d", "two"], ["q"]),
        node("ReduceMean", ["q"], ["v"], axes=[-1]),
        node("Add", ["v", "e"], ["w"]),
        node("Sqrt", ["w"], ["s"]),
        node("Div", ["d", "s"], ["y"]),
        two=np.float32(2),
        e=np.float32(1e-5),
    ),
    "tcn": simple(
        node("Pad", ["x", "p"], ["q"]),
        node("Conv", ["q", "w"], ["c"], dilations=[2]),
        node("Relu", ["c"], ["r"]),
        node("Add", ["r", "x"], ["y"]),
        x=(-1, 3, 7),
        p=ints(0, 0, 4, 0, 0, 0),
        w=weights(3, 3, 3),
    ),
    "wav2vec": simple(
        node("Unsqueeze", ["x", "a"], ["u"]),
        node("Conv", ["u", "w"], ["c"], strides=[2]),
        node("Transpose", ["c"], ["t"], perm=[0, 2, 1]),
        node("MatMul", ["t", "v"], ["y"]),
        x=(-1, 16),
        a=ints(1),
        w=weights(3, 1, 4),
        v=weights(3, 2),
    ),
    "vit": simple(
        node("Conv", ["x", "w"], ["c"], strides=[4, 4]),
        node("Reshape", ["c", "s"], ["f"]),
        node("Transpose", ["f"], ["t"], perm=[0, 2, 1]),
        *_dim("x", 0, "b"),
        node("Unsqueeze", ["b", "a"], ["bu"]),
        node("Concat", ["bu", "m", "m"], ["e"], axis=0),
        node("ConstantOfShape", ["n"], ["ones"], value=helper.make_tensor("v", INT64, [1], [1])),
        node("Mul", ["ones", "m"], ["neg"]),
        node("Equal", ["e", "neg"], ["is"]),
        node("Where", ["is", "ones", "e"], ["size"]),
        node("Expand", ["k", "size"], ["cls"]),
        node("Concat", ["cls", "t"], ["j"], axis=1),
        node("Add", ["j", "p"], ["y"]),
        x=_IMAGES,
        w=_conv(5, 3, 4),
        s=ints(0, 5, -1),
        a=ints(0),
        m=ints(-1),
        n=ints(3),
        k=weights(1, 1, 5),
        p=weights(1, 5, 5),
    ),
    "swin": _swin(),
    "chunked": simple(
        node("Split", ["x"], ["a", "b"], axis=-1),
        node("Sigmoid", ["b"], ["g"]),
        node("Mul", ["a", "g"], ["y"]),
    ),
    "split by sizes": simple(
        node("Split", ["x", "s"], ["a", "b"], axis=1),
        node("Concat", ["b", "a"], ["y"], axis=1),
        s=ints(1, 3),
    ),
    "rotated halves": simple(
        node("Slice", ["x", "z", "two", "l"], ["a"]),
        node("Slice", ["x", "two", "e", "l"], ["b"]),
        node("Neg", ["b"], ["n"]),
        node("Concat", ["n", "a"], ["y"], axis=-1),
        z=ints(0),
        two=ints(2),
        e=ints(2**63 - 1),
        l=ints(-1),
    ),
    "rolled columns": simple(
        node("Slice", ["x", "m", "e", "a"], ["p"]),
        node("Slice", ["x", "z", "m", "a"], ["q"]),
        node("Concat", ["p", "q"], ["y"], axis=1),
        m=ints(-1),
        e=ints(2**62),
        z=ints(0),
        a=ints(1),
    ),
    "top columns": simple(node("TopK", ["x", "k"], ["y", "i"]), k=ints(2)),
    "argmax": simple(node("ArgMax", ["x"], ["y"], axis=1, keepdims=0), y=INT64),
    "cumulative columns": simple(node("CumSum", ["x", "a"], ["y"]), a=np.int64(1)),
    "gathered columns": simple(
        node("TopK", ["x", "k"], ["v", "i"]),
        node("GatherElements", ["x", "i"], ["y"], axis=1),
        k=ints(2),
    ),
    "two towers": simple(
        node("Mul", ["x", "z"], ["m"]),
        node("ReduceSum", ["m", "a"], ["y"]),
        more={"z": (FLOAT, (-1, 4))},
        a=ints(1),
    ),
    "einsum with weights": simple(
        node("Einsum", ["x", "w"], ["y"], equation="bi,ij->bj"), w=weights(4, 3)
    ),
    "einsum of heads": simple(
        node("Einsum", ["x", "x"], ["y"], equation="bid,bjd->bij"), x=(-1, 3, 4)
    ),
    "quantized": simple(
        node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        node("DequantizeLinear", ["q", "s", "z"], ["y"]),
        s=np.float32(0.1),
        z=np.uint8(128),
    ),
    "trees": _trees(),
    "scaler": simple(
        node("Scaler", ["x"], ["y"], domain="ai.onnx.ml", offset=[0.1] * 4, scale=[2.0] * 4), ml=3
    ),
    "linear classifier": simple(
        node(
            "LinearClassifier",
            ["x"],
            ["l", "y"],
            domain="ai.onnx.ml",
            coefficients=[0.5] * 8,
            intercepts=[0.0, 0.1],
            classlabels_ints=[0, 1],
        ),
        ml=3,
    ),
    "if of a constant": _if(
        [node("Constant", [], ["c"], value=helper.make_tensor("v", BOOL, [], [1]))]
    ),
    "if of a column count": _if(
        [*_dim("x3", 1, "d"), node("Equal", ["d", "o"], ["c"])], o=np.int64(1)
    ),
    "if of twice the rows": _if(
        [
            *_dim("x3", 0, "d"),
            node("Mul", ["d", "two"], ["n"]),
            node("Equal", ["n", "o"], ["c"]),
        ],
        two=np.int64(2),
        o=np.int64(1),
    ),
    "loop": _loop(),
    "scan over time": _scan(),
    "one hot": simple(
        node("OneHot", ["x", "d", "v"], ["y"]),
        kind=INT64,
        x=(-1, 3),
        d=np.int64(4),
        v=np.float32([0, 1]),
    ),
    "both passes at once": simple(
        node("Concat", ["x", "z"], ["two"], axis=0),
        node("MatMul", ["two", "w"], ["m"]),
        node("Split", ["m"], ["a", "b"], axis=0),
        node("Sub", ["a", "b"], ["y"]),
        more={"z": (FLOAT, (-1, 4))},
        w=weights(4, 3),
    ),
    "gelu, fused": simple(
        node("MatMul", ["x", "w"], ["m"]),
        node("BiasGelu", ["m", "b"], ["y"], domain="com.microsoft"),
        w=weights(4, 3),
        b=weights(3),
    ),
    "skip and norm, fused": simple(
        node("SkipLayerNormalization", ["x", "x", "g", "h"], ["y"], domain="com.microsoft"),
        x=(-1, 3, 4),
        g=weights(4),
        h=weights(4),
    ),
}
