"""Measures what serving costs beside each platform's own bare call, for the digits classifier.

    python bench/platforms.py [--seconds 4] [--only NAME]

To be run where the frameworks are installed (`make test-platforms` makes such environments); those
that are not are left out. One request of one image, gRPC, 16 connections. The bare call goes from
an array to arrays, the cheapest way that the framework has. All figures are CPU microseconds of the
process a request; the last column is their difference, what inferd adds.
"""

import argparse
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from cases import Request
from load import run_h2load
from servers import Server, cpu_seconds, free_port, run_server
from tritonclient.grpc import service_pb2

HERE = Path(__file__).resolve().parent
EXAMPLES = HERE.parent / "examples" / "platforms"
CONNECTIONS = 16
BATCHING = "dynamic_batching"

Call = Callable[[np.ndarray], object]


def torchscript(folder: Path) -> Call:
    """Return the bare call of digits_torchscript."""
    import torch

    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = torch.jit.load(str(folder / "model.pt"))

    def call(image: np.ndarray) -> object:
        with torch.inference_mode():
            return {name: value.numpy() for name, value in model(torch.from_numpy(image)).items()}

    return call


def torch_export(folder: Path) -> Call:
    """Return the bare call of digits_torch_export."""
    import torch

    torch.set_num_threads(1)
    module = torch.export.load(str(folder / "model.pt2")).module()

    def call(image: np.ndarray) -> object:
        with torch.inference_mode():
            return {name: value.numpy() for name, value in module(torch.from_numpy(image)).items()}

    return call


def savedmodel(folder: Path) -> Call:
    """Return the bare call of digits_savedmodel, as TensorFlow documents it."""
    import tensorflow as tf

    loaded = tf.saved_model.load(str(folder / "model.savedmodel"))
    function = loaded.signatures["serving_default"]

    def call(image: np.ndarray) -> object:
        return {name: value.numpy() for name, value in function(tf.constant(image)).items()}

    call.keeps = loaded  # else its variables would be gone
    return call


def graphdef(folder: Path) -> Call:
    """Return the bare call of digits_graphdef, the cheap way that has no documentation."""
    import tensorflow as tf
    from tensorflow.core.protobuf import config_pb2

    graph = tf.Graph()
    with graph.as_default():
        content = (folder / "model.graphdef").read_bytes()
        tf.import_graph_def(tf.compat.v1.GraphDef.FromString(content), name="")
    settings = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=1)
    settings.experimental.executor_type = "SINGLE_THREADED_EXECUTOR"
    session = tf.compat.v1.Session(graph=graph, config=settings)
    options = config_pb2.CallableOptions(feed=["image:0"], fetch=["digit:0", "probability:0"])
    return session._make_callable_from_options(options)


def openvino(folder: Path) -> Call:
    """Return the bare call of digits_openvino."""
    import openvino

    settings = {"INFERENCE_PRECISION_HINT": "f32", "NUM_STREAMS": 2, "INFERENCE_NUM_THREADS": 2}
    compiled = openvino.Core().compile_model(str(folder / "model.xml"), "CPU", settings)
    request = compiled.create_infer_request()

    def call(image: np.ndarray) -> object:
        request.set_input_tensor(0, openvino.Tensor(image, shared_memory=True))
        request.infer()
        return [np.array(request.get_output_tensor(number).data) for number in (0, 1)]

    return call


def litert(folder: Path) -> Call:
    """Return the bare call of digits_litert."""
    from ai_edge_litert.interpreter import Interpreter

    model = Interpreter(str(folder / "model.tflite"), num_threads=1)
    model.allocate_tensors()
    index = model.get_input_details()[0]["index"]
    outputs = [detail["index"] for detail in model.get_output_details()]

    def call(image: np.ndarray) -> object:
        model.set_tensor(index, image)
        model.invoke()
        return [model.get_tensor(output) for output in outputs]

    return call


def onnx(folder: Path) -> Call:
    """Return the bare call of digits_onnx."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), options)
    return lambda image: session.run(None, {"image": image})


BARE: dict[str, Callable[[Path], Call]] = {
    "digits_onnx": onnx,
    "digits_torchscript": torchscript,
    "digits_torch_export": torch_export,
    "digits_savedmodel": savedmodel,
    "digits_graphdef": graphdef,
    "digits_openvino": openvino,
    "digits_litert": litert,
}

EXPORTERS = {
    "to_onnx": "onnxruntime",
    "to_pytorch": "torch",
    "to_tensorflow": "tensorflow",
    "to_openvino": "openvino",
    "to_litert": "ai_edge_litert",
}


def exported(repository: Path) -> list[str]:
    """Write the models of every framework that is there, without batching; return their names."""
    sys.path.append(str(EXAMPLES))
    names: list[str] = []
    for module, package in EXPORTERS.items():
        if find_spec(package) is not None:
            exporter = import_module(module)
            exporter.export(repository)
            names += exporter.MODELS
    for file in repository.glob("*/config.pbtxt"):
        lines = file.read_text().splitlines(keepends=True)
        file.write_text("".join(line for line in lines if not line.startswith(BATCHING)))
    return names


def bare_us(call: Call, image: np.ndarray, seconds: float) -> float:
    """Return the CPU microseconds of one call, of this whole process."""
    for _ in range(200):
        call(image)
    runs, before, end = 0, time.process_time(), time.monotonic() + seconds
    while time.monotonic() < end:
        for _ in range(50):
            call(image)
        runs += 50
    return (time.process_time() - before) / runs * 1e6


def request_of(model: str, image: np.ndarray) -> Request:
    """Return a gRPC request of one image."""
    message = service_pb2.ModelInferRequest(model_name=model)
    tensor = message.inputs.add(name="image", datatype="FP32", shape=image.shape)
    assert tensor.name
    message.raw_input_contents.append(image.tobytes())
    body = message.SerializeToString()
    prefix = b"\0" + len(body).to_bytes(4, "big")
    headers = {"content-type": "application/grpc", "te": "trailers"}
    path = "/inference.GRPCInferenceService/ModelInfer"
    return Request(path, headers, prefix + body, {"image": image})


def served_us(server: Server, request: Request, seconds: int) -> tuple[float, float]:
    """Return CPU microseconds of the server, and requests a second. Exits on a failed one."""
    run_h2load(server.grpc_port, request, CONNECTIONS, 1)
    before = cpu_seconds(server.pid)
    load = run_h2load(server.grpc_port, request, CONNECTIONS, seconds)
    used = cpu_seconds(server.pid) - before
    if load.bad or not load.requests:
        sys.exit(f"{load.bad} of {load.requests} requests failed")
    return used / load.requests * 1e6, load.requests / load.seconds


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=int, default=4)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        repository = Path(name) / "models"
        names = [one for one in exported(repository) if options.only in one]
        image = import_module("digits").images()[:1]
        ports = free_port(), free_port()
        command = [sys.executable, "-m", "inferd", "serve", str(repository)]
        command += [f"--http-port={ports[0]}", f"--grpc-port={ports[1]}", "--allow-metrics=false"]
        command.append("--strict-readiness=false")
        print("| model | bare call | served | inferd adds | requests/s |")
        print("| --- | --- | --- | --- | --- |")
        with run_server("inferd", command, ports, Path(name) / "log") as server:
            for model in names:
                bare = bare_us(BARE[model](repository / model / "1"), image, options.seconds)
                served, rate = served_us(server, request_of(model, image), options.seconds)
                print(f"| {model} | {bare:.1f} | {served:.1f} | {served - bare:.1f} | {rate:.0f} |")


if __name__ == "__main__":
    main()
