"""A server of functions in this process, as programs and notebooks use it."""

import asyncio
import json
import subprocess
import sys
import threading

import numpy as np
import pytest
from numpy.typing import NDArray

import inferd
from inferd.errors import InvalidConfig, LoadFailed


def double(x: NDArray[np.float32]) -> NDArray[np.float32]:
    return 2 * x


class Broken:
    def __init__(self) -> None:
        msg = "no weights"
        raise ValueError(msg)

    def __call__(self, x: int) -> int: ...


BODY = b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [2], "data": [1, 2]}]}'


@pytest.fixture
def threads():
    """Tell the servers that run now and did not before the test."""
    before = set(threading.enumerate())

    def reported():
        new = set(threading.enumerate()) - before
        return [thread.name for thread in new if thread.name == "inferd-server"]

    return reported


def test_a_function_is_served_inside_the_context(ask, threads):
    with inferd.Server(double) as server:
        status, answer = ask(server.http_port, "/v2/models/double/infer", BODY)
        assert (status, answer["outputs"][0]["data"]) == (200, [2.0, 4.0])
        assert server.http_url == f"http://127.0.0.1:{server.http_port}"
        assert server.grpc_url == f"127.0.0.1:{server.grpc_port}"
        assert server.metrics_url == f"http://127.0.0.1:{server.metrics_port}/metrics"
        assert repr(server) == f"<inferd.Server {server.http_url}>"
    assert (server.http_port, server.grpc_port, server.metrics_port) == (0, 0, 0)
    assert (server.http_url, repr(server)) == ("", "<inferd.Server stopped>")
    assert threads() == []


def test_it_runs_where_an_event_loop_runs_already(ask):
    async def notebook():
        server = inferd.Server(double).start()
        try:
            return ask(server.http_port, "/v2/models/double/infer", BODY)[0]
        finally:
            server.stop()

    assert asyncio.run(notebook()) == 200


def test_it_may_be_started_and_stopped_twice(ask, threads):
    server = inferd.Server(double)
    for _ in range(2):
        assert server.start() is server
        port = server.start().http_port
        assert ask(port, "/v2/models/double")[0] == 200
        server.stop()
        server.stop()
    assert threads() == []


PROGRAM = """
import inferd

@inferd.model
def double(x: int) -> int:
    return 2 * x

server = inferd.Server(double).start()
print(double(21), bool(server.http_port))
"""


@pytest.mark.slow
def test_a_server_that_nobody_stops_ends_with_its_program():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=100
    )
    assert (done.stdout, done.stderr) == ("42 True\n", "")


def test_functions_are_served_beside_a_repository(ask, repository, echo):
    with inferd.Server(double, model_repository=repository(m=echo()), grpc_port=0) as server:
        for name in ("m", "double"):
            assert ask(server.http_port, f"/v2/models/{name}")[0] == 200


def test_options_are_those_of_the_command_line(ask):
    with inferd.Server(double, id="mine", allow_grpc=False, http_address="0.0.0.0") as server:
        assert ask(server.http_port, "/v2")[1]["name"] == "mine"
        assert server.grpc_url == ""
        assert server.http_url == f"http://127.0.0.1:{server.http_port}"


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"http_prot": 1}, "'http_prot' is not an option, did you mean http_port?"),
        ({"http_port": "1"}, "http_port: '1' is not a whole number"),
        ({"model_repository": [1]}, "model_repository: .* is not a list of texts"),
        ({"load_model": ["m"]}, "--load-model needs --model-control-mode=explicit"),
    ],
)
def test_wrong_options_are_reported_before_anything_starts(options, complaint):
    with pytest.raises(InvalidConfig, match=complaint):
        inferd.Server(double, **options)


def test_a_model_that_does_not_load_is_an_error_of_the_start(threads):
    with pytest.raises(LoadFailed, match=r"model 'Broken' version 1 .* ValueError: no weights"):
        inferd.Server(double, Broken).start()
    assert threads() == []


def test_so_is_a_model_of_the_repository(repository, echo, broken, threads):
    models = repository(m=echo(), bad=broken, worse="input {")
    with pytest.raises(LoadFailed) as caught:
        inferd.Server(double, model_repository=models).start()
    bad, worse = caught.value.message.splitlines()
    assert bad.startswith("model 'bad' fails to load")
    assert worse.startswith("model 'worse' is not loaded: ")
    assert threads() == []


def test_the_others_are_served_if_the_program_says_so(ask, repository, echo, broken):
    models = repository(m=echo(), bad=broken)
    with inferd.Server(double, Broken, model_repository=models, exit_on_error=False) as server:
        for name, status in (("m", 200), ("double", 200), ("bad", 400), ("Broken", 400)):
            assert ask(server.http_port, f"/v2/models/{name}/ready")[0] == status


@pytest.mark.parametrize("others", [{}, {"double": True}])
def test_a_name_is_used_once(repository, echo, others, threads):
    more = {"model_repository": repository(**{name: echo() for name in others})} if others else {}
    models = (double,) if others else (double, double)
    with pytest.raises(InvalidConfig, match="two models are called 'double'"):
        inferd.Server(*models, **more).start()
    assert threads() == []


def test_explicit_mode_loads_what_a_program_gives_and_clients_may_unload_it(ask):
    with inferd.Server(double, model_control_mode="explicit") as server:

        def status(verb=None):
            path = f"/v2/repository/models/double/{verb}" if verb else "/v2/models/double/ready"
            return ask(server.http_port, path, b"{}" if verb else None)[0]

        assert [status(), status("unload"), status()] == [200, 200, 400]
        assert [status("load"), status()] == [200, 200]


def test_a_load_may_bring_a_configuration_but_not_other_tensors(ask):
    load = "/v2/repository/models/double/load"
    with inferd.Server(double, model_control_mode="explicit") as server:

        def loaded(**config):
            body = {"parameters": {"config": json.dumps(config)}}
            return ask(server.http_port, load, json.dumps(body).encode())

        assert loaded(parameters={"a": {"string_value": "b"}})[0] == 200
        config = ask(server.http_port, "/v2/models/double/config")[1]
        assert config["parameters"] == {"a": {"string_value": "b"}}
        assert [one["name"] for one in config["input"]] == ["x"]
        status, answer = loaded(max_batch_size=3)
        assert status == 400
        assert "max_batch_size is 3, expected 0" in answer["error"]


def test_a_server_with_a_dashboard_that_changes_things_prints_its_link(capsys):
    with inferd.Server(double, ui="full") as server:
        assert f"{server.http_url}/ui/#token=" in capsys.readouterr().out
    with inferd.Server(double):
        assert capsys.readouterr().out == ""
