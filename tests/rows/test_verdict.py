"""Verdicts on the rows of ONNX models, which must agree with what ONNX Runtime computes."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from inferd.rows.verdict import verdict_on

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def model(nodes, inputs, outputs=("y",), **made):
    """Return the bytes of a model; `inputs` are names with their dims, floats unless they say."""
    ports = [
        helper.make_tensor_value_info(name, *(dims if isinstance(dims, tuple) else (FLOAT, dims)))
        for name, dims in inputs.items()
    ]
    constants, functions = made.get("constants", {}), made.get("functions", ())
    weights = [numpy_helper.from_array(np.array(a), name) for name, a in constants.items()]
    ends = [helper.make_tensor_value_info(name, FLOAT, None) for name in outputs]
    graph = helper.make_graph(nodes, "g", ports, ends, weights)
    domains = (("", made.get("opset", 17)), *made.get("more", ()))
    opsets = [helper.make_opsetid(domain, version) for domain, version in domains]
    whole = helper.make_model(graph, opset_imports=opsets, functions=functions, ir_version=8)
    return whole.SerializeToString()


def node(op, inputs, outputs="y", **attributes):
    """Return a node; two spaces in a row leave an input out."""
    return helper.make_node(op, inputs.split(" "), outputs.split(), name=op.lower(), **attributes)


def floats(*shape):
    return np.ones(shape, np.float32)


DEPENDENT = {
    "softmax over the batch": ([node("Softmax", "x", axis=0)], {"x": ["n", 4]}),
    "sum over the batch": (
        [node("ReduceSum", "x a", "s"), node("Sub", "x s")],
        {"x": ["n", 4]},
        {"a": [0]},
    ),
    "sum of everything": ([node("ReduceSum", "x", "s"), node("Sub", "x s")], {"x": ["n", 4]}),
    "cumulative sum": ([node("CumSum", "x a")], {"x": ["n", 4]}, {"a": 0}),
    "time first": (
        [node("LSTM", "x w r", hidden_size=2)],
        {"x": ["t", "n", 3]},
        {"w": floats(1, 8, 3), "r": floats(1, 8, 2)},
    ),
    "rows in reverse": (
        [node("Slice", "x s e a t")],
        {"x": ["n", 4]},
        {"s": [-1], "e": [-(2**62)], "a": [0], "t": [-1]},
    ),
    "the first row for all": (
        [node("Gather", "x i", "f", axis=0), node("Sub", "x f")],
        {"x": ["n", 4]},
        {"i": [0]},
    ),
    "each row against all": (
        [node("Transpose", "x", "t"), node("MatMul", "x t")],
        {"x": ["n", 4]},
    ),
    "by the number of rows": (
        [
            node("Shape", "x", "s"),
            node("Gather", "s i", "n"),
            node("Cast", "n", "f", to=FLOAT),
            node("Div", "x f"),
        ],
        {"x": ["n", 4]},
        {"i": 0},
    ),
    "elements of the whole batch": ([node("NonZero", "x")], {"x": ["n", 4]}),
    "top of all rows": ([node("TopK", "x k", "y i", axis=0)], {"x": ["n", 4]}, {"k": [1]}),
    "another order of elements": (
        [node("Reshape", "x s", "t"), node("Transpose", "t")],
        {"x": ["n", 4]},
        {"s": [4, -1]},
    ),
    "rows moved by one": (
        [
            node("Slice", "x s e a", "f"),
            node("Slice", "x z s a", "g"),
            node("Concat", "f g", axis=0),
        ],
        {"x": ["n", 4]},
        {"s": [1], "e": [2**62], "a": [0], "z": [0]},
    ),
    "rows written by number": (
        [node("ScatterND", "x i u")],
        {"x": ["n", 4]},
        {"i": [[0]], "u": floats(1, 4)},
    ),
    "a scale of all rows": (
        [node("DynamicQuantizeLinear", "x", "q s z"), node("DequantizeLinear", "q s z")],
        {"x": ["n", 4]},
    ),
    "random numbers": (
        [node("RandomNormalLike", "x", "r"), node("Add", "x r")],
        {"x": ["n", 4]},
    ),
    "a scalar": ([node("Squeeze", "x")], {"x": ["n", 1]}),
    "an average in training": (
        [node("BatchNormalization", "x s b m v", "y m2 v2", training_mode=1)],
        {"x": ["n", 4]},
        {name: floats(4) for name in "sbmv"},
    ),
    "an equation": ([node("Einsum", "x x", equation="ni,mi->nm")], {"x": ["n", 4]}),
    "two rows in one": ([node("Reshape", "x s")], {"x": ["n", 4]}, {"s": [-1, 8]}),
    "a fixed number of rows": ([node("Reshape", "x s")], {"x": ["n", 4]}, {"s": [2, 4]}),
    "the batch behind": ([node("Transpose", "x")], {"x": ["n", 4]}),
    "rows of fixed weights": ([node("Add", "x w")], {"x": ["n", 4]}, {"w": floats(3, 4)}),
}


@pytest.mark.parametrize("name", DEPENDENT)
def test_rows_that_depend_on_each_other_are_seen(name):
    nodes, inputs, *constants = DEPENDENT[name]
    verdict = verdict_on(model(nodes, inputs, constants=constants[0] if constants else {}))
    assert verdict.rows == "dependent", verdict
    assert verdict.reason


def test_softmax_of_an_old_opset_works_along_all_later_dims():
    nodes = [node("Transpose", "x", "t"), node("Softmax", "t", "u"), node("Transpose", "u")]
    assert verdict_on(model(nodes, {"x": ["n", 4]}, opset=11)).rows == "dependent"
    assert (
        verdict_on(model([node("Softmax", "x")], {"x": ["n", 4]}, opset=11)).rows == "independent"
    )
    assert verdict_on(model([node("Softmax", "x")], {"x": ["n", 2, 4]}, opset=11)).rows == (
        "independent"
    )


def test_time_first_is_no_batch():
    nodes, inputs, constants = DEPENDENT["time first"]
    verdict = verdict_on(model(nodes, inputs, constants=constants))
    assert not verdict.has_batch_dim
    assert "LSTM 'lstm' goes through dim 0 step by step" in verdict.reason


def test_inputs_that_never_meet_are_two_batches_if_they_are_called_so():
    nodes = [node("Relu", "images", "y"), node("Relu", "boxes", "z")]
    other = {"images": ["n", 3], "boxes": ["m", 4]}
    verdict = verdict_on(model(nodes, other, ("y", "z")))
    assert (verdict.rows, verdict.has_batch_dim) == ("dependent", False)
    same = {"images": ["n", 3], "boxes": ["n", 4]}
    assert verdict_on(model(nodes, same, ("y", "z"))).rows == "independent"


def test_rows_of_two_inputs_brought_together_with_all_are_two_batches():
    nodes = [node("Transpose", "b", "t"), node("MatMul", "a t")]
    verdict = verdict_on(model(nodes, {"a": ["n", 4], "b": ["m", 4]}))
    assert (verdict.rows, verdict.has_batch_dim) == ("dependent", False)


INDEPENDENT = {
    "dense": (
        [node("Gemm", "x w b", "h"), node("Relu", "h", "r"), node("Softmax", "r", axis=-1)],
        {"x": ["n", 4]},
        {"w": floats(4, 3), "b": floats(3)},
    ),
    "convolution": (
        [
            node("Conv", "x w", "c", pads=[1, 1, 1, 1]),
            node("MaxPool", "c", "p", kernel_shape=[2, 2], strides=[2, 2]),
            node("Reshape", "p s", "f"),
            node("MatMul", "f v"),
        ],
        {"x": ["n", 3, 8, 8]},
        {"w": floats(4, 3, 3, 3), "s": [-1, 64], "v": floats(64, 2)},
    ),
    "batch first": (
        [
            node("Transpose", "x", "t", perm=[1, 0, 2]),
            node("LSTM", "t w r", "a h c", hidden_size=2),
            node("Squeeze", "h z"),
        ],
        {"x": ["n", "t", 3]},
        {"w": floats(1, 8, 3), "r": floats(1, 8, 2), "z": [0]},
    ),
    "layout": (
        [node("GRU", "x w r", "a y", hidden_size=2, layout=1)],
        {"x": ["n", "t", 3]},
        {"w": floats(1, 6, 3), "r": floats(1, 6, 2)},
    ),
    "merged with time": (
        [
            node("Shape", "x", "d"),
            node("Reshape", "x two", "m"),
            node("MatMul", "m w", "h"),
            node("Slice", "d z two2", "b"),
            node("Concat", "b k", "s", axis=0),
            node("Reshape", "h s"),
        ],
        {"x": ["n", "t", 4]},
        {"two": [-1, 4], "w": floats(4, 5), "z": [0], "two2": [2], "k": [5]},
    ),
    "an equation": (
        [node("Einsum", "x w", equation="nij,jk->nik")],
        {"x": ["n", 3, 4]},
        {"w": floats(4, 2)},
    ),
    "embedding": (
        [node("Gather", "w i")],
        {"i": (INT64, ["n", "t"])},
        {"w": floats(9, 4)},
    ),
    "trees": ([node("Identity", "x")], {"x": ["n", 4]}),
}


@pytest.mark.parametrize("name", INDEPENDENT)
def test_rows_that_are_kept_apart_are_proved_to_be(name):
    nodes, inputs, *constants = INDEPENDENT[name]
    verdict = verdict_on(model(nodes, inputs, constants=constants[0] if constants else {}))
    assert verdict.rows == "independent", verdict


def branch(name, *nodes):
    end = helper.make_tensor_value_info("y", FLOAT, None)
    return helper.make_graph(nodes, name, [], [end])


RELU, ABS = branch("relu", node("Relu", "x")), branch("abs", node("Abs", "x"))


def test_graphs_of_unknown_operators_may_look_at_rows():
    body = helper.make_graph(
        [node("ReduceSum", "x zero", "sum"), node("Add", "one sum", "y")],
        "body",
        [helper.make_tensor_value_info("one", FLOAT, None)],
        [helper.make_tensor_value_info("y", FLOAT, None)],
    )
    nodes = [
        node("SequenceConstruct", "w", "some"),
        node("SequenceMap", "some", "sums", body=body),
        node("ConcatFromSequence", "sums", "scale", axis=0),
        node("BatchNormalization", "x scale w w w"),
    ]
    verdict = verdict_on(model(nodes, {"x": ["n", 4]}, constants={"w": floats(4), "zero": [0]}))
    assert verdict.rows == "open"
    assert "SequenceMap" in verdict.reason


def test_branches_are_looked_into():
    apart = branch("then", node("Relu", "x"))
    mixed = branch("else", node("Softmax", "x", axis=0))
    unknown = node("Greater", "p q", "c")
    for branches, rows in (((apart, apart), "independent"), ((apart, mixed), "dependent")):
        chosen = node("If", "c", then_branch=branches[0], else_branch=branches[1])
        whole = model([unknown, chosen], {"x": ["n", 4]}, constants={"p": 1.0, "q": 2.0})
        assert verdict_on(whole).rows == rows


@pytest.mark.parametrize(("condition", "rows"), [(True, "independent"), (False, "dependent")])
def test_a_branch_that_never_runs_does_not_count(condition, rows):
    then, other = branch("then", node("Relu", "x")), branch("else", node("Softmax", "x", axis=0))
    chosen = node("If", "c", then_branch=then, else_branch=other)
    constants = {"c": np.array(condition)}
    assert verdict_on(model([chosen], {"x": ["n", 4]}, constants=constants)).rows == rows


NUMBERED = [
    node("Shape", "x", "s"),
    node("Gather", "s zero", "n", axis=0),
    node("Range", "zero n one", "r"),
    node("Unsqueeze", "r last", "p"),
]
PLACES = {"zero": 0, "one": 1, "last": [1]}

FOUND = helper.make_graph(
    [node("Gather", "x step", "row", axis=0)],
    "found",
    [helper.make_tensor_value_info("step", INT64, None)],
    [helper.make_tensor_value_info("row", FLOAT, None)],
)
THROUGH = {"body": FOUND, "num_scan_inputs": 1, "scan_input_axes": [1], "scan_output_axes": [1]}


@pytest.mark.parametrize(
    ("nodes", "rows"),
    [
        ([node("Gather", "x r", axis=0)], "independent"),
        ([node("GatherND", "x p")], "independent"),
        ([node("Concat", "p i", "k", axis=1), node("GatherND", "x k")], "independent"),
        ([node("Concat", "i p", "k", axis=1), node("GatherND", "x k")], "dependent"),
        ([node("Cast", "p", "f", to=FLOAT), node("Add", "x f")], "dependent"),
        ([node("Identity", "p")], "dependent"),
        (
            [
                node("Concat", "p i", "k", axis=1),
                node("Unsqueeze", "k two", "u"),
                node("GatherND", "x u", "g"),
                node("ReduceSum", "g last", keepdims=0),
            ],
            "dependent",
        ),
        ([node("Mod", "p p", "k"), node("GatherND", "x k")], "dependent"),
        ([node("Concat", "p i", "k", axis=1), node("Scan", "k", **THROUGH)], "dependent"),
        ([node("Tile", "p twice", "k"), node("GatherND", "x k")], "dependent"),
    ],
)
def test_places_of_rows_find_the_rows_and_serve_nothing_else(nodes, rows):
    constants = {**PLACES, "two": [2], "twice": [1, 2]}
    inputs = {"x": ["n", 4], "i": (INT64, ["n", 1])}
    assert verdict_on(model([*NUMBERED, *nodes], inputs, constants=constants)).rows == rows


BOTH = [node("Shape", "x", "s", start=0, end=1), node("Concat", "x x", "both", axis=0)]


@pytest.mark.parametrize(
    ("nodes", "rows"),
    [
        ([node("Split", "both", "y other", axis=0)], "independent"),
        ([node("Slice", "both s far zero")], "independent"),
        ([node("Slice", "both zero s zero")], "independent"),
        ([node("Slice", "both one far zero", "p"), node("Slice", "p zero s zero")], "dependent"),
        ([node("Slice", "both zero one zero", "p"), node("Add", "x p")], "dependent"),
        ([node("Identity", "both")], "dependent"),
        ([node("CumSum", "both zero", "p"), node("Slice", "p zero s zero")], "dependent"),
        (
            [
                node("Reshape", "both pairs", "p"),
                node("ReduceSum", "p one", keepdims=0),
            ],
            "dependent",
        ),
    ],
)
def test_whole_batches_one_behind_the_other_can_be_taken_apart(nodes, rows):
    constants = {"zero": [0], "one": [1], "far": [2**62], "pairs": [-1, 2, 4]}
    verdict = verdict_on(model([*BOTH, *nodes], {"x": ["n", 4]}, constants=constants))
    assert verdict.rows == rows


@pytest.mark.parametrize(
    ("axes", "rows"),
    [
        ({"batch_axis": 0, "time_axis": 1}, "independent"),
        ({"batch_axis": 1, "time_axis": 0}, "dependent"),
        ({}, "dependent"),
    ],
)
def test_sequences_are_turned_along_time(axes, rows):
    nodes = [node("ReverseSequence", "x i", **axes)]
    inputs = {"x": ["n", 4], "i": (INT64, ["n"])}
    assert verdict_on(model(nodes, inputs)).rows == rows


def test_a_branch_that_the_data_choose_mixes_rows():
    nodes = [
        node("ReduceMax", "x", "m", keepdims=0),
        node("Greater", "m z", "c"),
        node(
            "If",
            "c",
            then_branch=branch("a", node("Relu", "x")),
            else_branch=branch("b", node("Abs", "x")),
        ),
    ]
    assert (
        verdict_on(model(nodes, {"x": ["n", 4]}, constants={"z": np.float32(1)})).rows
        == "dependent"
    )


def test_a_branch_that_the_number_of_rows_chooses_mixes_rows():
    nodes = [
        node("Shape", "x", "s"),
        node("Gather", "s i", "n"),
        node("Greater", "n most", "c"),
        node(
            "If",
            "c",
            then_branch=branch("a", node("Relu", "x")),
            else_branch=branch("b", node("Abs", "x")),
        ),
    ]
    constants = {"i": 0, "most": 1000}
    verdict = verdict_on(model(nodes, {"x": ["n", 4]}, constants=constants))
    assert verdict.rows == "dependent"
    assert "If 'if'" in verdict.reason


def loop(*nodes, state="s"):
    ports = [
        helper.make_tensor_value_info("i", INT64, []),
        helper.make_tensor_value_info("c", BOOL, []),
        helper.make_tensor_value_info(state, FLOAT, None),
    ]
    ends = [
        helper.make_tensor_value_info("c2", BOOL, None),
        helper.make_tensor_value_info("s2", FLOAT, None),
    ]
    return helper.make_graph([node("Identity", "c", "c2"), *nodes], "body", ports, ends)


@pytest.mark.parametrize(
    ("step", "rows"),
    [
        (node("Relu", "s", "s2"), "independent"),
        (node("Softmax", "s", "s2", axis=0), "dependent"),
        (node("CumSum", "s zero", "s2"), "dependent"),
    ],
)
def test_loops_are_looked_into(step, rows):
    nodes = [node("Loop", "m true x", body=loop(step))]
    constants = {"m": 3, "true": np.array(True), "zero": 0}
    assert verdict_on(model(nodes, {"x": ["n", 4]}, constants=constants)).rows == rows


@pytest.mark.parametrize(("axis", "rows"), [(-1, "independent"), (0, "dependent")])
def test_functions_are_looked_into(axis, rows):
    inner = node("Softmax", "a", "b")
    inner.attribute.add(name="axis", ref_attr_name="dim", type=onnx.AttributeProto.INT)
    function = helper.make_function(
        "own", "Sharpen", ["a"], ["b"], [inner], [helper.make_opsetid("", 17)], ["dim"]
    )
    called = helper.make_node("Sharpen", ["x"], ["y"], domain="own", dim=axis)
    made = model([called], {"x": ["n", 4]}, functions=[function], more=[("own", 1)])
    assert verdict_on(made).rows == rows


QUANTIZED = [
    node("DynamicQuantizeLinear", "x", "q s z"),
    node("MatMulInteger", "q w z", "m"),
    node("Cast", "m", "f", to=FLOAT),
    node("Mul", "f s"),
]


def test_rows_that_meet_in_the_scales_of_quantisation_alone_are_said_to():
    constants = {"w": np.ones((4, 3), np.uint8)}
    verdict = verdict_on(model(QUANTIZED, {"x": ["n", 4]}, constants=constants))
    assert (verdict.rows, verdict.is_quantised) == ("dependent", True)
    assert "DynamicQuantizeLinear" in verdict.reason
    more = [*QUANTIZED[:-1], node("Mul", "f s", "g"), node("Softmax", "g", axis=0)]
    verdict = verdict_on(model(more, {"x": ["n", 4]}, constants=constants))
    assert (verdict.rows, verdict.is_quantised) == ("dependent", False)


def test_a_file_that_names_no_opset_of_onnx_has_the_newest():
    """Slice had its bounds as attributes once, and ONNX Runtime reads them from its inputs."""
    nodes = [node("Slice", "x s e a", "f"), node("Sub", "x f")]
    constants = {"s": [0], "e": [1], "a": [0]}
    made = onnx.load_from_string(model(nodes, {"x": ["n", 4]}, constants=constants))
    made.opset_import[0].domain, made.opset_import[0].version = "ai.onnx.ml", 3
    assert verdict_on(made.SerializeToString()).rows == "dependent"


def test_a_function_does_not_stand_for_an_operator_that_onnx_has():
    relu = [node("Relu", "a", "b")]
    function = helper.make_function(
        "", "Softmax", ["a"], ["b"], relu, [helper.make_opsetid("", 17)]
    )
    made = model([node("Softmax", "x", axis=0)], {"x": ["n", 4]}, functions=[function])
    assert verdict_on(made).rows == "open"


def test_an_operator_that_is_not_known_leaves_the_question_open():
    unknown = helper.make_node("Guess", ["x"], ["y"], name="guess", domain="own")
    verdict = verdict_on(model([unknown], {"x": ["n", 4]}, more=[("own", 1)]))
    assert verdict.rows == "open"
    assert verdict.reason == "Guess 'guess': the operator is not known (domain own)"


def test_an_operator_that_is_not_known_may_do_what_it_likes_with_constants():
    unknown = helper.make_node("Guess", ["w"], ["v"], domain="own")
    made = model([unknown, node("Relu", "x")], {"x": ["n", 4]}, constants={"w": floats(2)})
    assert verdict_on(made).rows == "independent"


def test_what_no_output_needs_does_not_count():
    nodes = [node("Softmax", "x", "unused", axis=0), node("Relu", "x")]
    assert verdict_on(model(nodes, {"x": ["n", 4]})).rows == "independent"


def softmax_of(*shape):
    """Nodes that make rows of x as long as `shape` says, and x of them again after a softmax."""
    return [
        node("Shape", "x", "whole"),
        node("Shape", "x", "b", start=0, end=1),
        *shape,
        node("Reshape", "x k", "r"),
        node("Softmax", "r", "s", axis=-1),
        node("Reshape", "s whole"),
    ]


UNSURE = {
    "a number of rows that becomes a bool": (
        softmax_of(
            node("Cast", "b", "c", to=BOOL),
            node("Cast", "c", "d", to=INT64),
            node("Concat", "d m", "k", axis=0),
        ),
        {"x": ["n", 4]},
        {"m": [-1]},
    ),
    "a number of rows that half precision rounds": (
        softmax_of(
            node("Cast", "b", "c", to=TensorProto.FLOAT16),
            node("Cast", "c", "d", to=INT64),
            node("Concat", "d m", "k", axis=0),
        ),
        {"x": ["n", 4]},
        {"m": [-1]},
    ),
    "lengths that are no integers": (
        softmax_of(
            node("Cast", "five", "f", to=FLOAT),
            node("Cast", "two", "t", to=FLOAT),
            node("Div", "f t", "h"),
            node("Mul", "h t", "g"),
            node("Cast", "g", "i", to=INT64),
            node("Concat", "m i", "k", axis=0),
        ),
        {"x": ["n", 4]},
        {"m": [-1], "five": [5], "two": [2]},
    ),
    "a piece that ends before its end": (
        softmax_of(
            node("Shape", "x", "t", start=1, end=2),
            node("Slice", "w z t", "p"),
            node("Shape", "p", "i"),
            node("Concat", "m i", "k", axis=0),
        ),
        {"x": ["n", "t"]},
        {"m": [-1], "w": floats(4), "z": [0]},
    ),
    "proportions": (
        [
            node("Shape", "x", "b", start=0, end=1),
            node("Concat", "b k", "s", axis=0),
            node("Resize", "x   s", keep_aspect_ratio_policy="not_larger"),
        ],
        {"x": ["n", 3, 8, 8]},
        {"k": [3, 4, 4]},
    ),
    "a region of the batch": (
        [node("Resize", "x r s", coordinate_transformation_mode="tf_crop_and_resize")],
        {"x": ["n", 3, 8, 8]},
        {"r": np.float32([0.5, 0, 0, 0, 1, 1, 1, 1]), "s": floats(4)},
    ),
    "a scale for each row": (
        [node("QuantizeLinear", "x s z", "q", axis=0), node("DequantizeLinear", "q s z", axis=0)],
        {"x": ["n", 4]},
        {"s": floats(3), "z": np.zeros(3, np.int8)},
    ),
    "a scale for blocks of rows": (
        [node("QuantizeLinear", "x s", "q", axis=0, block_size=2), node("Cast", "q", to=FLOAT)],
        {"x": ["n", 4]},
        {"s": floats(2, 4)},
    ),
    "a list of no axes": (
        # ONNX Runtime squeezes all dims of 1 then, and the sum is that of the rows.
        [
            node("Squeeze", "x e", "q"),
            node("Transpose", "q", "t"),
            node("ReduceSum", "t i", "r"),
            node("Transpose", "r", "u"),
            node("Sub", "q u"),
        ],
        {"x": ["n", 4, 1]},
        {"e": np.zeros(0, np.int64), "i": [1]},
    ),
    "weights for each row": (
        [node("LayerNormalization", "x s", axis=-1)],
        {"x": ["n", 4]},
        {"s": floats(3, 4)},
    ),
}


FLAGS = {
    "noop_with_empty_axes": (node("ReduceSum", "x"), ["n", 4]),
    "keepdims": (node("ReduceMean", "x", axes=[1]), ["n", 4]),
    "transB": (node("Gemm", "x w"), ["n", 4]),
    "ceil_mode": (node("MaxPool", "x", kernel_shape=[2]), ["n", 4, 4]),
}


@pytest.mark.parametrize("name", FLAGS)
def test_a_flag_that_is_neither_0_nor_1_proves_nothing(name):
    """ONNX Runtime takes noop_with_empty_axes=2 for 0, and adds up the whole batch."""
    operator, shape = FLAGS[name]
    for flag, is_known in ((1, True), (2, False), (-1, False)):
        flagged = onnx.NodeProto.FromString(operator.SerializeToString())
        flagged.attribute.append(onnx.helper.make_attribute(name, flag))
        made = model([flagged], {"x": shape}, constants={"w": floats(4, 4)}, opset=13)
        assert (verdict_on(made).rows == "independent") is is_known


@pytest.mark.parametrize("name", UNSURE)
def test_what_only_looks_independent_is_not_proved_to_be(name):
    nodes, inputs, constants = UNSURE[name]
    verdict = verdict_on(model(nodes, inputs, constants=constants, opset=21))
    assert verdict.rows != "independent"


def test_any_bytes_have_a_verdict():
    whole = model(*INDEPENDENT["convolution"][:2], constants=INDEPENDENT["convolution"][2])
    random = np.random.default_rng(0)
    for _ in range(500):
        changed = bytearray(whole)
        for at in random.integers(0, len(whole), 3):
            changed[at] = random.integers(0, 256)
        assert verdict_on(bytes(changed[: random.integers(1, len(whole) + 1)])).rows
    assert verdict_on(b"").rows == "open"


def test_functions_that_call_one_another_twice_are_given_up():
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    functions = [helper.make_function("own", "F0", ["a"], ["b"], [node("Relu", "a", "b")], opsets)]
    for n in range(1, 30):
        twice = [
            helper.make_node(f"F{n - 1}", [x], [y], domain="own")
            for x, y in (("a", "m"), ("m", "b"))
        ]
        functions.append(helper.make_function("own", f"F{n}", ["a"], ["b"], twice, opsets))
    called = helper.make_node("F29", ["x"], ["y"], domain="own")
    made = model([called], {"x": ["n", 4]}, functions=functions, more=[("own", 1)])
    assert "more than 50000 steps" in verdict_on(made).reason
