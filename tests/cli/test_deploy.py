"""inferd deploy and inferd places, without a cluster; tests/ray has one."""

import os
import signal
import socket
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import grpc
import pytest

from inferd.cli.main import main


@pytest.fixture
def file(tmp_path):
    (tmp_path / "models.toml").write_text("[groups.a]\nmodels = 'm'\ncpu = 1\n")
    return tmp_path / "models.toml"


def test_a_broken_file_is_named_with_line_and_key(file, capsys):
    assert main(["deploy", str(file)]) == 2
    said = f"inferd deploy: {file}, line 3: groups.a.cpu is not known, did you mean cpus?\n"
    assert capsys.readouterr().err == said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "give a FILE, or one of"),
        (["a.toml", "--down"], "give a FILE, or one of"),
        (["--down", "--status"], "not allowed with"),
        (["--scale", "digits"], "--scale is 'digits', expected GROUP=N"),
        (["--scale", "digits=-1"], "--scale is 'digits=-1', expected GROUP=N"),
        (["--status", "--timeout", "0"], "--timeout is 0, expected seconds"),
        (["--status", "--what"], "unrecognized arguments: --what"),
    ],
)
def test_wrong_arguments_are_refused(words, said, capsys):
    assert main(["deploy", *words]) == 2
    assert said in capsys.readouterr().err


def test_help_is_written(capsys):
    for verb in ("deploy", "places"):
        assert main([verb, "--help"]) == 0
        assert "--ray ADDRESS" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["deploy", "--status"], ["places"]])
def test_without_ray_it_is_said_how_to_get_it(words, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ray", None)  # whoever imports it is told that there is none
    assert main([*words, "--ray", "127.0.0.1:1"]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"inferd {words[0]}: Ray is not installed")
    assert said.endswith("pip install 'inferd[ray]'\n")


@pytest.fixture
def ray(monkeypatch):
    """A module that is there, and is in no cluster."""

    class Ray:
        is_initialized = staticmethod(lambda: False)

        @staticmethod
        def init(**_):
            msg = "there is something wrong:\n\n  in the middle\nwith the cluster"
            raise ConnectionError(msg)

    monkeypatch.setitem(sys.modules, "ray", Ray)


@pytest.mark.usefixtures("ray")
@pytest.mark.parametrize(
    "address", ["nowhere", "local", "host:", "host:port", "ray://h", "host:99999"]
)
def test_what_is_no_address_is_refused(address, capsys):
    assert main(["places", "--ray", address]) == 1
    said = f"the address of Ray is {address!r}, expected HOST:PORT, ray://HOST:PORT or auto"
    assert capsys.readouterr().err == f"inferd places: {said}\n"


@pytest.mark.usefixtures("ray")
def test_where_nobody_listens_is_said_soon(capsys):
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))  # it does not listen
        address = f"127.0.0.1:{one.getsockname()[1]}"
        assert main(["deploy", "--status", "--ray", address]) == 1
    said = f"inferd deploy: no Ray cluster can be reached at {address}: Connection refused\n"
    assert capsys.readouterr().err == said


@pytest.mark.usefixtures("ray")
def test_a_server_that_is_no_ray_is_said_to_be_none(capsys):
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as other:
        threading.Thread(target=other.serve_forever).start()
        address = f"127.0.0.1:{other.server_port}"
        try:
            assert main(["places", "--ray", address]) == 1
        finally:
            other.shutdown()
    said = capsys.readouterr().err
    assert said.endswith(
        f"inferd places: what listens at {address} is no Ray, or does not answer\n"
    )


@pytest.mark.usefixtures("ray")
@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_why_a_cluster_cannot_be_entered_is_said(scheme, capsys):
    server = grpc.server(ThreadPoolExecutor(1))
    address = f"{scheme}127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        assert main(["places", "--ray", address]) == 1
    finally:
        server.stop(None)
    said = f"no Ray cluster can be entered at {address}: there is something wrong: with the cluster"
    assert capsys.readouterr().err == f"inferd places: {said}\n"


@pytest.mark.parametrize("words", [["places", "--watch"], ["deploy", "--status", "--watch"]])
def test_ctrl_c_takes_what_is_shown_down(monkeypatch, words):
    closed = []

    class Interrupted:
        def __init__(self, *_):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *_):
            closed.append(self)

        def status(self):
            os.kill(os.getpid(), signal.SIGINT)

        def places(self, *_):
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr("inferd.ray.connection.RayPlacement", Interrupted)
    # As the command begins: until something is shown, Ctrl-C ends it at once.
    signal.signal(signal.SIGINT, lambda *_: pytest.fail("the whole command is ended"))
    assert main([*words, "--ray=127.0.0.1:1"]) == 130
    assert len(closed) == 1
