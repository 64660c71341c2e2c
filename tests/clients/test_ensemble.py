"""Ensembles as Triton's clients ask for them, over HTTP and gRPC."""

import json
import queue

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

SCORES = np.array([[0.5, 0.25, 4], [3, 2, 1]], np.float32)


@pytest.fixture(params=[tritonclient.http, tritonclient.grpc], ids=["http", "grpc"])
def package(request):
    """The package of each client in turn."""
    return request.param


@pytest.fixture
def client(package, server):
    """Its client."""
    place = server.http if package is tritonclient.http else server.grpc
    with package.InferenceServerClient(place) as client:
        yield client


def tensor(package, array, datatype):
    given = package.InferInput("INPUT0", array.shape, datatype)
    given.set_data_from_numpy(array)
    return given


def test_an_ensemble_is_asked_like_any_model(package, client, same):
    answer = client.infer("zoo", [tensor(package, SCORES, "FP32")])
    same(answer.as_numpy("OUTPUT0"), SCORES)


def test_its_outputs_come_as_classes_with_the_labels_of_its_step(package, client):
    wanted = package.InferRequestedOutput("OUTPUT0", class_count=1)
    answer = client.infer("zoo", [tensor(package, SCORES, "FP32")], outputs=[wanted])
    assert answer.as_numpy("OUTPUT0").tolist() == [[b"4.000000:2"], [b"3.000000:0:ant"]]


def test_its_platform_is_ensemble(package, client):
    metadata = client.get_model_metadata("zoo")
    config = client.get_model_config("zoo")
    if package is tritonclient.http:
        assert metadata["platform"] == config["platform"] == "ensemble"
        [step] = config["ensemble_scheduling"]["step"]
        assert step["input_map"] == {"INPUT0": "INPUT0"}
    else:
        assert metadata.platform == config.config.platform == "ensemble"
        [step] = config.config.ensemble_scheduling.step
        assert step.input_map == {"INPUT0": "INPUT0"}


@pytest.mark.parametrize("id", [0, 7])
def test_its_answers_name_the_sequence_of_the_request(package, client, id):
    for _ in range(3):  # the second time the answer is known but for its numbers
        answer = client.infer("zoo", [tensor(package, SCORES, "FP32")], sequence_id=id)
        found = answer.get_response()
        if package is tritonclient.http:
            said = found["parameters"]
            assert said == {"sequence_id": id, "sequence_start": False, "sequence_end": False}
        else:
            assert found.parameters["sequence_id"].int64_param == id
            assert not found.parameters["sequence_start"].bool_param
            assert not found.parameters["sequence_end"].bool_param
            assert len(found.parameters) == 3


def test_one_with_a_decoupled_step_is_refused_where_there_is_no_stream(package, client):
    values = np.array([1, 2], np.int32)
    with pytest.raises(InferenceServerException, match="model 'repeated' is decoupled"):
        client.infer("repeated", [tensor(package, values, "INT32")])


def test_one_with_a_decoupled_step_streams(server):
    answers = queue.Queue()
    with tritonclient.grpc.InferenceServerClient(server.grpc) as client:
        client.start_stream(lambda result, error: answers.put(error or result))
        given = tensor(tritonclient.grpc, np.array([5, 6, 7], np.int32), "INT32")
        client.async_stream_infer("repeated", [given])
        got = [answers.get(timeout=30) for _ in range(3)]
        client.stop_stream()
    assert [answer.as_numpy("OUTPUT0").tolist() for answer in got] == [[5], [6], [7]]


# --- traces ---


@pytest.fixture
def ask_zoo(start, package):
    """ask_zoo(options...) asks a server of its own once, and ends it."""

    def ask(*options):
        server = start("--trace-config=level=TIMESTAMPS", "--trace-config=rate=1", *options)
        place = server.http if package is tritonclient.http else server.grpc
        with package.InferenceServerClient(place) as client:
            client.infer("zoo", [tensor(package, SCORES, "FP32")], request_id="q")
        server.terminate()
        assert server.end() == 0

    return ask


@pytest.mark.slow
def test_its_steps_have_traces_that_name_it_as_their_parent(ask_zoo, tmp_path):
    ask_zoo(f"--trace-config=triton,file={tmp_path}/traces")
    found = json.loads((tmp_path / "traces").read_text())
    whole, step = [one for one in found if "model_name" in one]
    assert (whole["model_name"], "parent_id" in whole) == ("zoo", False)
    assert (step["parent_id"], step["request_id"]) == (whole["id"], "q")
    times = {}
    for one in found:
        for moment in one.get("timestamps", ()):
            times[one["id"], moment["name"]] = moment["ns"]
    for name in ("REQUEST_START", "QUEUE_START", "COMPUTE_START"):
        assert times[whole["id"], name] <= times[step["id"], name]
    for name in ("COMPUTE_END", "REQUEST_END"):
        assert times[step["id"], name] <= times[whole["id"], name]


@pytest.mark.slow
def test_its_steps_have_spans_within_its_own(ask_zoo, collector):
    ask_zoo(
        "--trace-config=mode=opentelemetry", f"--trace-config=opentelemetry,url={collector.url}"
    )
    spans = collector.spans()
    by_id = {span.span_id: span.name for span in spans}
    found = [(span.name, by_id.get(span.parent_span_id)) for span in spans]
    [step] = {name for name, _ in found} - {"InferRequest", "zoo", "compute"}
    assert sorted(found, key=str) == sorted(
        [
            ("InferRequest", None),
            ("zoo", "InferRequest"),
            ("compute", "zoo"),
            (step, "zoo"),
            ("compute", step),
        ],
        key=str,
    )
    assert len({span.trace_id for span in spans}) == 1
