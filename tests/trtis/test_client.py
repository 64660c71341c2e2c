"""Our own clients of the old API against our server, both protocols alike."""

import numpy as np
import pytest

from inferd.client.trtis import TrtisGrpc, TrtisHttp
from inferd.errors import InferdError, InvalidRequest, Refused
from inferd.wire.trtis import client as wire
from inferd.wire.trtis.client import Class, Known

BOTH = {"INPUT0": np.arange(32, dtype=np.int32).reshape(2, 16), "INPUT1": np.ones((2, 16), "i4")}


@pytest.fixture(params=["http", "grpc"])
def client(request, server):
    if request.param == "http":
        made = TrtisHttp(f"127.0.0.1:{server.http_port}", timeout_s=30)
    else:
        made = TrtisGrpc(f"127.0.0.1:{server.grpc_port}", timeout_s=30)
    with made:
        yield made


def test_health(client):
    assert client.is_live()
    assert client.is_ready()


def test_status(client):
    assert {"simple", "größe"} <= set(client.status()["model_status"])
    config = client.status("simple")["model_status"]["simple"]["config"]
    assert config["max_batch_size"] == 8


def test_an_inference(client):
    answer = client.infer("simple", BOTH, {"OUTPUT1": 0, "OUTPUT0": 0}, request_id=2**64 - 1)
    assert (answer.model, answer.version, answer.id) == ("simple", 1, 2**64 - 1)
    assert answer.arrays["OUTPUT0"].tolist() == (BOTH["INPUT0"] + 1).tolist()
    assert answer.arrays["OUTPUT1"].tolist() == (BOTH["INPUT0"] - 1).tolist()
    assert answer.classes == {}


def test_classes_beside_a_raw_output(client):
    answer = client.infer("simple", BOTH, {"OUTPUT0": 1, "OUTPUT1": 0})
    assert answer.classes == {"OUTPUT0": [[Class(15, 16.0, "")], [Class(15, 32.0, "")]]}
    assert list(answer.arrays) == ["OUTPUT1"]


def test_labels_and_names_that_are_not_ascii(client):
    answer = client.infer("größe", {"INPUT0": np.float32([1, 3, 2])}, {"OUTPUT0": 2})
    assert answer.classes["OUTPUT0"] == [[Class(1, 3.0, "bée"), Class(2, 2.0, "cat")]]


def test_strings(client):
    words = np.array([["a", "é"]], object)
    answer = client.infer("words", {"INPUT0": words}, {"OUTPUT0": 0})
    assert answer.arrays["OUTPUT0"].tolist() == [[b"a", "é".encode()]]


@pytest.mark.parametrize("version", [1, 3])
def test_a_version(client, version):
    inputs = {"INPUT0": np.int32([5])}
    assert client.infer("some", inputs, {"OUTPUT0": 0}, version=version).version == version
    assert client.infer("some", inputs, {"OUTPUT0": 0}).version == 3


def test_a_refusal_says_why_and_the_client_goes_on(client):
    with pytest.raises(Refused, match="'none'") as refused:
        client.infer("none", {}, {})
    assert refused.value.reason == "INVALID_ARG"  # the status of a model nobody knows
    with pytest.raises(Refused) as refused:
        client.infer("some", {"INPUT0": np.int32([5])}, {"OUTPUT0": 0}, version=2)
    assert refused.value.reason == "UNAVAILABLE"
    assert client.is_live()


@pytest.mark.parametrize("inputs", [{"OTHER": np.int32([1])}, {"INPUT0": np.float32([1])}])
def test_an_input_the_model_has_not_is_not_sent(client, inputs):
    with pytest.raises(InvalidRequest):
        client.infer("some", inputs, {})


def test_a_server_that_does_not_say_what_became_of_a_request():
    for value in (None, "", "nonsense", "code: INVALID"):
        with pytest.raises(InferdError, match="did not say"):
            wire.check_status_line(value)


@pytest.mark.parametrize(
    "read",
    [
        lambda: wire.read_infer_response(Known(True, {}, {}), b"\xff"),
        lambda: wire.read_body(Known(True, {}, {}), "{", b""),
        lambda: wire.known_model(b"\xff", "m"),
        lambda: wire.known_model(b"", "m"),
    ],
)
def test_an_answer_that_cannot_be_read_is_the_server_s_fault(read):
    with pytest.raises(InferdError):
        read()
