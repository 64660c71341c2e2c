"""Which unusual numbers a converted model has to refuse, and that it does."""

import numpy as np
import onnxruntime
import pytest

from inferd.backends.estimator.conversion.unusual import (
    ColumnNumber,
    RefusedValues,
    guarded,
    refused_in,
    unseen_in,
)
from inferd.formats.onnx_model import OnnxNode, OnnxPort, encode_model
from inferd.tensor.dtype import DataType

ROWS = np.arange(12, dtype=np.float32).reshape(4, 3)


def but_for(is_wrong, outcome="other"):
    """Return a comparison with another `outcome` for rows of "x" in which a number is wrong."""
    return lambda columns: outcome if is_wrong(columns["x"]).any() else "same"


def test_each_column_is_tried_by_itself_if_they_differ():
    only_second = but_for(lambda x: np.isnan(x[:, 1]))
    assert refused_in({"x": ROWS}, only_second) == RefusedValues([ColumnNumber("x", 1)], [])
    assert refused_in({"x": ROWS}, but_for(np.isinf)).infinity == [
        ColumnNumber("x", n) for n in range(3)
    ]
    assert refused_in({"x": ROWS}, but_for(np.isinf, "refused")) == RefusedValues([], [])
    assert refused_in({"x": ROWS[:, 0]}, but_for(np.isneginf)) == RefusedValues(
        [], [ColumnNumber("x", 0)]
    )


def test_a_refusal_in_one_column_hides_no_other_answer_in_another():
    def compare(columns):
        if np.isnan(columns["x"][:, 0]).any():
            return "refused"
        return "other" if np.isnan(columns["x"][:, 2]).any() else "same"

    assert refused_in({"x": ROWS}, compare).nan == [ColumnNumber("x", 2)]


def test_of_many_columns_all_are_refused_if_one_is():
    wide = np.zeros((2, 65), np.float64)
    assert len(refused_in({"x": wide}, but_for(lambda x: np.isnan(x[:, 64]))).nan) == 65
    assert refused_in({"x": wide}, but_for(np.isnan, "refused")).nan == []
    assert np.isfinite(wide).all()


def test_only_floats_can_be_unusual():
    columns = {"a": np.array([1, 2]), "b": np.array(["u", "v"], object), "c": np.array([0.5, 1])}
    assert refused_in(columns, lambda _: "other").nan == [ColumnNumber("c", 0)]


def test_values_are_tried_that_no_row_has():
    columns = {
        "number": np.array([[1.0, 7], [2, 7]]),
        "whole": np.array([3, 255], np.uint8),
        "text": np.array(["", "ab"], object),
        "truth": np.array([True, False]),
    }
    seen = []
    assert unseen_in(columns, lambda tried: seen.append(tried) or "same") == []
    [tried] = seen
    assert set(tried["number"][:, 0]) == {1, 1.5, 2}
    assert set(tried["number"][:, 1]) == {7}
    assert set(tried["whole"].tolist()) == {2, 3, 255}
    assert set(tried["text"]) == {"", "ab", "ab?"}
    found = unseen_in(columns, lambda tried: "other" if "ab?" in tried["text"] else "same")
    assert found == [ColumnNumber("text", 0)]


def test_what_is_refused_is_told():
    assert str(
        RefusedValues([ColumnNumber("x", 0)], [ColumnNumber("x", 0), ColumnNumber("x", 1)])
    ) == ("refuses NaN in 1 column and infinity in 2 columns")
    assert str(RefusedValues()) == ""


def adding(*ports):
    """Return an ONNX model that adds its inputs."""
    names = [name for name, _, _ in ports]
    node = OnnxNode("Sum", tuple(names), ("y",), {})
    inputs = [OnnxPort(name, kind, (-1, width)) for name, kind, width in ports]
    return encode_model([node], {}, inputs, [OnnxPort("y", ports[0][1], None)])


def run(content, **arrays):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    return session.run(None, arrays)[0]


REFUSED = "input 'x' has {}, refused because only the library could answer it"


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_guarded_model_answers_all_but_what_it_refuses(dtype):
    rows = np.array([[-0.0, np.inf, 1], [2, -np.inf, np.nan]], dtype)
    kind = DataType.FP32 if dtype is np.float32 else DataType.FP64
    content = adding(("x", kind, 3))
    columns = {"x": rows}
    assert guarded(content, RefusedValues(), columns) == content
    refused = RefusedValues(
        [ColumnNumber("x", 0), ColumnNumber("x", 1)], [ColumnNumber("x", 0), ColumnNumber("x", 2)]
    )
    got = run(guarded(content, refused, columns), x=rows)
    assert np.array_equal(got, rows, equal_nan=True)
    assert np.signbit(got[0, 0])
    for place, number in ((0, np.nan), (1, np.nan), (0, np.inf), (2, -np.inf)):
        wrong = rows.copy()
        wrong[1, place] = number
        with pytest.raises(Exception, match=REFUSED.format("NaN or infinity")):
            run(guarded(content, refused, columns), x=wrong)


def test_columns_may_be_inputs_of_their_own_or_of_one_input():
    columns = {"a": np.zeros(2, np.float32), "x": np.ones(2, np.float32)}
    refused = RefusedValues([ColumnNumber("x", 0)])
    apart = guarded(adding(("a", DataType.FP32, 1), ("x", DataType.FP32, 1)), refused, columns)
    one, missing = np.ones((2, 1), np.float32), np.full((2, 1), np.nan, np.float32)
    assert np.isnan(run(apart, a=missing, x=one)).all()
    with pytest.raises(Exception, match=REFUSED.format("NaN")):
        run(apart, a=one, x=missing)
    together = guarded(adding(("x", DataType.FP32, 2)), refused, columns)
    run(together, x=np.array([[np.nan, 1]], np.float32))
    with pytest.raises(Exception, match=REFUSED.format("NaN")):
        run(together, x=np.array([[1, np.nan]], np.float32))
