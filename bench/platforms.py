"""Measures what serving adds to each platform's own bare call, for the digits classifier.

    python bench/platforms.py [--seconds 4] [--only NAME]

Run it where the frameworks are installed; missing ones are left out. `make bench-platforms` creates
such environments, with a compiled inferd ahead of theirs. Requests have one image and go over gRPC
on 16 connections. The bare call goes from an array to arrays in the framework's cheapest way (ONNX
Runtime's for converted formats), in a tight loop. The asked call is the same in a process that is
asked through 16 sockets, minus the cost of those: no server gets below it. All figures are CPU
microseconds per request, of the server and its worker processes; further columns are the difference
to either call, and the limit of what inferd may add to the bare call. The lowest of some short
runs, measured by turns, counts.
"""

import argparse
import os
import select
import shutil
import socket
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

import numpy as np
from cases import Request
from load import run_h2load
from servers import Server, cpu_seconds, free_port, run_server
from tritonclient.grpc import service_pb2

from inferd.formats.onnx_model import OnnxPort
from inferd.tensor.dtype import DataType

HERE = Path(__file__).resolve().parent
EXAMPLES = HERE.parent / "examples" / "platforms"
CONNECTIONS = 16
MESSAGE = bytes(400)  # as long as a request
BATCHING = "dynamic_batching", "max_batch_size"
ALONE = "max_batch_size: 1\n"  # so that no configuration is filled in with dynamic batching
IMAGE = OnnxPort("image", DataType.FP32, (-1, 8, 8))
OUTPUTS = ["digit", "probability"]

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
    """Return the bare call of digits_savedmodel, the way that TensorFlow documents."""
    import tensorflow as tf

    loaded = tf.saved_model.load(str(folder / "model.savedmodel"))
    function = loaded.signatures["serving_default"]

    def call(image: np.ndarray) -> object:
        return {name: value.numpy() for name, value in function(tf.constant(image)).items()}

    call.keeps = loaded  # otherwise its variables would be freed
    return call


def graphdef(folder: Path) -> Call:
    """Return the bare call of digits_graphdef, the cheap way, which is undocumented."""
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

    settings = {"INFERENCE_PRECISION_HINT": "f32", "NUM_STREAMS": 1, "INFERENCE_NUM_THREADS": 1}
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
    return onnx_call((folder / "model.onnx").read_bytes())


def caffe2(folder: Path) -> Call:
    """Return the bare call of digits_caffe2, converted to ONNX."""
    from inferd_convert.caffe2.netdef import read_net
    from inferd_convert.caffe2.network import Caffe2Network

    nets = [
        read_net((folder / name).read_bytes(), name)
        for name in ("init_model.netdef", "model.netdef")
    ]
    return onnx_call(Caffe2Network(*nets).convert([IMAGE], OUTPUTS))


def mxnet(folder: Path) -> Call:
    """Return the bare call of digits_mxnet, converted to ONNX."""
    from inferd_convert.mxnet.network import MxnetNetwork
    from inferd_convert.mxnet.params import read_params
    from inferd_convert.mxnet.symbol import read_symbol

    symbol = read_symbol((folder / "model-symbol.json").read_bytes(), "symbol")
    arrays = read_params((folder / "model-0000.params").read_bytes(), "params")
    return onnx_call(MxnetNetwork(symbol, arrays).convert([IMAGE], OUTPUTS))


def onnx_call(model: bytes) -> Call:
    """Return ONNX Runtime's call of `model`."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options)
    return lambda image: session.run(None, {"image": image})


BARE: dict[str, Callable[[Path], Call]] = {
    "digits_onnx": onnx,
    "digits_torchscript": torchscript,
    "digits_torch_export": torch_export,
    "digits_savedmodel": savedmodel,
    "digits_graphdef": graphdef,
    "digits_openvino": openvino,
    "digits_litert": litert,
    "digits_caffe2": caffe2,
    "digits_mxnet": mxnet,
}

EXPORTERS = {
    "to_onnx": "onnxruntime",
    "to_pytorch": "torch",
    "to_tensorflow": "tensorflow",
    "to_openvino": "openvino",
    "to_litert": "ai_edge_litert",
    "to_caffe2": "onnxruntime",
    "to_mxnet": "onnxruntime",
}

HOSTED = ("to_pytorch", "to_tensorflow")
"""Exporters of models that may run in worker processes, and are measured in both places."""

PLACE = 'parameters {{ key: "inferd_process" value {{ string_value: "{}" }} }}\n'
ONE = "instance_group { count: 1 }\n"
LIMITS = {"server": 25.0, "worker": 45.0}


def exported(repository: Path) -> dict[str, tuple[str, str]]:
    """Write the models of every installed framework, without batching.

    Returns by name which of BARE each model is, and where it runs.
    """
    sys.path.append(str(EXAMPLES))
    found: dict[str, tuple[str, str]] = {}
    for module, package in EXPORTERS.items():
        if find_spec(package) is None:
            continue
        exporter = import_module(module)
        exporter.export(repository)
        for name in exporter.MODELS:
            file = repository / name / "config.pbtxt"
            lines = file.read_text().splitlines(keepends=True)
            text = "".join(line for line in lines if not line.startswith(BATCHING)) + ALONE
            file.write_text(text)
            found[name] = name, "server"
            if module in HOSTED:
                file.write_text(text + PLACE.format("server"))
                twin = f"{name}_worker"
                shutil.copytree(repository / name, repository / twin)
                text = text.replace(f'"{name}"', f'"{twin}"') + ONE + PLACE.format("worker")
                (repository / twin / "config.pbtxt").write_text(text)
                found[twin] = name, "worker"
    return found


def bare_us(call: Call, image: np.ndarray, seconds: float) -> float:
    """Return the CPU microseconds per call in a loop, of this whole process."""
    for _ in range(200):
        call(image)
    runs, before, end = 0, time.process_time(), time.monotonic() + seconds
    while time.monotonic() < end:
        for _ in range(50):
            call(image)
        runs += 50
    return (time.process_time() - before) / runs * 1e6


def call_us(call: Call, image: np.ndarray, seconds: float) -> float:
    """Return the CPU microseconds per call in a process that is asked through sockets.

    In a tight loop a call finds everything in the caches, as in no server: one of PyTorch's takes
    half as long then. So the process answers messages of the size of a request, and the cost of
    answering them without the call is subtracted.
    """
    with_call = answered_us(call, image, seconds)
    return with_call - answered_us(lambda _: None, image, seconds)


def answered_us(call: Call, image: np.ndarray, seconds: float) -> float:
    """Return this process's CPU microseconds per message, each answered after one `call`."""
    pairs = [socket.socketpair() for _ in range(CONNECTIONS)]
    asker = os.fork()
    if not asker:
        for ours, _ in pairs:
            ours.close()
        ask([theirs for _, theirs in pairs])
    poll = select.epoll()
    by_fd = {ours.fileno(): ours for ours, _ in pairs}
    for ours, theirs in pairs:
        theirs.close()
        poll.register(ours, select.EPOLLIN)
    answers, before, end = 0, 0.0, 0.0
    while not end or time.monotonic() < end:
        for fd, _ in poll.poll():
            by_fd[fd].recv(4096)
            call(image)
            by_fd[fd].send(MESSAGE)
            answers += 1
        if not end and answers > 200:
            answers, before, end = 0, time.process_time(), time.monotonic() + seconds
    used = time.process_time() - before
    for ours in by_fd.values():
        ours.close()
    os.waitpid(asker, 0)
    poll.close()
    return used / answers * 1e6


def ask(sockets: list[socket.socket]) -> NoReturn:
    """Send a message on each of `sockets`, and another after each answer, until they close."""
    poll = select.epoll()
    for one in sockets:
        poll.register(one, select.EPOLLIN)
        one.send(MESSAGE)
    by_fd = {one.fileno(): one for one in sockets}
    with suppress(OSError):
        while True:
            for fd, _ in poll.poll():
                if not by_fd[fd].recv(4096):
                    os._exit(0)
                by_fd[fd].send(MESSAGE)
    os._exit(0)


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
    """Return the server's CPU microseconds per request, and requests per second.

    Exits if a request fails.
    """
    run_h2load(server.grpc_port, request, CONNECTIONS, 1)
    before = cpu_seconds(server.pid)
    load = run_h2load(server.grpc_port, request, CONNECTIONS, seconds)
    used = cpu_seconds(server.pid) - before
    if load.bad or not load.requests:
        sys.exit(f"{load.bad} of {load.requests} requests failed")
    return used / load.requests * 1e6, load.requests / load.seconds


def measured(
    server: Server, repository: Path, models: dict[str, tuple[str, str]], seconds: int, repeats: int
) -> Iterator[tuple[str, float, float, float, float]]:
    """Yield name, bare, asked and served microseconds, and requests per second, of each model."""
    image = import_module("digits").images()[:1]
    for model, (bare, _) in models.items():
        call, request = BARE[bare](repository / bare / "1"), request_of(model, image)
        rows = [
            (
                bare_us(call, image, seconds),
                call_us(call, image, seconds),
                *served_us(server, request, seconds),
            )
            for _ in range(repeats)
        ]
        bare_all, call_all, served_all, rates = zip(*rows, strict=True)
        yield model, min(bare_all), min(call_all), min(served_all), max(rates)


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        repository = Path(name) / "models"
        models = {one: at for one, at in exported(repository).items() if options.only in one}
        ports = free_port(), free_port()
        command = [sys.executable, "-m", "inferd", "serve", str(repository)]
        command += [f"--http-port={ports[0]}", f"--grpc-port={ports[1]}", "--allow-metrics=false"]
        command.append("--strict-readiness=false")
        print("| model | bare | asked | served | over asked | over bare | at most | requests/s |")
        print("| --- | --- | --- | --- | --- | --- | --- | --- |")
        with run_server("inferd", command, ports, Path(name) / "log") as server:
            rows = measured(server, repository, models, options.seconds, options.repeats)
            for model, bare, call, served, rate in rows:
                limit = LIMITS[models[model][1]]
                times = f"{bare:.1f} | {call:.1f} | {served:.1f}"
                adds = f"{served - call:.1f} | {served - bare:.1f} | {limit:.0f}"
                print(f"| {model} | {times} | {adds} | {rate:.0f} |", flush=True)


if __name__ == "__main__":
    main()
