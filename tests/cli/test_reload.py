"""inferd reload, against servers that only say what they are to say."""

import socket
import threading
from contextlib import ExitStack

import msgspec
import pytest

from inferd.cli import reload
from inferd.cli.main import main
from inferd.fleet.status import (
    ControlAnswer,
    ControlRequest,
    Replacement,
    ReplacementState,
    ServerStatus,
)

RUNNING, DONE, FAILED = ReplacementState


def status(last=None, port=8000):
    return ControlAnswer(
        status=ServerStatus("1", 7, 0.0, {"HTTP": port}, [], 2, [], replacement=last)
    )


@pytest.fixture
def serve(tmp_path, monkeypatch):
    """serve(name, answers...) answers one request each, and returns the list of requests."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(reload, "_LOOK_S", 0.0)
    (tmp_path / "inferd").mkdir(mode=0o700)
    with ExitStack() as stack:

        def run(name, *answers):
            listening = stack.enter_context(socket.socket(socket.AF_UNIX))
            listening.bind(str(tmp_path / "inferd" / f"{name}.0.control"))
            listening.listen()
            listening.settimeout(30)
            requests = []

            def reply():
                for answer in answers:
                    connection, _ = listening.accept()
                    with connection, connection.makefile("rb") as lines:
                        requests.append(msgspec.json.decode(lines.readline(), type=ControlRequest))
                        connection.sendall(msgspec.json.encode(answer) + b"\n")
                listening.close()

            thread = threading.Thread(target=reply)
            thread.start()
            stack.callback(thread.join)
            return requests

        yield run


def test_progress_is_printed_until_it_is_done(serve, capsys):
    requests = serve(
        "a",
        status(),
        status(Replacement(3, 2)),
        status(Replacement(3, 2, 1)),
        status(Replacement(3, 2, 1)),
        status(Replacement(3, 2, 2, DONE)),
    )
    assert main(["reload"]) == 0
    said = "replacing 2 processes of the server with pid 7\n1 of 2 replaced\n2 of 2 replaced\n"
    assert capsys.readouterr() == (said, "")
    assert [one.do for one in requests] == ["status", "reload", "status", "status", "status"]


def test_a_later_replacement_means_that_this_one_is_done(serve):
    serve("a", status(), status(Replacement(3, 2)), status(Replacement(4, 2)))
    assert main(["reload"]) == 0


@pytest.mark.parametrize(
    ("answers", "complaint"),
    [
        ([status(Replacement(1, 2, 0, FAILED))], "a new process did not start"),
        ([ControlAnswer("models are still loading")], "models are still loading"),
        ([ControlAnswer("no", status().status)], "no"),
        ([status()], "the server does not tell how far it is"),
        ([status(Replacement(1, 2))], "the server with pid 7 has ended, or does not answer"),
    ],
)
def test_what_goes_wrong_is_said_with_code_1(serve, capsys, answers, complaint):
    serve("a", status(), *answers)
    assert main(["reload"]) == 1
    assert capsys.readouterr().err.startswith(f"inferd reload: {complaint}")


def test_of_several_servers_one_is_to_be_chosen(serve, capsys):
    two = status(Replacement(1, 2, 2, DONE), port=9000)
    serve("a", status(), status())
    serve("b", two, two, two)
    assert main(["reload"]) == 2
    said = "inferd reload: there are 2 servers, choose one with --port (8000, 9000)\n"
    assert capsys.readouterr().err == said
    assert main(["reload", "--port=9000"]) == 0


def test_a_server_that_makes_no_sense_is_named_and_passed_over(serve, capsys):
    serve("a", "nonsense")
    serve("b", status(), status(Replacement(1, 2, 2, DONE)))
    assert main(["reload"]) == 0
    assert "a.0.control does not answer: " in capsys.readouterr().err
