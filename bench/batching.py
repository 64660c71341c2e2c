"""What self-tuned batching gains, and whether a single client pays for it.

    python bench/batching.py [--seconds 4] [--repeats 3] [--model wide] [--out FILE]

One server serves each model three times: without a scheduler, so that each request runs alone
(`alone`); with `dynamic_batching {}` (`own pace`); and with a configured delay of 2 ms (`fixed`).
The three are measured by turns, with one client and with sixteen; the figures are medians. Times
within one row are comparable; on a machine that does other work too, trust the CPU time per
request.
"""

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from cases import NUMPY_TYPES, Arrays, Case, Request, encode
from load import Row, measure
from make_models import ConvNet, finish_model, simple_model, write_model
from onnx import TensorProto, helper, numpy_helper
from servers import run_inferd

WAYS = {
    "alone": "",
    "own pace": "dynamic_batching {}",
    "fixed": "dynamic_batching { max_queue_delay_microseconds: 2000 }",
}
CLIENTS = (1, 16)
MAX_BATCH = 16


def layers(width: int, count: int) -> bytes:
    """Return `count` dense layers of `width`, bound by reading the weights, once for all rows."""
    random = np.random.default_rng(5)
    nodes, weights = [], []
    for number in range(count):
        values = random.standard_normal((width, width)).astype(np.float32) / np.sqrt(width)
        weights.append(numpy_helper.from_array(values.astype(np.float32), f"W{number}"))
        nodes.append(helper.make_node("MatMul", [f"x{number}", f"W{number}"], [f"y{number}"]))
        nodes.append(helper.make_node("Relu", [f"y{number}"], [f"x{number + 1}"]))
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", width])
        for name in ("x0", f"x{count}")
    ]
    return finish_model(helper.make_graph(nodes, "layers", ends[:1], ends[1:], weights))


@dataclass(frozen=True)
class Model:
    """A model and its tensors: name -> datatype and dims."""

    content: Callable[[], bytes]
    inputs: dict[str, tuple[str, list[int]]]
    outputs: dict[str, tuple[str, list[int]]]

    def config(self, scheduler: str) -> str:
        """Return a complete configuration: completing it would turn batching on as well."""
        lines = ['backend: "onnxruntime"', f"max_batch_size: {MAX_BATCH}", scheduler]
        for kind, tensors in (("input", self.inputs), ("output", self.outputs)):
            for name, (datatype, dims) in tensors.items():
                lines.append(f'{kind} {{ name: "{name}" data_type: TYPE_{datatype} dims: {dims} }}')
        return "\n".join(lines)


MODELS = {
    "tiny": Model(
        simple_model,
        {"INPUT0": ("INT32", [16]), "INPUT1": ("INT32", [16])},
        {"OUTPUT0": ("INT32", [16]), "OUTPUT1": ("INT32", [16])},
    ),
    "table": Model(lambda: layers(256, 4), {"x0": ("FP32", [256])}, {"x4": ("FP32", [256])}),
    "wide": Model(lambda: layers(1536, 6), {"x0": ("FP32", [1536])}, {"x6": ("FP32", [1536])}),
    "convnet": Model(
        lambda: ConvNet().model(),
        {"INPUT": ("FP32", [3, 224, 224])},
        {"OUTPUT": ("FP32", [1000])},
    ),
}
"""Nothing to compute; a small tabular model; one bound by its weights; one bound by arithmetic."""


def write_models(repository: Path, names: list[str]) -> None:
    """Write each model once for each of WAYS."""
    for name in names:
        model = MODELS[name]
        content = model.content()
        for way, scheduler in WAYS.items():
            write_model(repository, _served(name, way), model.config(scheduler), content)


def request_for(name: str, way: str) -> Request:
    """Return a binary request of one row."""
    random = np.random.default_rng(7)
    inputs = {
        key: random.random((1, *dims)).astype(NUMPY_TYPES[datatype])
        for key, (datatype, dims) in MODELS[name].inputs.items()
    }
    return binary_request(_served(name, way), inputs)


def binary_request(model: str, inputs: Arrays) -> Request:
    """Return a binary request with `inputs` that asks for all outputs."""
    request = encode(Case("bin", "batching"), model, "", inputs)
    size = int(request.headers["Inference-Header-Content-Length"])
    document = json.loads(request.body[:size])
    del document["outputs"]
    document["parameters"] = {"binary_data_output": True}
    head = json.dumps(document).encode()
    headers = {**request.headers, "Inference-Header-Content-Length": str(len(head))}
    return Request(request.path, headers, head + request.body[size:], inputs)


def main() -> None:
    """Measure, print a table, and write the rows as JSON if asked."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--model", choices=MODELS, action="append")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    names = given.model or list(MODELS)
    rows: dict[tuple[str, int, str], list[Row]] = {}
    with tempfile.TemporaryDirectory() as work:
        write_models(Path(work) / "models", names)
        with run_inferd(Path(work) / "models", Path(work)) as server:
            for name in names:
                for clients in CLIENTS:
                    for _ in range(given.repeats):
                        for way in WAYS:
                            case = Case("bin", "batching")
                            request = request_for(name, way)
                            row, _ = measure(server, case, [request], clients, given.seconds)
                            rows.setdefault((name, clients, way), []).append(row)
    print(
        f"{'model':10}{'clients':>8}  {'way':10}{'req/s':>9}{'p50 us':>9}{'p99 us':>9}{'CPU us':>9}"
    )
    for (name, clients, way), measured in rows.items():
        figures = [
            statistics.median(getattr(row, field) for row in measured)
            for field in ("requests_per_s", "p50_us", "p99_us", "cpu_us")
        ]
        mark = " busy" if any(row.is_noisy for row in measured) else ""
        mark += " BAD" if any(row.bad for row in measured) else ""
        print(f"{name:10}{clients:8}  {way:10}" + "".join(f"{f:9.0f}" for f in figures) + mark)
    if given.out:
        found = [
            {"model": name, "way": way, **asdict(row)}
            for (name, _, way), measured in rows.items()
            for row in measured
        ]
        given.out.write_text(json.dumps(found, indent=1) + "\n")


def _served(name: str, way: str) -> str:
    return f"{name}_{way.replace(' ', '_')}"


if __name__ == "__main__":
    sys.exit(main())
