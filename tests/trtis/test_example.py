"""The document's printed example, word for word: 602112 bytes in, the best three of 1000 out."""

import subprocess

import grpc
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

PRINTED = (
    'NV-InferRequest: batch_size: 1 input { name: "input" byte_size: 602112 } '
    'output { name: "output" byte_size: 4000 cls { count: 3 } }'
)
WEIGHTS = np.random.default_rng(50).random((3, 1000), np.float32)
IMAGE = np.random.default_rng(8).random((1, 3, 224, 224), np.float32)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """The mean of each colour, times weights: 1000 numbers for an image."""
    nodes = [
        helper.make_node("ReduceMean", ["input"], ["mean"], axes=[2, 3], keepdims=0),
        helper.make_node("MatMul", ["mean", "weights"], ["output"]),
    ]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", *dims])
        for name, dims in {"input": (3, 224, 224), "output": (1000,)}.items()
    ]
    weights = numpy_helper.from_array(WEIGHTS, "weights")
    graph = helper.make_graph(nodes, "graph", ends[:1], ends[1:], [weights])
    opset = helper.make_opsetid("", 13)
    content = helper.make_model(graph, opset_imports=[opset], ir_version=8).SerializeToString()
    root = tmp_path_factory.mktemp("models")
    (root / "resnet50" / "1").mkdir(parents=True)
    (root / "resnet50" / "1" / "model.onnx").write_bytes(content)
    (root / "resnet50" / "labels.txt").write_text("".join(f"thing {i}\n" for i in range(1000)))
    (root / "resnet50" / "config.pbtxt").write_text(
        'platform: "onnxruntime_onnx" max_batch_size: 8\n'
        'input { name: "input" data_type: TYPE_FP32 format: FORMAT_NCHW dims: [ 3, 224, 224 ] }\n'
        'output { name: "output" data_type: TYPE_FP32 dims: 1000 label_filename: "labels.txt" }'
    )
    return str(root)


@pytest.fixture(scope="module")
def running(serve, models):
    with serve(model_repository=(models,)) as server:
        yield server


@pytest.fixture(scope="module")
def best():
    """What the three classes must be."""
    values = IMAGE.mean((2, 3)) @ WEIGHTS
    return np.argsort(-values[0])[:3].tolist()


@pytest.fixture
def image(tmp_path):
    path = tmp_path / "image"
    path.write_bytes(IMAGE.tobytes())
    assert path.stat().st_size == 602112
    return path


@pytest.fixture
def curl(running, tmp_path):
    """curl(path, arguments...) returns status, head and body."""

    def run(path, *arguments):
        heads = tmp_path / "heads"
        url = f"http://127.0.0.1:{running.http_port}{path}"
        command = ["curl", "-sS", "--max-time", "30", "--noproxy", "*", "-D", heads]
        done = subprocess.run([*command, *arguments, url], capture_output=True, check=True)
        last = heads.read_text().rstrip().split("\n\n")[-1]
        return int(last.split()[1]), last, done.stdout

    return run


def check(header, best):
    [output] = header.output
    [classes] = output.batch_classes
    assert [one.idx for one in classes.cls] == best
    assert [one.label for one in classes.cls] == [f"thing {index}" for index in best]
    values = [one.value for one in classes.cls]
    assert values == sorted(values, reverse=True)
    assert (header.model_name, header.model_version, header.batch_size) == ("resnet50", 1, 1)


@pytest.mark.parametrize("version", ["", "/1"])
def test_the_printed_example_with_curl(curl, image, messages, best, version):
    status, head, body = curl(
        f"/api/infer/resnet50{version}", "--data-binary", f"@{image}", "-H", PRINTED
    )
    assert status == 200
    assert "NV-Status: code: SUCCESS" in head
    check(messages.read("InferResponseHeader", body.decode()), best)


def test_the_printed_example_in_binary(curl, image, messages, best):
    path = "/api/infer/resnet50?format=binary"
    status, _, body = curl(path, "--data-binary", f"@{image}", "-H", PRINTED)
    assert status == 200
    check(messages.read("InferResponseHeader", body), best)


def test_what_the_document_says_of_health_and_status(curl, messages):
    for path in ("/api/health/live", "/api/health/ready", "/api/status", "/api/status/resnet50"):
        status, head, _ = curl(path)
        assert status == 200
        assert "NV-Status: code: SUCCESS" in head
    _, _, body = curl("/api/status/resnet50?format=binary")
    config = messages.read("ServerStatus", body).model_status["resnet50"].config
    assert (config.input[0].format, list(config.input[0].dims)) == (2, [3, 224, 224])
    assert config.output[0].label_filename == "labels.txt"


def test_a_raw_output_instead_of_classes(curl, image, messages):
    header = PRINTED.replace(" cls { count: 3 }", "")
    _, head, body = curl("/api/infer/resnet50", "--data-binary", f"@{image}", "-H", header)
    assert "NV-InferResponse" not in head
    expected = IMAGE.mean((2, 3)) @ WEIGHTS
    assert np.allclose(np.frombuffer(body[:4000], np.float32), expected[0], rtol=1e-4)
    assert b"byte_size: 4000" in body[4000:]


def field(tag, data):
    return bytes((tag, len(data))) + data


# The example as 0.8 has it on the wire, where byte_size is field 2 of inputs and outputs.
OLD_INPUT = field(0x0A, b"input") + b"\x10\x80\xe0\x24"  # 602112
OLD_OUTPUT = field(0x0A, b"output") + b"\x10\xa0\x1f" + field(0x1A, b"\x08\x03")  # 4000, 3 classes
OLD_HEADER = b"\x08\x01" + field(0x12, OLD_INPUT) + field(0x1A, OLD_OUTPUT)
OLD_REQUEST = field(0x0A, b"resnet50") + field(0x1A, OLD_HEADER)


def test_the_example_over_grpc(running, messages, best):
    with grpc.insecure_channel(f"127.0.0.1:{running.grpc_port}") as channel:
        method = channel.unary_unary("/nvidia.inferenceserver.GRPCService/Infer")
        image = messages("InferRequest", raw_input=[IMAGE.tobytes()]).SerializeToString()
        answer = messages.read("InferResponse", method(OLD_REQUEST + image, timeout=30))
    assert answer.request_status.code == 1, answer.request_status
    check(answer.meta_data, best)
    assert list(answer.raw_output) == [b""]
