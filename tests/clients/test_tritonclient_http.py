"""Unmodified tritonclient.http against a real server.

What this client itself refuses, and test_raw_http.py therefore sends with http.client: BF16 and
BYTES that are not UTF-8 as JSON input; parameters called as the protocol's own, or "triton_...".
"""

import contextlib
import json
import struct
import threading

import gevent.ssl
import ml_dtypes
import numpy as np
import pytest
import tritonclient.http as triton
from geventhttpclient.response import HTTPParseError
from tritonclient.http.auth import BasicAuth
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

import inferd

ADD_SUB = np.arange(32, dtype=np.int32).reshape(2, 16)


@pytest.fixture(scope="module")
def client(server):
    """One client for all tests: what one test does to its connection, the next ones see."""
    with triton.InferenceServerClient(server.http) as client:
        yield client


def tensor(name, array, **options):
    """Return an input."""
    datatype = np_to_triton_dtype(array.dtype)
    return triton.InferInput(name, list(array.shape), datatype).set_data_from_numpy(
        array, **options
    )


@contextlib.contextmanager
def refused(status, *words):
    """Expect an InferenceServerException of this status whose message has these words."""
    with pytest.raises(InferenceServerException) as caught:
        yield
    assert caught.value.status() == str(status)
    for word in words:
        assert word in caught.value.message()


# --- what the server tells ---


def test_the_server_is_live_and_ready(client):
    assert client.is_server_live()
    assert client.is_server_ready()


def test_a_server_with_a_broken_model_is_live_and_not_ready(broken_server):
    with triton.InferenceServerClient(broken_server.http) as client:
        assert client.is_server_live()
        assert not client.is_server_ready()
        assert not client.is_model_ready("broken")
        assert client.is_model_ready("sound")
        with refused(404, "broken"):
            client.get_model_metadata("broken")


@pytest.mark.parametrize(
    ("model", "version", "ready"),
    [
        ("mymodel", "", True),
        ("mymodel", "1", True),
        ("mymodel", "2", True),
        ("mymodel", "3", False),
        ("mymodel", "x", False),
        ("nobody", "", False),
        ("a model with ü", "", True),
        ("a/model", "", False),
    ],
)
def test_models_and_versions_are_ready_or_not(client, model, version, ready):
    assert client.is_model_ready(model, version) is ready


def test_server_metadata(client):
    metadata = client.get_server_metadata()
    assert metadata["name"] == "inferd"
    assert metadata["version"] == inferd.__version__
    assert "binary_tensor_data" in metadata["extensions"]


@pytest.mark.parametrize(("version", "versions"), [("", ["1", "2"]), ("1", ["1"]), ("2", ["2"])])
def test_model_metadata(client, version, versions):
    assert client.get_model_metadata("mymodel", version) == {
        "name": "mymodel",
        "versions": versions,
        "platform": "onnxruntime_onnx",
        "inputs": [
            {"name": "input0", "datatype": "UINT32", "shape": [2, 2]},
            {"name": "input1", "datatype": "BOOL", "shape": [3]},
        ],
        "outputs": [{"name": "output0", "datatype": "FP32", "shape": [3, 2]}],
    }


def test_metadata_of_a_batching_model_shows_the_batch_dim(client, sample):
    [tensor] = client.get_model_metadata(f"batch_{sample.datatype}")["inputs"]
    assert tensor == {"name": "INPUT0", "datatype": sample.datatype, "shape": [-1, -1]}


@pytest.mark.parametrize(
    ("model", "version", "words"), [("nobody", "", ["nobody"]), ("mymodel", "7", ["mymodel", "7"])]
)
def test_metadata_of_what_is_not_there_is_404(client, model, version, words):
    with refused(404, *words):
        client.get_model_metadata(model, version)


# --- every datatype, every form ---

FORMS = {"binary": True, "json": False}


@pytest.mark.parametrize("kind", ["flat", "batch"])
@pytest.mark.parametrize("wanted", ["binary", "json", "unlisted"])
@pytest.mark.parametrize("sent", FORMS)
def test_each_datatype_comes_back_bit_for_bit(client, same, sample, sent, wanted, kind):
    if sample.datatype == "BF16" and sent == "json":
        with pytest.raises(InferenceServerException, match="BF16 inputs must be sent as binary"):
            tensor("INPUT0", sample.array, binary_data=False)
        return
    outputs = None
    if wanted != "unlisted":
        outputs = [triton.InferRequestedOutput("OUTPUT0", binary_data=FORMS[wanted])]
    result = client.infer(
        f"{kind}_{sample.datatype}",
        [tensor("INPUT0", sample.array, binary_data=FORMS[sent])],
        outputs=outputs,
    )
    same(result.as_numpy("OUTPUT0"), sample.array)
    output = result.get_output("OUTPUT0")
    assert output["datatype"] == sample.datatype
    assert ("data" in output) is (wanted == "json")
    assert ("binary_data_size" in output.get("parameters", {})) is (wanted != "json")


@pytest.mark.parametrize("wanted", FORMS)
@pytest.mark.parametrize("sent", FORMS)
def test_special_floats_come_back(client, sent, wanted):
    specials = np.array([[np.nan, np.inf, -np.inf, 1e-45, 3.4028235e38]])
    for dtype in (np.float16, np.float32, np.float64):
        with np.errstate(over="ignore"):
            array = specials.astype(dtype)
        datatype = np_to_triton_dtype(array.dtype)
        outputs = [triton.InferRequestedOutput("OUTPUT0", binary_data=FORMS[wanted])]
        inputs = [tensor("INPUT0", array, binary_data=FORMS[sent])]
        result = client.infer(f"flat_{datatype}", inputs, outputs=outputs).as_numpy("OUTPUT0")
        np.testing.assert_array_equal(result, array, strict=True)


@pytest.mark.parametrize("wanted", FORMS)
@pytest.mark.parametrize("sent", FORMS)
@pytest.mark.parametrize("shape", [(0, 3), (2, 0), (0, 0)])
def test_empty_tensors_come_back(client, same, sample, shape, sent, wanted):
    binary = FORMS[sent] or sample.datatype == "BF16"
    array = np.empty(shape, sample.array.dtype)
    result = client.infer(
        f"flat_{sample.datatype}",
        [tensor("INPUT0", array, binary_data=binary)],
        outputs=[triton.InferRequestedOutput("OUTPUT0", binary_data=FORMS[wanted])],
    )
    same(result.as_numpy("OUTPUT0"), array)


@pytest.mark.parametrize("batch_size", [1, 2, 7, 8])
def test_batches_of_each_size(client, same, batch_size):
    first = np.arange(16 * batch_size, dtype=np.int32).reshape(batch_size, 16)
    second = np.full_like(first, 5)
    result = client.infer("add_sub", [tensor("INPUT0", first), tensor("INPUT1", second)])
    same(result.as_numpy("OUTPUT0"), first + second)
    same(result.as_numpy("OUTPUT1"), first - second)


def test_a_batch_too_large_is_refused(client):
    array = np.zeros((9, 1), np.float32)
    with refused(400, "INPUT0", "9", "8"):
        client.infer("batch_FP32", [tensor("INPUT0", array)])


def test_strings_of_any_bytes_come_back(client, same):
    values = [bytes(range(256)), b"\xff\xfe", b"\0", b"", bytes(100_000)]
    array = np.array([values], np.object_)
    same(client.infer("flat_BYTES", [tensor("INPUT0", array)]).as_numpy("OUTPUT0"), array)


def test_fixed_width_numpy_strings_are_sent(client):
    array = np.array([[b"ab", b"c"]])
    result = client.infer("flat_BYTES", [tensor("INPUT0", array)]).as_numpy("OUTPUT0")
    assert result.tolist() == [[b"ab", b"c"]]


# --- frameworks ---


def test_onnx_strings(client, same):
    array = np.array([["ä", "日本", ""]], np.object_)
    expected = np.array([[text.encode() for text in array[0]]], np.object_)
    for binary in FORMS.values():
        result = client.infer("onnx_BYTES", [tensor("INPUT0", array, binary_data=binary)])
        same(result.as_numpy("OUTPUT0"), expected)


def test_onnx_halves(client, same):
    array = np.array([[0.5, 1.25, 1000]], np.float16)
    same(client.infer("onnx_FP16", [tensor("INPUT0", array)]).as_numpy("OUTPUT0"), array + array)


def test_onnx_brain_floats(client, same):
    array = np.array([[1.0, 1.00390625, 3.14159274]], np.float32)
    expected = array.astype(ml_dtypes.bfloat16)
    for outputs in (None, [triton.InferRequestedOutput("OUTPUT0", binary_data=False)]):
        result = client.infer("onnx_BF16", [tensor("INPUT0", array)], outputs=outputs)
        same(result.as_numpy("OUTPUT0"), expected)


def test_the_printed_example(client, printed_values):
    result = client.infer(
        "mymodel",
        [
            tensor("input0", np.array([[1, 2], [3, 4]], np.uint32), binary_data=False),
            tensor("input1", np.array([True, False, True]), binary_data=False),
        ],
        outputs=[triton.InferRequestedOutput("output0", binary_data=False)],
        request_id="42",
    )
    assert result.get_response() == {
        "id": "42",
        "model_name": "mymodel",
        "model_version": "2",
        "outputs": [
            {"name": "output0", "datatype": "FP32", "shape": [3, 2], "data": printed_values}
        ],
    }


# --- requests ---


@pytest.fixture
def three(samples):
    """The inputs of model three: FP32, BYTES, INT64."""
    arrays = [samples[datatype].array for datatype in ("FP32", "BYTES", "INT64")]
    forms = [True, False, True]
    return [
        tensor(f"INPUT{i}", array, binary_data=form)
        for i, (array, form) in enumerate(zip(arrays, forms, strict=True))
    ]


WANTED = [
    [],
    [("OUTPUT0", True)],
    [("OUTPUT1", False)],
    [("OUTPUT2", True), ("OUTPUT0", False)],
    [("OUTPUT0", True), ("OUTPUT1", False), ("OUTPUT2", True)],
    [("OUTPUT0", False), ("OUTPUT1", True), ("OUTPUT2", False)],
]


@pytest.mark.parametrize("wanted", WANTED, ids=str)
def test_the_outputs_asked_for_come_back(client, three, same, samples, wanted):
    outputs = [triton.InferRequestedOutput(name, binary_data=form) for name, form in wanted]
    result = client.infer("three", three, outputs=outputs or None)
    names = {name for name, _ in wanted} or {"OUTPUT0", "OUTPUT1", "OUTPUT2"}
    assert {output["name"] for output in result.get_response()["outputs"]} == names
    for name in names:
        expected = samples[("FP32", "BYTES", "INT64")[int(name[-1])]].array
        same(result.as_numpy(name), expected)
    assert result.as_numpy("OUTPUT9") is None


@pytest.mark.parametrize("request_id", ["", "42", "ä日本🚀", '"\\\n', "x" * 5000])
def test_the_request_id_comes_back(client, three, request_id):
    result = client.infer("three", three, request_id=request_id)
    assert result.get_response().get("id", "") == request_id


@pytest.mark.parametrize("version", ["", "1", "2"])
def test_the_version_asked_for_answers(client, version):
    inputs = [
        tensor("input0", np.zeros((2, 2), np.uint32)),
        tensor("input1", np.zeros(3, np.bool_)),
    ]
    result = client.infer("mymodel", inputs, model_version=version)
    assert result.get_response()["model_version"] == (version or "2")


def test_scheduling_arguments_and_parameters_are_accepted(client, three, same, samples):
    result = client.infer(
        "three",
        three,
        sequence_id=2**63,
        sequence_start=True,
        sequence_end=True,
        priority=3,
        timeout=5_000_000,
        headers={"X-Whatever": "1"},
        query_params={"a": "b", "c": ["d", 1]},
        parameters={"text": "ü", "number": 7, "float": 1.5, "flag": True},
    )
    same(result.as_numpy("OUTPUT0"), samples["FP32"].array)
    client.infer("three", three, sequence_id="a text", sequence_start=True)


def test_a_model_name_with_spaces_is_found(client, same):
    array = np.ones((1, 1), np.int32)
    result = client.infer("a model with ü", [tensor("INPUT0", array)])
    assert result.get_response()["model_name"] == "a model with ü"
    same(result.as_numpy("OUTPUT0"), array)


def test_authentication_plugins_do_not_disturb(server, three):
    with triton.InferenceServerClient(server.http) as client:
        client.register_plugin(BasicAuth("user", "password"))
        assert client.is_server_ready()
        assert client.infer("three", three).as_numpy("OUTPUT0") is not None


def test_ready_made_bodies_go_both_ways(client, same):
    inputs = [tensor("INPUT0", ADD_SUB), tensor("INPUT1", ADD_SUB)]
    body, json_size = triton.InferenceServerClient.generate_request_body(inputs)
    headers = {"Inference-Header-Content-Length": json_size}
    answer = client._post("v2/models/add_sub/infer", body, headers, None)
    result = triton.InferenceServerClient.parse_response_body(
        answer.read(), header_length=int(answer.get("Inference-Header-Content-Length"))
    )
    same(result.as_numpy("OUTPUT0"), ADD_SUB + ADD_SUB)


# --- compression ---

CODINGS = [None, "gzip", "deflate"]


@pytest.mark.parametrize("back", CODINGS)
@pytest.mark.parametrize("there", CODINGS)
@pytest.mark.parametrize("rows", [1, pytest.param(60, marks=pytest.mark.slow)])
@pytest.mark.parametrize("form", FORMS)
def test_compressed_bodies(client, same, there, back, rows, form):
    array = np.arange(rows * 5000, dtype=np.float32).reshape(rows, 5000)
    result = client.infer(
        "flat_FP32",
        [tensor("INPUT0", array, binary_data=FORMS[form])],
        outputs=[triton.InferRequestedOutput("OUTPUT0", binary_data=FORMS[form])],
        request_compression_algorithm=there,
        response_compression_algorithm=back,
    )
    same(result.as_numpy("OUTPUT0"), array)


@pytest.mark.parametrize("back", CODINGS)
def test_errors_are_readable_whatever_coding_is_asked_for(client, three, back):
    with refused(404, "nobody" * 300):
        client.infer("nobody" * 300, three, response_compression_algorithm=back)


def test_another_coding_is_refused_by_name(client, three):
    with refused(501, "br"):
        client.infer("three", three, headers={"Content-Encoding": "br"})


# --- large, many, slow ---


@pytest.mark.slow
@pytest.mark.parametrize("coding", [None, pytest.param("deflate", id="compressed")])
def test_twenty_megabytes_go_both_ways(client, same, big, coding):
    array = np.zeros_like(big) if coding else big
    result = client.infer(
        "flat_FP32",
        [tensor("INPUT0", array)],
        request_compression_algorithm=coding,
        response_compression_algorithm=coding,
    )
    same(result.as_numpy("OUTPUT0"), array)


@pytest.mark.slow
def test_requests_in_a_pool_of_connections_all_come_back(server, same):
    with triton.InferenceServerClient(server.http, concurrency=32) as client:
        arrays = [np.full((1, 16), number, np.int32) for number in range(64)]
        pending = [
            client.async_infer(
                "add_sub",
                [tensor("INPUT0", array), tensor("INPUT1", array)],
                request_id=str(number),
            )
            for number, array in enumerate(arrays)
        ]
        for number, (each, array) in enumerate(zip(pending, arrays, strict=True)):
            result = each.get_result()
            assert result.get_response()["id"] == str(number)
            same(result.as_numpy("OUTPUT0"), array * 2)


@pytest.mark.slow
def test_failures_in_a_pool_reach_the_request_that_failed(server):
    inputs = [tensor("INPUT0", np.zeros((1, 1), np.float32))]
    with triton.InferenceServerClient(server.http, concurrency=8) as client:
        models = ["flat_FP32", "nobody"] * 10
        pending = [client.async_infer(model, inputs) for model in models]
        for model, each in zip(models, pending, strict=True):
            if model == "nobody":
                with refused(404, "nobody"):
                    each.get_result()
            else:
                assert each.get_result().as_numpy("OUTPUT0").tolist() == [[0.0]]


@pytest.mark.slow
def test_a_client_that_gives_up_leaves_the_server_healthy(server, client):
    slow = [tensor("INPUT0", np.ones(1, np.float32))]
    with triton.InferenceServerClient(server.http, network_timeout=0.05) as hasty:
        for _ in range(3):
            with pytest.raises((OSError, TimeoutError)):
                hasty.infer("endless", slow)
    assert client.is_server_ready()
    result = client.infer("slow", slow)
    assert result.as_numpy("OUTPUT0").tolist() == [1.0]


@pytest.mark.slow
def test_a_slow_model_holds_up_nobody_else(server):
    is_overtaken = False
    with triton.InferenceServerClient(server.http, concurrency=2) as client:
        for count in (20, 5, 1, 1, 1):  # a busy machine may take as long for twenty others
            pending = client.async_infer("slow", [tensor("INPUT0", np.ones(1, np.float32))])
            for _ in range(count):
                client.infer("flat_FP32", [tensor("INPUT0", np.ones((1, 1), np.float32))])
            try:
                got = pending.get_result(block=False)
            except InferenceServerException:  # not there yet
                is_overtaken, got = True, pending.get_result()
            assert got.as_numpy("OUTPUT0").tolist() == [1.0]
            if is_overtaken:
                break
    assert is_overtaken


@pytest.mark.slow
def test_thirty_two_clients_in_threads(server, same):
    failures = []

    def work(number):
        try:
            with triton.InferenceServerClient(server.http) as client:
                array = np.full((2, 16), number, np.int32)
                for _ in range(10):
                    inputs = [tensor("INPUT0", array), tensor("INPUT1", array)]
                    same(client.infer("add_sub", inputs).as_numpy("OUTPUT0"), array * 2)
        except Exception as error:  # noqa: BLE001 - told below
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


# --- errors ---

FP32 = np.zeros((1, 2), np.float32)
REFUSED = [
    ("nobody", [("INPUT0", FP32)], 404, ["nobody"]),
    ("flat_FP32", [("INPUT1", FP32)], 400, ["INPUT1", "INPUT0"]),
    ("flat_FP32", [("INPUT0", FP32.astype(np.float64))], 400, ["INPUT0", "FP64", "FP32"]),
    ("flat_FP32", [("INPUT0", FP32[0])], 400, ["INPUT0", "got [2]", "Expected [-1,-1]"]),
    (
        "flat_FP32",
        [("INPUT0", FP32), ("INPUT0", FP32)],
        400,
        ["INPUT0", "already exists in request"],
    ),
    ("flat_FP32", [], 400, ["INPUT0"]),
    ("add_sub", [("INPUT0", ADD_SUB)], 400, ["INPUT1"]),
    ("add_sub", [("INPUT0", ADD_SUB), ("INPUT1", ADD_SUB[:1])], 400, ["INPUT1", "batch"]),
]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("model", "inputs", "status", "words"), REFUSED)
def test_wrong_requests_are_refused_in_words(client, model, inputs, status, words, form):
    made = [tensor(name, array, binary_data=FORMS[form]) for name, array in inputs]
    with refused(status, *words):
        client.infer(model, made)


def test_an_unknown_version_is_refused(client):
    with refused(404, "flat_FP32", "9"):
        client.infer("flat_FP32", [tensor("INPUT0", FP32)], model_version="9")


def test_an_unknown_output_is_refused(client):
    with refused(400, "NOPE", "OUTPUT0"):
        client.infer(
            "flat_FP32",
            [tensor("INPUT0", FP32)],
            outputs=[triton.InferRequestedOutput("NOPE")],
        )


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("UNKNOWN", 400),
        ("INTERNAL", 500),
        ("NOT_FOUND", 404),
        ("INVALID_ARG", 400),
        ("UNAVAILABLE", 503),
        ("UNSUPPORTED", 501),
        ("ALREADY_EXISTS", 400),
        ("CANCELLED", 400),
    ],
)
@pytest.mark.parametrize("fault", ["raise_error", "return_error"])
def test_what_a_model_says_reaches_the_client(client, fault, code, status):
    with refused(status, "fails on purpose"):
        client.infer(
            "faulty",
            [tensor("INPUT0", FP32[0])],
            parameters={"fault": fault, "code": code},
        )


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
def test_a_model_that_breaks_is_500_and_no_more(client, fault):
    with refused(500, "faulty"):
        client.infer("faulty", [tensor("INPUT0", FP32[0])], parameters={"fault": fault})
    sound = client.infer("faulty", [tensor("INPUT0", FP32[0])])
    assert sound.as_numpy("OUTPUT0").tolist() == [0.0]


def test_what_the_client_cannot_send_it_refuses_itself(client):
    with pytest.raises(InferenceServerException, match="UTF-8"):
        tensor("INPUT0", np.array([[b"\xff"]], np.object_), binary_data=False)
    for name in ("priority", "triton_x"):
        with pytest.raises(InferenceServerException, match="reserved"):
            client.infer("flat_FP32", [tensor("INPUT0", FP32)], parameters={name: 1})


def test_the_clients_size_header_counts_json_bytes(client, server):
    text = json.dumps({"inputs": [{"name": "INPUT0", "shape": [1, 1], "datatype": "FP32",
                                   "parameters": {"binary_data_size": 4}}]}).encode()  # fmt: skip
    headers = {"Inference-Header-Content-Length": len(text)}
    answer = client._post("v2/models/flat_FP32/infer", text + struct.pack("<f", 2.5), headers, None)
    assert json.loads(answer.read())["outputs"][0]["data"] == [2.5]


# --- TLS ---


@pytest.fixture
def tls_server(start, certificates):
    """A server that speaks HTTPS."""
    return start(
        "--http-use-ssl",
        f"--http-server-cert={certificates / 'server.pem'}",
        f"--http-server-key={certificates / 'server.key'}",
    )


def trusting(certificates):
    def make():
        return gevent.ssl.create_default_context(cafile=certificates / "ca.pem")

    return make


@pytest.mark.slow
def test_https(tls_server, certificates, same, big):
    factory = trusting(certificates)
    with triton.InferenceServerClient(
        tls_server.http, ssl=True, ssl_context_factory=factory
    ) as client:
        assert client.is_server_ready()
        same(client.infer("flat_FP32", [tensor("INPUT0", big)]).as_numpy("OUTPUT0"), big)
    options = {"ca_certs": str(certificates / "ca.pem")}
    with triton.InferenceServerClient(tls_server.http, ssl=True, ssl_options=options) as client:
        assert client.is_server_ready()
    with (
        triton.InferenceServerClient(tls_server.http) as plain,
        pytest.raises((OSError, HTTPParseError)),
    ):
        plain.is_server_ready()


@pytest.mark.slow
def test_https_with_client_certificates(start, certificates):
    server = start(
        "--http-use-ssl-mutual",
        f"--http-server-cert={certificates / 'server.pem'}",
        f"--http-server-key={certificates / 'server.key'}",
        f"--http-root-cert={certificates / 'ca.pem'}",
    )

    def known():
        context = trusting(certificates)()
        context.load_cert_chain(certificates / "client.pem", certificates / "client.key")
        return context

    with triton.InferenceServerClient(server.http, ssl=True, ssl_context_factory=known) as client:
        assert client.is_server_ready()
    with (
        triton.InferenceServerClient(
            server.http, ssl=True, ssl_context_factory=trusting(certificates)
        ) as stranger,
        pytest.raises((OSError, HTTPParseError)),
    ):
        stranger.is_server_ready()
