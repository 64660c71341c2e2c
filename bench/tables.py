"""Measures what a model of a table costs: run by its library, or converted to ONNX.

    python bench/tables.py [--seconds 2] [--only NAME]

Run it where scikit-learn, skl2onnx, XGBoost and LightGBM are; `make bench-platforms` does.
Each model is served three times: by its library in a worker process (the default), by its library
in the server, and as the ONNX model that skl2onnx or our own readers of forests make of it.
Requests have one row of FP32 and go over gRPC on 16 connections; nothing is joined. Figures are CPU
microseconds per request, of the server and its worker, the lowest of three runs, beside those of
the library's own call in a tight loop.
"""

import argparse
import sys
import tempfile
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import joblib
import lightgbm
import numpy as np
import xgboost
from cases import Request
from servers import free_port, run_server
from skl2onnx import to_onnx
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from tritonclient.grpc import service_pb2

from platforms import ALONE, ONE, PLACE, bare_us, served_us

ROWS = np.random.default_rng(0).normal(size=(500, 10)).astype(np.float32)
LABELS = (ROWS.sum(axis=1) > 0).astype(int)
PICKLE = 'parameters { key: "inferd_allow_pickle" value: { string_value: "true" } }\n'
OUTPUT = 'parameters { key: "inferd_default_outputs" value: { string_value: "predict" } }\n'
FIL = """backend: "fil"
input [ { name: "input" data_type: TYPE_FP32 dims: [ 10 ] } ]
output [ { name: "output__0" data_type: TYPE_FP32 dims: [ 1 ] } ]
parameters { key: "model_type" value: { string_value: "%s" } }
"""
REPEATS = 3


def write(repository: Path, name: str, file: str, save: Callable[[Path], Any], config: str) -> None:
    """Write a model that joins no requests."""
    folder = repository / name.partition("_")[0] / name / "1"
    folder.mkdir(parents=True)
    save(folder / file)
    (folder.parent / "config.pbtxt").write_text(ALONE + config)


def write_all(repository: Path) -> dict[str, Callable[[np.ndarray], object]]:
    """Write each model three times; return the library's own call of each, by its name."""
    calls: dict[str, Callable[[np.ndarray], object]] = {}
    for name, kind in (("logistic", LogisticRegression()), ("forest", RandomForestClassifier(100))):
        model = kind.fit(ROWS, LABELS)
        calls[name] = model.predict
        for place in ("worker", "server"):
            config = PICKLE + OUTPUT + ONE + PLACE.format(place)
            save = lambda path, model=model: joblib.dump(model, path)  # noqa: E731
            write(repository, f"{name}_{place}", "model.joblib", save, config)
        options = {id(model): {"zipmap": False}}
        content = to_onnx(model, ROWS[:1], options=options, target_opset=18).SerializeToString()
        save_onnx = lambda path, content=content: path.write_bytes(content)  # noqa: E731
        name_of_input = 'input [ { name: "X" data_type: TYPE_FP32 dims: [ 10 ] } ]\n'
        write(repository, f"{name}_converted", "model.onnx", save_onnx, name_of_input)
    trees = xgboost.XGBRegressor(n_estimators=100, n_jobs=1).fit(ROWS, LABELS)
    leaves = lightgbm.train({"verbose": -1, "num_threads": 1}, lightgbm.Dataset(ROWS, LABELS), 100)
    for name, file, fil, kind, model in (
        ("xgboost", "model.ubj", "xgboost.ubj", "xgboost_ubj", trees),
        ("lightgbm", "lightgbm.txt", "model.txt", "lightgbm", leaves),
    ):
        one_thread = {"num_threads": 1} if name == "lightgbm" else {}
        calls[name] = partial(model.predict, **one_thread)
        for place in ("worker", "server"):
            write(repository, f"{name}_{place}", file, model.save_model, ONE + PLACE.format(place))
        write(repository, f"{name}_converted", fil, model.save_model, FIL % kind)
    return calls


def request_of(model: str) -> Request:
    """Return a gRPC request of one row."""
    message = service_pb2.ModelInferRequest(model_name=model)
    name = "X" if model in ("logistic_converted", "forest_converted") else "input"
    tensor = message.inputs.add(name=name, datatype="FP32", shape=(1, 10))
    assert tensor.name
    message.raw_input_contents.append(ROWS[:1].tobytes())
    body = message.SerializeToString()
    prefix = b"\0" + len(body).to_bytes(4, "big")
    headers = {"content-type": "application/grpc", "te": "trailers"}
    path = "/inference.GRPCInferenceService/ModelInfer"
    return Request(path, headers, prefix + body, {name: ROWS[:1]})


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=int, default=2)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as name:
        repository = Path(name) / "models"
        calls = write_all(repository)
        print("| model | library's call | in a worker | in the server | converted |")
        print("| --- | --- | --- | --- | --- |")
        for model, call in calls.items():
            if options.only in model:
                print(row_of(model, call, repository / model, options.seconds), flush=True)


def row_of(model: str, call: Callable[[np.ndarray], object], repository: Path, seconds: int) -> str:
    """Return the row of one model, which a server of its own serves from `repository`."""
    ports = free_port(), free_port()
    command = [sys.executable, "-m", "inferd", "serve", str(repository)]
    command += [f"--http-port={ports[0]}", f"--grpc-port={ports[1]}", "--allow-metrics=false"]
    figures = [min(bare_us(call, ROWS[:1], seconds) for _ in range(REPEATS))]
    with run_server("inferd", command, ports, repository / "log") as server:
        for place in ("worker", "server", "converted"):
            request = request_of(f"{model}_{place}")
            figures.append(min(served_us(server, request, seconds)[0] for _ in range(REPEATS)))
    return f"| {model} | {' | '.join(f'{one:.0f}' for one in figures)} |"


if __name__ == "__main__":
    main()
