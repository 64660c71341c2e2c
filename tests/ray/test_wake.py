"""inferd route --ray wakes a group that sleeps when somebody asks for its models.

Ray is a stand-in, whose group becomes a server of inferd's when it is woken.
"""

import re
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
from routed import ON_FREE_ROUTE_PORTS, SMALL, WHERE, Server, route_process
from running_fleet import until
from tritonclient.utils import InferenceServerException

pytestmark = pytest.mark.slow

BODY = b'{"inputs":[{"name":"x","datatype":"INT32","shape":[1],"data":[7]}]}'
TOLD = "no place has the model 'same' now, and one is being started: ask again in 5 seconds"


@pytest.fixture
def ports(models, monkeypatch):
    """The HTTP and the gRPC port of a route to a group that sleeps."""
    server = Server("g-1", models)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent / "stand_in"))
    monkeypatch.setenv("STAND_IN_PORTS", f"{server.http_port} {server.grpc_port}")
    route = route_process("--ray=auto", "--name=asleep", *ON_FREE_ROUTE_PORTS, *SMALL)
    try:
        yield [int(port) for port in route.wait_for(WHERE).groups()]
    finally:
        route.process.terminate()
        code = route.end()
        route.process.stdout.close()
        server.end()
    assert code == 0, route.said


def asked_over_rest(ports):
    """Return what is answered, and what Retry-After says."""
    url = f"http://127.0.0.1:{ports[0]}/v2/models/same/infer"
    try:
        with urllib.request.urlopen(url, BODY) as answer:
            return answer.read().decode(), None
    except urllib.error.HTTPError as error:
        return f"{error.code} {error.read().decode()}", error.headers["Retry-After"]


def test_a_request_over_rest_wakes_a_group_and_is_told_to_come_again(ports):
    text = until(lambda: [said for said, later in [asked_over_rest(ports)] if later == "5"])[0]
    assert text.startswith(f'503 {{"error":"{TOLD}')
    until(lambda: '"data":[7]' in asked_over_rest(ports)[0])


def test_a_call_over_grpc_wakes_a_group_and_is_told_to_come_again(ports):
    value = triton_grpc.InferInput("x", [1], "INT32")
    value.set_data_from_numpy(np.array([7], np.int32))

    def asked():
        try:
            return client.infer("same", [value]).as_numpy("x").tolist()
        except InferenceServerException as error:
            return str(error)

    with triton_grpc.InferenceServerClient(f"127.0.0.1:{ports[1]}") as client:
        said = until(lambda: [one for one in [asked()] if "started" in one])[0]
        assert re.match(rf"\[StatusCode.UNAVAILABLE\] {re.escape(TOLD)}", said)
        until(lambda: asked() == [7])
