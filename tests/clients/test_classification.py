"""Classification as Triton's clients ask for it, over HTTP and gRPC."""

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

SCORES = np.array([[0.5, 0.25, 4], [3, 2, 1]], np.float32)


@pytest.fixture(params=[tritonclient.http, tritonclient.grpc], ids=["http", "grpc"])
def classify(request, server):
    """classify(model, scores, options...) asks for OUTPUT0 and returns it."""
    package = request.param
    place = server.http if package is tritonclient.http else server.grpc
    client = package.InferenceServerClient(place)

    def ask(model, scores, datatype="FP32", **options):
        given = package.InferInput("INPUT0", scores.shape, datatype)
        given.set_data_from_numpy(scores)
        wanted = package.InferRequestedOutput("OUTPUT0", **options)
        return client.infer(model, [given], outputs=[wanted]).as_numpy("OUTPUT0")

    yield ask
    client.close()


def test_the_greatest_come_with_their_labels(classify):
    found = classify("animals", SCORES, class_count=2)
    assert found.tolist() == [
        [b"4.000000:2", b"0.500000:0:ant"],
        [b"3.000000:0:ant", b"2.000000:1:bee"],
    ]


def test_no_more_come_than_there_are(classify):
    assert classify("animals", SCORES, class_count=1000).shape == (2, 3)


def test_the_plain_output_comes_when_no_classes_are_wanted(classify, same):
    same(classify("animals", SCORES), SCORES)


def test_strings_have_no_classes(classify, same):
    texts = np.array([[b"a", b"b"]], np.object_)
    with pytest.raises(
        InferenceServerException, match=r"class result not available .* that of output 'OUTPUT0'"
    ):
        classify("flat_BYTES", texts, "BYTES", class_count=1)
    same(classify("flat_BYTES", texts, "BYTES"), texts)


def test_json_has_them_as_strings(server):
    client = tritonclient.http.InferenceServerClient(server.http)
    given = tritonclient.http.InferInput("INPUT0", (2, 3), "FP32")
    given.set_data_from_numpy(SCORES, binary_data=False)
    wanted = tritonclient.http.InferRequestedOutput("OUTPUT0", binary_data=False, class_count=1)
    [output] = client.infer("animals", [given], outputs=[wanted]).get_response()["outputs"]
    assert (output["datatype"], output["shape"]) == ("BYTES", [2, 1])
    assert output["data"] == ["4.000000:2", "3.000000:0:ant"]
    client.close()
