"""Unmodified tritonclient.grpc, and plain grpcio with its messages, against a real server.

This client always sends raw contents; typed contents go through plain grpcio below. It refuses
parameters called as the protocol's own, or "triton_...", and values that are no string, number
or boolean.
"""

import contextlib
import queue
import subprocess
import sys

import grpc
import ml_dtypes
import numpy as np
import pytest
import tritonclient.grpc as triton
from tritonclient.grpc import service_pb2
from tritonclient.grpc.auth import BasicAuth
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

import inferd

ADD_SUB = np.arange(32, dtype=np.int32).reshape(2, 16)
FP32 = np.zeros((1, 2), np.float32)
METHOD = "/inference.GRPCInferenceService/"


@pytest.fixture(scope="module")
def client(server):
    """One client for all tests: what one test does to its connection, the next ones see."""
    with triton.InferenceServerClient(server.grpc) as client:
        yield client


def tensor(name, array):
    """Return an input."""
    each = triton.InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype))
    return each.set_data_from_numpy(array)


@contextlib.contextmanager
def refused(status, *words):
    """Expect an InferenceServerException of this status whose message has these words."""
    with pytest.raises(InferenceServerException) as caught:
        yield
    assert caught.value.status() == f"StatusCode.{status}"
    for word in words:
        assert word in caught.value.message()


# --- what the server tells ---


def test_the_server_is_live_and_ready(client):
    assert client.is_server_live()
    assert client.is_server_ready()


def test_a_server_with_a_broken_model_is_live_and_not_ready(broken_server):
    with triton.InferenceServerClient(broken_server.grpc) as client:
        assert client.is_server_live()
        assert not client.is_server_ready()
        assert not client.is_model_ready("broken")
        assert client.is_model_ready("sound")
        with refused("NOT_FOUND", "broken"):
            client.get_model_metadata("broken")


@pytest.mark.parametrize(
    ("model", "version", "ready"),
    [
        ("mymodel", "", True),
        ("mymodel", "1", True),
        ("mymodel", "2", True),
        ("nobody", "", False),
        ("a model with ü", "", True),
    ],
)
def test_models_and_versions_are_ready_or_not(client, model, version, ready):
    assert client.is_model_ready(model, version) is ready


@pytest.mark.parametrize("version", ["3", "x"])
def test_a_version_that_is_not_there_is_not_ready(client, version):
    assert client.is_model_ready("mymodel", version) is False


def test_server_metadata(client):
    metadata = client.get_server_metadata()
    assert (metadata.name, metadata.version) == ("inferd", inferd.__version__)
    as_json = client.get_server_metadata(as_json=True)
    assert as_json["extensions"] == list(metadata.extensions)
    assert "binary_tensor_data" in metadata.extensions


@pytest.mark.parametrize(("version", "versions"), [("", ["1", "2"]), ("1", ["1"]), ("2", ["2"])])
def test_model_metadata(client, version, versions):
    assert client.get_model_metadata("mymodel", version, as_json=True) == {
        "name": "mymodel",
        "versions": versions,
        "platform": "onnxruntime_onnx",
        "inputs": [
            {"name": "input0", "datatype": "UINT32", "shape": ["2", "2"]},
            {"name": "input1", "datatype": "BOOL", "shape": ["3"]},
        ],
        "outputs": [{"name": "output0", "datatype": "FP32", "shape": ["3", "2"]}],
    }


def test_metadata_of_each_datatype(client, sample):
    metadata = client.get_model_metadata(f"batch_{sample.datatype}")
    for one in (metadata.inputs[0], metadata.outputs[0]):
        assert (one.datatype, list(one.shape)) == (sample.datatype, [-1, -1])


@pytest.mark.parametrize(
    ("model", "version", "words"), [("nobody", "", ["nobody"]), ("mymodel", "7", ["mymodel", "7"])]
)
def test_metadata_of_what_is_not_there_is_not_found(client, model, version, words):
    with refused("NOT_FOUND", *words):
        client.get_model_metadata(model, version)


# --- inference ---


@pytest.mark.parametrize("kind", ["flat", "batch"])
@pytest.mark.parametrize("listed", [True, False])
def test_each_datatype_comes_back_bit_for_bit(client, same, sample, listed, kind):
    outputs = [triton.InferRequestedOutput("OUTPUT0")] if listed else None
    result = client.infer(
        f"{kind}_{sample.datatype}", [tensor("INPUT0", sample.array)], outputs=outputs
    )
    same(result.as_numpy("OUTPUT0"), sample.array)
    assert result.get_output("OUTPUT0").datatype == sample.datatype
    assert result.get_response(as_json=True)["outputs"][0]["shape"] == ["2", "3"]


@pytest.mark.parametrize("shape", [(0, 3), (2, 0), (0, 0)])
def test_empty_tensors_come_back(client, same, sample, shape):
    array = np.empty(shape, sample.array.dtype)
    result = client.infer(f"flat_{sample.datatype}", [tensor("INPUT0", array)])
    same(result.as_numpy("OUTPUT0"), array)


@pytest.mark.parametrize("batch_size", [1, 2, 7, 8])
def test_batches_of_each_size(client, same, batch_size):
    first = np.arange(16 * batch_size, dtype=np.int32).reshape(batch_size, 16)
    second = np.full_like(first, 5)
    result = client.infer("add_sub", [tensor("INPUT0", first), tensor("INPUT1", second)])
    same(result.as_numpy("OUTPUT0"), first + second)
    same(result.as_numpy("OUTPUT1"), first - second)


def test_strings_of_any_bytes_come_back(client, same):
    values = [bytes(range(256)), b"\xff\xfe", b"\0", b"", bytes(100_000)]
    array = np.array([values], np.object_)
    same(client.infer("flat_BYTES", [tensor("INPUT0", array)]).as_numpy("OUTPUT0"), array)


def test_onnx_strings_halves_and_brain_floats(client, same):
    texts = np.array([["ä", "日本", ""]], np.object_)
    result = client.infer("onnx_BYTES", [tensor("INPUT0", texts)]).as_numpy("OUTPUT0")
    assert [text.decode() for text in result[0]] == texts[0].tolist()
    halves = np.array([[0.5, 1.25, 1000]], np.float16)
    result = client.infer("onnx_FP16", [tensor("INPUT0", halves)])
    same(result.as_numpy("OUTPUT0"), halves + halves)
    floats = np.array([[1.0, 1.00390625, 3.14159274]], np.float32)
    result = client.infer("onnx_BF16", [tensor("INPUT0", floats)])
    same(result.as_numpy("OUTPUT0"), floats.astype(ml_dtypes.bfloat16))


def test_the_printed_example(client, printed_values):
    inputs = [
        tensor("input0", np.array([[1, 2], [3, 4]], np.uint32)),
        tensor("input1", np.array([True, False, True])),
    ]
    outputs = [triton.InferRequestedOutput("output0")]
    result = client.infer("mymodel", inputs, outputs=outputs, request_id="42")
    answer = result.get_response()
    assert (answer.model_name, answer.model_version, answer.id) == ("mymodel", "2", "42")
    expected = np.array(printed_values, np.float32).reshape(3, 2)
    np.testing.assert_array_equal(result.as_numpy("output0"), expected, strict=True)


@pytest.fixture
def three(samples):
    """The inputs of model three: FP32, BYTES, INT64."""
    return [
        tensor(f"INPUT{i}", samples[datatype].array)
        for i, datatype in enumerate(("FP32", "BYTES", "INT64"))
    ]


@pytest.mark.parametrize("wanted", [[], [0], [1], [2, 0], [2, 1, 0]], ids=str)
def test_the_outputs_asked_for_come_back(client, three, same, samples, wanted):
    outputs = [triton.InferRequestedOutput(f"OUTPUT{index}") for index in wanted]
    result = client.infer("three", three, outputs=outputs)
    answer = result.get_response()
    expected = sorted(set(wanted)) or [0, 1, 2]
    assert [output.name for output in answer.outputs] == [f"OUTPUT{index}" for index in expected]
    assert len(answer.raw_output_contents) == len(expected)
    for index in expected:
        array = samples[("FP32", "BYTES", "INT64")[index]].array
        same(result.as_numpy(f"OUTPUT{index}"), array)


@pytest.mark.parametrize("request_id", ["", "42", "ä日本🚀", "x" * 5000])
def test_the_request_id_comes_back(client, three, request_id):
    assert client.infer("three", three, request_id=request_id).get_response().id == request_id


@pytest.mark.parametrize("version", ["", "1", "2"])
def test_the_version_asked_for_answers(client, version):
    inputs = [
        tensor("input0", np.zeros((2, 2), np.uint32)),
        tensor("input1", np.zeros(3, np.bool_)),
    ]
    result = client.infer("mymodel", inputs, model_version=version)
    assert result.get_response().model_version == (version or "2")


def test_scheduling_arguments_and_parameters_are_accepted(client, three, same, samples):
    result = client.infer(
        "three",
        three,
        sequence_id=2**62,
        sequence_start=True,
        sequence_end=True,
        priority=3,
        timeout=5_000_000,
        client_timeout=30,
        headers={"x-whatever": "1"},
        parameters={"text": "ü", "number": 7, "float": 1.5, "flag": True},
    )
    same(result.as_numpy("OUTPUT0"), samples["FP32"].array)
    client.infer("three", three, sequence_id="a text", sequence_start=True)


def test_authentication_plugins_do_not_disturb(server, three):
    with triton.InferenceServerClient(server.grpc) as client:
        client.register_plugin(BasicAuth("user", "password"))
        assert client.is_server_ready()
        assert client.infer("three", three).as_numpy("OUTPUT0") is not None


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
@pytest.mark.parametrize("rows", [1, pytest.param(60, marks=pytest.mark.slow)])
def test_compressed_requests(client, same, coding, rows):
    array = np.arange(rows * 5000, dtype=np.float32).reshape(rows, 5000)
    result = client.infer("flat_FP32", [tensor("INPUT0", array)], compression_algorithm=coding)
    same(result.as_numpy("OUTPUT0"), array)


@pytest.mark.slow
def test_compressed_answers(start, same):
    server = start("--grpc-infer-response-compression-level=high")
    array = np.arange(300_000, dtype=np.float32).reshape(60, 5000)
    with triton.InferenceServerClient(server.grpc) as client:
        for coding in (None, "gzip", "deflate"):
            result = client.infer(
                "flat_FP32", [tensor("INPUT0", array)], compression_algorithm=coding
            )
            same(result.as_numpy("OUTPUT0"), array)


@pytest.mark.slow
def test_twenty_megabytes_go_both_ways(client, same, big):
    same(client.infer("flat_FP32", [tensor("INPUT0", big)]).as_numpy("OUTPUT0"), big)


# --- futures, timeouts, cancelling ---


@pytest.fixture
def answers():
    """A queue, and a callback that puts (number, result, error) into it."""
    return queue.Queue()


def test_futures_all_come_back(client, same, answers):
    arrays = [np.full((1, 16), number, np.int32) for number in range(200)]
    for number, array in enumerate(arrays):
        client.async_infer(
            "add_sub",
            [tensor("INPUT0", array), tensor("INPUT1", array)],
            lambda result, error: answers.put((result, error)),
            request_id=str(number),
        )
    seen = set()
    for _ in arrays:
        result, error = answers.get(timeout=30)
        assert error is None
        number = int(result.get_response().id)
        same(result.as_numpy("OUTPUT0"), arrays[number] * 2)
        seen.add(number)
    assert seen == set(range(200))


def test_a_failure_reaches_the_callback(client, answers):
    client.async_infer(
        "nobody",
        [tensor("INPUT0", FP32)],
        lambda result, error: answers.put((result, error)),
    )
    result, error = answers.get(timeout=30)
    assert result is None
    assert error.status() == "StatusCode.NOT_FOUND"
    assert "nobody" in error.message()


@pytest.mark.slow
def test_a_cancelled_request_ends_at_once_and_the_server_stays_healthy(client, answers):
    slow = [tensor("INPUT0", np.ones(1, np.float32))]
    for arrived in (False, False, True, True):
        call = client.async_infer(
            "endless", slow, lambda result, error: answers.put((result, error))
        )
        if arrived:
            assert client.is_server_ready()  # same connection, so the request is there by now
        call.cancel()
        result, error = answers.get(timeout=30)
        assert result is None
        assert error.status() == "StatusCode.CANCELLED"
    assert client.is_server_ready()
    assert client.infer("slow", slow).as_numpy("OUTPUT0").tolist() == [1.0]


@pytest.mark.slow
def test_a_deadline_ends_the_call_and_the_server_stays_healthy(client):
    slow = [tensor("INPUT0", np.ones(1, np.float32))]
    with refused("DEADLINE_EXCEEDED"):
        client.infer("endless", slow, client_timeout=0.05)
    assert client.is_server_ready()
    assert client.infer("slow", slow, client_timeout=30).as_numpy("OUTPUT0").tolist() == [1.0]


# --- errors ---

REFUSED = [
    ("nobody", [("INPUT0", FP32)], "NOT_FOUND", ["nobody"]),
    ("flat_FP32", [("INPUT1", FP32)], "INVALID_ARGUMENT", ["INPUT1", "INPUT0"]),
    ("flat_FP32", [("INPUT0", FP32.astype("f8"))], "INVALID_ARGUMENT", ["INPUT0", "FP64", "FP32"]),
    (
        "flat_FP32",
        [("INPUT0", FP32[0])],
        "INVALID_ARGUMENT",
        ["INPUT0", "got [2]", "Expected [-1,-1]"],
    ),
    (
        "flat_FP32",
        [("INPUT0", FP32)] * 2,
        "INVALID_ARGUMENT",
        ["INPUT0", "already exists in request"],
    ),
    ("flat_FP32", [], "INVALID_ARGUMENT", ["INPUT0"]),
    ("add_sub", [("INPUT0", ADD_SUB)], "INVALID_ARGUMENT", ["INPUT1"]),
    ("batch_FP32", [("INPUT0", np.zeros((9, 1), "f4"))], "INVALID_ARGUMENT", ["INPUT0", "9", "8"]),
]


@pytest.mark.parametrize(("model", "inputs", "status", "words"), REFUSED)
def test_wrong_requests_are_refused_in_words(client, model, inputs, status, words):
    with refused(status, *words):
        client.infer(model, [tensor(name, array) for name, array in inputs])


def test_an_unknown_version_or_output_is_refused(client):
    inputs = [tensor("INPUT0", FP32)]
    with refused("NOT_FOUND", "flat_FP32", "9"):
        client.infer("flat_FP32", inputs, model_version="9")
    with refused("INVALID_ARGUMENT", "NOPE", "OUTPUT0"):
        client.infer("flat_FP32", inputs, outputs=[triton.InferRequestedOutput("NOPE")])


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("UNKNOWN", "UNKNOWN"),
        ("INTERNAL", "INTERNAL"),
        ("NOT_FOUND", "NOT_FOUND"),
        ("INVALID_ARG", "INVALID_ARGUMENT"),
        ("UNAVAILABLE", "UNAVAILABLE"),
        ("UNSUPPORTED", "UNIMPLEMENTED"),
        ("ALREADY_EXISTS", "ALREADY_EXISTS"),
        ("CANCELLED", "CANCELLED"),
    ],
)
@pytest.mark.parametrize("fault", ["raise_error", "return_error"])
def test_what_a_model_says_reaches_the_client(client, fault, code, status):
    with refused(status, "fails on purpose"):
        parameters = {"fault": fault, "code": code}
        client.infer("faulty", [tensor("INPUT0", FP32[0])], parameters=parameters)


@pytest.mark.parametrize(
    "fault",
    [
        "raise",
        "too_few",
        "too_many",
        "wrong_shape",
        "wrong_datatype",
        "wrong_name",
        "missing_output",
    ],
)
def test_a_model_that_breaks_is_internal_and_no_more(client, fault):
    with refused("INTERNAL", "faulty"):
        client.infer("faulty", [tensor("INPUT0", FP32[0])], parameters={"fault": fault})
    sound = client.infer("faulty", [tensor("INPUT0", FP32[0])])
    assert sound.as_numpy("OUTPUT0").tolist() == [0.0]


# --- plain grpcio ---


@pytest.fixture(scope="module")
def infer(server):
    """infer(ModelInferRequest, ...) is the ModelInfer call of a plain grpcio channel."""
    with grpc.insecure_channel(server.grpc) as channel:
        yield channel.unary_unary(
            METHOD + "ModelInfer",
            service_pb2.ModelInferRequest.SerializeToString,
            service_pb2.ModelInferResponse.FromString,
        )


CONTENTS = {
    "BOOL": "bool_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}


def raw_request(model, sample):
    request = service_pb2.ModelInferRequest(model_name=model)
    request.inputs.add(name="INPUT0", datatype=sample.datatype, shape=sample.array.shape)
    return request


@pytest.mark.parametrize("datatype", CONTENTS)
def test_typed_contents_are_answered_raw(infer, same, samples, datatype):
    sample = samples[datatype]
    request = raw_request(f"flat_{datatype}", sample)
    getattr(request.inputs[0].contents, CONTENTS[datatype]).extend(sample.array.ravel().tolist())
    answer = infer(request)
    assert not answer.outputs[0].HasField("contents")
    same(triton.InferResult(answer).as_numpy("OUTPUT0"), sample.array)


@pytest.mark.parametrize("datatype", ["FP16", "BF16"])
def test_halves_have_no_typed_contents(infer, samples, datatype):
    request = raw_request(f"flat_{datatype}", samples[datatype])
    request.inputs[0].contents.fp32_contents.extend([1.0] * 6)
    with pytest.raises(grpc.RpcError) as caught:
        infer(request)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_raw_contents_that_do_not_fit_are_refused(infer, samples):
    for contents in ([], [b""], [bytes(23)], [bytes(25)], [bytes(24)] * 2):
        request = raw_request("flat_FP32", samples["FP32"])
        request.raw_input_contents.extend(contents)
        with pytest.raises(grpc.RpcError) as caught:
            infer(request)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_bytes_that_are_no_message_are_refused(server):
    with grpc.insecure_channel(server.grpc) as channel:
        for message in (b"\xff" * 9, b"\x0a\xff"):
            with pytest.raises(grpc.RpcError) as caught:
                channel.unary_unary(METHOD + "ModelInfer")(message)
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_an_unknown_method_is_unimplemented(server):
    with grpc.insecure_channel(server.grpc) as channel:
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary(METHOD + "Nothing")(b"")
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.slow
@pytest.mark.parametrize(
    "modules",
    [
        "inferd.wire.v2.grpc.codec, tritonclient.grpc",
        "tritonclient.grpc, inferd.wire.v2.grpc.codec",
    ],
)
def test_both_packages_fit_in_one_process(modules):
    script = (
        f"import {modules}\n"
        "from inferd.wire import proto\n"
        "proto.pool().FindServiceByName('inference.GRPCInferenceService')\n"
        "from tritonclient.grpc import service_pb2\n"
        "service_pb2.ModelInferRequest(model_name='m')\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", script], check=True)


# --- TLS ---


@pytest.mark.slow
def test_tls(start, certificates, same, big):
    server = start(
        "--grpc-use-ssl",
        f"--grpc-server-cert={certificates / 'server.pem'}",
        f"--grpc-server-key={certificates / 'server.key'}",
    )
    root = str(certificates / "ca.pem")
    with triton.InferenceServerClient(server.grpc, ssl=True, root_certificates=root) as client:
        assert client.is_server_ready()
        same(client.infer("flat_FP32", [tensor("INPUT0", big)]).as_numpy("OUTPUT0"), big)
    with triton.InferenceServerClient(server.grpc) as plain, refused("UNAVAILABLE"):
        plain.is_server_ready()


@pytest.mark.slow
def test_tls_with_client_certificates(start, certificates):
    root = str(certificates / "ca.pem")
    server = start(
        "--grpc-use-ssl-mutual",
        f"--grpc-server-cert={certificates / 'server.pem'}",
        f"--grpc-server-key={certificates / 'server.key'}",
        f"--grpc-root-cert={root}",
    )
    own = {
        "private_key": str(certificates / "client.key"),
        "certificate_chain": str(certificates / "client.pem"),
    }
    with triton.InferenceServerClient(
        server.grpc, ssl=True, root_certificates=root, **own
    ) as client:
        assert client.is_server_ready()
    with (
        triton.InferenceServerClient(server.grpc, ssl=True, root_certificates=root) as stranger,
        refused("UNAVAILABLE"),
    ):
        stranger.is_server_ready()
