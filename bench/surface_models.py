"""The models whose costs are recorded: networks, trees, tables and Python that works or waits."""

import itertools
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from inferd.tune.settings import INSTANCES, PROCESS, Value

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


class SurfaceModel(NamedTuple):
    """How to write a model's folder, and under which load it is measured."""

    write: Callable[[Path], None]
    concurrency: int = 16
    seconds: float = 0.2
    only: Mapping[str, tuple[Value, ...]] = MappingProxyType({})
    """The values that are gone through, where those of tune would take too long."""


class Net:
    """A graph of ONNX that is written line by line, with random weights."""

    def __init__(self, *dims: int, kind: int = FLOAT) -> None:
        self._random = np.random.default_rng(7)
        self._nodes: list[Any] = []
        self._weights: list[Any] = []
        self._input = helper.make_tensor_value_info("x", kind, ["N", *dims])
        self.last = "x"

    def add(self, operator: str, *more: str, first: str = "", **attributes: object) -> str:
        """Add an operator after the last one, or after `first`; return its output."""
        output = f"t{len(self._nodes)}"
        inputs = [first or self.last, *more]
        domain = attributes.pop("domain", "")
        self._nodes.append(
            helper.make_node(operator, inputs, [output], domain=domain, **attributes)
        )
        self.last = output
        return output

    def weight(self, *shape: int) -> str:
        """Return a weight that keeps what it multiplies about as large as it is."""
        values = self._random.standard_normal(shape) / np.sqrt(max(np.prod(shape[:-1]), 1))
        return self.constant(values.astype(np.float32))

    def constant(self, values: Any) -> str:
        """Return a constant."""
        name = f"w{len(self._weights)}"
        self._weights.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def dense(self, *widths: int) -> "Net":
        """Add dense layers: from the first width to the last."""
        for taken, given in itertools.pairwise(widths):
            self.add("MatMul", self.weight(taken, given))
            self.add("Relu")
        return self

    def convolve(self, taken: int, given: int, *size: int, stride: int = 1) -> "Net":
        """Add a convolution of any number of dimensions."""
        name = self.constant(
            (self._random.standard_normal((given, taken, *size)) / 10).astype(np.float32)
        )
        pads = [one // 2 for one in size] * 2
        self.add("Conv", name, kernel_shape=list(size), pads=pads, strides=[stride] * len(size))
        self.add("Relu")
        return self

    def attend(self, width: int) -> "Net":
        """Add attention of all places to all others, and what follows it in a transformer."""
        before = self.last
        asked, kept, told = (
            self.add("MatMul", self.weight(width, width), first=before) for _ in range(3)
        )
        turned = self.add("Transpose", first=kept, perm=[0, 2, 1])
        self.add("MatMul", turned, first=asked)
        self.add("Softmax", axis=-1)
        self.add("MatMul", told)
        self.add("Add", before)
        return self.dense(width, 4 * width, width)

    def content(self) -> bytes:
        """Return the model as file content."""
        self.add("Identity")
        end = helper.make_tensor_value_info(self.last, FLOAT, None)
        graph = helper.make_graph(self._nodes, "net", [self._input], [end], self._weights)
        sets = [helper.make_opsetid("", 15), helper.make_opsetid("ai.onnx.ml", 3)]
        model = helper.make_model(graph, ir_version=8, opset_imports=sets)
        return bytes(model.SerializeToString(deterministic=True))


def onnx_model(make: Callable[[], Net], most_batch: int = 16) -> Callable[[Path], None]:
    """Return what writes a model of ONNX that takes batches of up to `most_batch`."""

    def write(folder: Path) -> None:
        (folder / "1/model.onnx").write_bytes(make().content())
        (folder / "config.pbtxt").write_text(f"max_batch_size: {most_batch}\n")

    return write


def words_net() -> Net:
    """Return the mean of the vectors of 64 words, and a small network behind it."""
    net = Net(64, kind=INT64)
    table = net.weight(20_000, 128)
    net.add("Gather", net.last, first=table)
    net.add("ReduceMean", axes=[1], keepdims=0)
    return net.dense(128, 512, 256, 8)


def arithmetic_net() -> Net:
    """Return much arithmetic on each of 30,000 numbers: the request is large, too."""
    net = Net(30_000)
    for operator in ("Sigmoid", "Exp", "Sqrt", "Log", "Tanh", "Exp", "Softplus"):
        net.add(operator)
    net.add("ReduceMean", axes=[1], keepdims=1)
    return net


def recurrent_net() -> Net:
    """Return a GRU over 24 steps."""
    net, width = Net(24, 32), 96
    net.add("Transpose", perm=[1, 0, 2])
    weights = (net.weight(1, 3 * width, 32), net.weight(1, 3 * width, width))
    net.add("GRU", *weights, hidden_size=width)
    net.add("ReduceMean", axes=[0, 1], keepdims=0)
    return net.dense(width, 4)


def largest_net() -> Net:
    """Return the 100 largest of 20,000 numbers, which has nothing to multiply."""
    net = Net(20_000)
    net._nodes.append(
        helper.make_node("TopK", ["x", net.constant(np.array([100]))], ["top", "places"])
    )
    net.last = "top"
    return net


def forest_net(trees: int, depth: int, columns: int = 40) -> Net:
    """Return a forest of whole trees."""
    random, net = np.random.default_rng(3), Net(columns)
    inner, count = 2**depth - 1, 2 ** (depth + 1) - 1
    nodes = np.tile(np.arange(count), trees)
    owners = np.repeat(np.arange(trees), count)
    is_inner = nodes < inner
    leaves = ~is_inner
    net.add(
        "TreeEnsembleRegressor",
        domain="ai.onnx.ml",
        n_targets=1,
        nodes_treeids=owners.tolist(),
        nodes_nodeids=nodes.tolist(),
        nodes_featureids=random.integers(0, columns, len(nodes)).tolist(),
        nodes_values=random.random(len(nodes)).tolist(),
        nodes_modes=["BRANCH_LEQ" if one else "LEAF" for one in is_inner],
        nodes_truenodeids=np.where(is_inner, 2 * nodes + 1, 0).tolist(),
        nodes_falsenodeids=np.where(is_inner, 2 * nodes + 2, 0).tolist(),
        target_treeids=owners[leaves].tolist(),
        target_nodeids=nodes[leaves].tolist(),
        target_ids=[0] * int(leaves.sum()),
        target_weights=random.random(int(leaves.sum())).tolist(),
    )
    return net


def convolutions(side: int, *widths: int) -> Net:
    """Return convolutions over a picture, each but the first with half the places."""
    net = Net(3, side, side)
    for taken, given in zip((3, *widths[:-1]), widths, strict=True):
        net.convolve(taken, given, 3, 3, stride=1 if taken == 3 else 2)
    net.add("GlobalAveragePool")
    net.add("Flatten", axis=1)
    return net.dense(widths[-1], 10)


def signal_net() -> Net:
    """Return convolutions over eight signals of 500 places."""
    net = Net(8, 500).convolve(8, 32, 7, stride=2).convolve(32, 32, 5, stride=2)
    net.add("GlobalAveragePool")
    net.add("Flatten", axis=1)
    return net.dense(32, 4)


def attention_net() -> Net:
    """Return two layers of a transformer over 32 places."""
    net = Net(32, 96).attend(96).attend(96)
    net.add("ReduceMean", axes=[1], keepdims=0)
    return net.dense(96, 4)


PYTHON_MODEL = """import json
import re
import time
import zlib

import numpy as np
import triton_python_backend_utils as pb_utils

WEIGHTS = np.random.default_rng(1).random((64, 64), np.float32)


class TritonPythonModel:
    def execute(self, requests):
        taken = [pb_utils.get_input_tensor_by_name(one, "x").as_numpy() for one in requests]
%s
        return [pb_utils.InferenceResponse([pb_utils.Tensor("y", one)]) for one in answers]
"""
TOGETHER = """
rows = np.concatenate(taken)
%s
answers = np.split(rows, np.cumsum([len(one) for one in taken])[:-1])
"""
EACH = """
answers = []
for rows in taken:
%s
    answers.append(rows)
"""
PYTHON_CONFIG = """backend: "python"
max_batch_size: 32
dynamic_batching { }
input { name: "x" data_type: TYPE_%s dims: [ %d ] }
output { name: "y" data_type: TYPE_FP32 dims: [ -1 ] }
"""


def python_model(
    work: str, *, together: bool = True, kind: str = "FP32", dim: int = 64
) -> Callable[[Path], None]:
    """Return what writes a model.py that does the `work` with rows: of all requests, or of each."""
    body = TOGETHER % work if together else EACH % textwrap.indent(work, "    ")

    def write(folder: Path) -> None:
        text = PYTHON_MODEL % textwrap.indent(body.strip("\n"), 8 * " ")
        (folder / "1/model.py").write_text(text)
        (folder / "config.pbtxt").write_text(PYTHON_CONFIG % (kind, dim))

    return write


TOKENS = """ids = []
for text in rows.ravel():
    words = re.findall(r"[aeiou]+|[^aeiou]", text.decode())
    ids.append([zlib.crc32(word.encode()) % 30000 for word in words[:12]])
rows = np.zeros((len(ids), 12), np.float32)
for row, found in enumerate(ids):
    rows[row, : len(found)] = found"""
DOCUMENT = """for _ in range(6):
    rows = np.array(json.loads(json.dumps(rows.tolist())), np.float32)"""
POWERS = """for _ in range(40):
    rows = np.tanh(rows @ WEIGHTS / 64)"""
WAIT_AND_WORK = """time.sleep(0.002)
for _ in range(30):
    rows = np.tanh(rows @ WEIGHTS / 64)"""

DIGITS = """backend: "%s"
max_batch_size: 32
"""


def _digits() -> tuple[Any, Any]:
    from sklearn.datasets import load_digits

    rows, labels = load_digits(return_X_y=True)
    return rows.astype(np.float32), labels


def estimator_model(name: str) -> Callable[[Path], None]:
    """Return what writes an estimator of scikit-learn that knows digits."""

    def write(folder: Path) -> None:
        import skops.io
        from sklearn.ensemble import RandomForestClassifier
        from sklearn.linear_model import LogisticRegression
        from sklearn.neural_network import MLPClassifier
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import PolynomialFeatures, StandardScaler

        estimator = {
            "forest": RandomForestClassifier(30, random_state=0),
            "line": make_pipeline(
                StandardScaler(), PolynomialFeatures(2), LogisticRegression(max_iter=20)
            ),
            "layers": MLPClassifier((256, 128), max_iter=15, random_state=0),
        }[name]
        skops.io.dump(estimator.fit(*_digits()), folder / "1/model.skops")
        (folder / "config.pbtxt").write_text(DIGITS % "sklearn")

    return write


def xgboost_model(backend: str) -> Callable[[Path], None]:
    """Return what writes trees of XGBoost, for that library or for the FIL backend."""

    def write(folder: Path) -> None:
        import xgboost

        rows, labels = _digits()
        wanted = {"max_depth": 6, "objective": "multi:softprob", "num_class": 10}
        trees = xgboost.train(wanted, xgboost.DMatrix(rows, labels), 40)
        name = "xgboost.json" if backend == "fil" else "model.ubj"
        trees.save_model(folder / "1" / name)
        more = 'parameters { key: "model_type" value { string_value: "xgboost_json" } }\n'
        text = DIGITS % backend + (more if backend == "fil" else "")
        (folder / "config.pbtxt").write_text(text)

    return write


def lightgbm_model(folder: Path) -> None:
    """Write trees of LightGBM."""
    import lightgbm

    rows, labels = _digits()
    wanted = {"objective": "multiclass", "num_class": 10, "verbose": -1}
    trees = lightgbm.train(wanted, lightgbm.Dataset(rows, labels), 40)
    trees.save_model(folder / "1/lightgbm.txt")
    (folder / "config.pbtxt").write_text(DIGITS % "lightgbm")


HERE = {PROCESS: ("server",)}
FEWER = {INSTANCES: (1, 2, 3, 4, 6)}
FEW = {INSTANCES: (1, 2)}
MODELS = {
    "dense_wide": SurfaceModel(
        onnx_model(lambda: Net(1024).dense(1024, 1536, 1536, 10), 32), only=HERE
    ),
    "dense_deep": SurfaceModel(onnx_model(lambda: Net(256).dense(*[256] * 30), 32), only=HERE),
    "dense_many": SurfaceModel(
        onnx_model(lambda: Net(512).dense(512, 1024, 512, 2), 32), 32, only=HERE
    ),
    "picture_small": SurfaceModel(onnx_model(lambda: convolutions(32, 16, 32, 64), 32), only=HERE),
    "picture_large": SurfaceModel(
        onnx_model(lambda: convolutions(96, 8, 16, 32), 32), 8, only=HERE
    ),
    "signal": SurfaceModel(onnx_model(signal_net, 32), only=HERE),
    "attention": SurfaceModel(onnx_model(attention_net), only=FEW),
    "recurrent": SurfaceModel(onnx_model(recurrent_net, 32), only=HERE),
    "words": SurfaceModel(onnx_model(words_net, 32), only=HERE),
    "arithmetic": SurfaceModel(onnx_model(arithmetic_net, 32), only=HERE),
    "largest": SurfaceModel(onnx_model(largest_net, 32), 8, only=HERE),
    "forest_small": SurfaceModel(onnx_model(lambda: forest_net(100, 5), 32), only=HERE),
    "forest_large": SurfaceModel(onnx_model(lambda: forest_net(300, 6), 32), 4, only=HERE),
    "large_answer": SurfaceModel(onnx_model(lambda: Net(64).dense(64, 256, 12_000), 32), only=HERE),
    "python_layers": SurfaceModel(python_model(POWERS), only=FEWER),
    "python_each": SurfaceModel(python_model(POWERS, together=False), only=FEWER),
    "python_waits": SurfaceModel(python_model("time.sleep(0.004)"), only=FEWER),
    "python_waits_each": SurfaceModel(
        python_model("time.sleep(0.002)", together=False), only=FEWER
    ),
    "python_waits_works": SurfaceModel(python_model(WAIT_AND_WORK), 8, only=FEWER),
    "python_tokens": SurfaceModel(python_model(TOKENS, kind="STRING", dim=1), only=FEWER),
    "python_document": SurfaceModel(python_model(DOCUMENT, together=False), only=FEWER),
    "sklearn_forest": SurfaceModel(estimator_model("forest"), only=HERE),
    "sklearn_line": SurfaceModel(estimator_model("line"), only=HERE),
    "sklearn_layers": SurfaceModel(estimator_model("layers"), only=HERE),
    "xgboost": SurfaceModel(xgboost_model("xgboost"), only=HERE),
    "xgboost_fil": SurfaceModel(xgboost_model("fil"), only={INSTANCES: (1, 2, 4)}),
    "lightgbm": SurfaceModel(lightgbm_model, only=HERE),
}
"""Those of scikit-learn, XGBoost and LightGBM need these packages."""
