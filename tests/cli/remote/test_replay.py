"""inferd replay against whole servers: a log that they have written themselves."""

import json
import signal

import numpy as np
import pytest
import tritonclient.grpc as over_grpc
import tritonclient.http as over_http
from server_thread import server_in_thread

from inferd.cli.main import main
from inferd.config.server import ServerConfig

SCALED = """
import inferd, numpy as np
from numpy.typing import NDArray

@inferd.model
def m(INPUT0: NDArray[np.float32]) -> NDArray[np.float32]:
    return INPUT0 * np.float32({factor})
"""


@pytest.fixture
def serve(tmp_path):
    """serve(factor, option=value) is a server whose model `m` multiplies by `factor`."""

    def build(factor, **more):
        (tmp_path / "models.py").write_text(SCALED.format(factor=factor))
        return server_in_thread(
            ServerConfig(
                http_port=0,
                grpc_port=0,
                allow_metrics=False,
                model_repository=(str(tmp_path / "models.py"),),
                **more,
            )
        )

    return build


@pytest.fixture
def log(serve, tmp_path):
    """log(option=value) is a log of four requests: JSON, binary, gRPC, and one that fails."""

    def write(*settings, name="log.jsonl"):
        path = tmp_path / name
        with serve(2, payload_log=str(path), payload_log_config=settings) as server:
            client = over_http.InferenceServerClient(f"127.0.0.1:{server.http_port}")
            for is_binary in (False, True):
                client.infer("m", [given(over_http, is_binary=is_binary)])
            with pytest.raises(over_http.InferenceServerException):
                client.infer("m", [given(over_http, name="WRONG", is_binary=True)])
            client.close()
            client = over_grpc.InferenceServerClient(f"127.0.0.1:{server.grpc_port}")
            client.infer("m", [given(over_grpc)])
            client.close()
        return str(path)

    return write


def given(library, name="INPUT0", **more):
    values = np.linspace(0, 1, 500, dtype=np.float32)
    tensor = library.InferInput(name, [500], "FP32")
    if library is over_http:
        tensor.set_data_from_numpy(values, binary_data=more["is_binary"])
    else:
        tensor.set_data_from_numpy(values)
    return tensor


@pytest.fixture
def replay(capsys):
    """replay(argument, ...) returns the exit code, and what was said on either output."""
    before = signal.getsignal(signal.SIGINT)

    def run(*arguments):
        code = main(["replay", *arguments])
        said = capsys.readouterr()
        return code, said.out, said.err

    yield run
    signal.signal(signal.SIGINT, before)


def url(server):
    return f"--url=http://127.0.0.1:{server.http_port}"


@pytest.mark.parametrize("name", ["log.jsonl", "log.parquet"])
def test_the_same_server_answers_the_same(serve, log, replay, name):
    path = log(name=name)
    with serve(2) as server:
        code, said, _ = replay(path, url(server))
    assert code == 0
    assert "4 sent: 3 answers the same, 0 different, 0 failed, 1 without an answer" in said
    assert f"unanswered: {path}:5: model 'm'" in said and "now it fails with 400" in said


def test_another_model_answers_otherwise_beyond_the_tolerance(serve, log, replay):
    path = log()
    with serve(2.01) as server:
        code, said, _ = replay(path, url(server))
        assert code == 1 and "0 answers the same, 3 different" in said
        assert f"different: {path}:1: model 'm'" in said
        assert "differs in 499 elements, as at [1]" in said
        code, said, _ = replay(path, url(server), "--tolerance=0.1", "--json")
        assert code == 0
        assert json.loads(said) == {
            "same": 3,
            "different": 0,
            "failed": 0,
            "cut": 0,
            "unanswered": 1,
            "unreadable": 0,
        }


def test_what_was_cut_is_refused_and_named(serve, log, replay):
    path = log("max-bytes=1000")
    with serve(2) as server:
        code, said, _ = replay(path, url(server))
    assert code == 1
    assert said.count("it was cut when it was logged (max-bytes), and not sent") == 4
    assert "0 sent" in said and "4 were cut when they were logged" in said


def test_a_server_without_the_model_fails(serve, log, replay, tmp_path):
    path = log()
    (tmp_path / "others.py").write_text(SCALED.format(factor=2).replace("def m", "def other"))
    config = ServerConfig(
        http_port=0,
        grpc_port=0,
        allow_metrics=False,
        model_repository=(str(tmp_path / "others.py"),),
    )
    with server_in_thread(config) as server:
        code, said, _ = replay(path, url(server))
    assert code == 1 and "3 failed" in said and "the server answers 404" in said


def test_a_line_that_is_no_event_is_told(serve, log, replay):
    path = log()
    with open(path, "ab") as file:
        file.write(b'{"id": "half')
    with serve(2) as server:
        code, said, _ = replay(path, url(server))
    assert code == 1 and f"unreadable: {path}:8: this is no line of JSON" in said
    assert "3 answers the same" in said


def test_without_a_server_it_says_what_to_do(log, replay):
    path = log()
    code, said, told = replay(path, "--url=http://127.0.0.1:1")
    assert code == 1 and "nothing listens there; is the server started" in told
    assert "0 sent" in said


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((), "See inferd replay --help."),
        (("log",), "--url"),
        (("log", "--url=a", "--header=x"), "--header is none, expected NAME:VALUE"),
        (("log", "--url=a", "--tolerance=-1"), "--tolerance"),
    ],
)
def test_wrong_arguments_are_told(replay, arguments, text):
    code, _, told = replay(*arguments)
    assert code == 2 and text in told


def test_a_log_that_is_not_there_is_told(replay, tmp_path):
    code, _, told = replay(str(tmp_path / "none"), "--url=http://127.0.0.1:1")
    assert code == 1 and f"inferd replay: cannot read {tmp_path / 'none'}: No such file" in told


def test_its_help_names_all_it_takes(replay):
    code, said, _ = replay("--help")
    assert code == 0
    assert max(map(len, said.splitlines())) <= 100
    for flag in ("--url", "--tolerance", "--header", "--timeout", "--json"):
        assert flag in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--header", "ä:1"], "--header is none"),
        (["--header", "a b:1"], "--header is none"),
        (["--header", "x:日"], "--header is none"),
        (["--timeout", "0"], "0 is not more than 0"),
        (["--timeout", "1e300"], "1e300 is not more than 0 and less than 1e9"),
        (["--timeout", "x"], "'x' is no number"),
        (["--tolerance", "nan"], "nan is not from 0 on"),
        (["--url", "ftp://h"], "--url ftp://h is no address of a server"),
    ],
)
def test_values_that_cannot_be_used_are_wrong_arguments(capsys, words, said):
    assert main(["replay", "log.jsonl", "--url", "http://127.0.0.1:1", *words]) == 2
    assert said in capsys.readouterr().err
