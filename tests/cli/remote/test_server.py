"""Which server a command speaks to."""

import pytest

from inferd.cli import bench, infer
from inferd.cli.parser import CommandParser
from inferd.cli.remote.server import (
    DEFAULT_URL,
    add_server_arguments,
    client_options,
    failure_text,
    url_of,
)
from inferd.client.errors import ConnectFailed, ConnectionLost, DeadlineExceeded
from inferd.errors import InvalidConfig


@pytest.fixture
def given(monkeypatch):
    """given(words...) returns the arguments."""
    for name in ("INFERD_URL", "INFERD_API_KEY"):
        monkeypatch.delenv(name, raising=False)

    def read(*words):
        parser = CommandParser("inferd verb", "")
        add_server_arguments(parser)
        return parser.read(words)

    return read


def test_the_url_is_that_of_the_flag_the_variable_or_the_default(given, monkeypatch):
    assert url_of(given()) == DEFAULT_URL
    monkeypatch.setenv("INFERD_URL", "grpc://h:1")
    assert url_of(given()) == "grpc://h:1"
    assert url_of(given("--url", "h:8000")) == "http://h:8000"


def test_a_key_is_read_from_a_file_or_the_variable(given, monkeypatch, tmp_path):
    assert client_options(given()) == {"timeout_s": 60.0}
    monkeypatch.setenv("INFERD_API_KEY", "one")
    assert client_options(given())["api_key"] == "one"
    (tmp_path / "key").write_text("two\n")
    assert client_options(given("--api-key-file", str(tmp_path / "key")))["api_key"] == "two"
    (tmp_path / "key").write_bytes(b"\xff")
    with pytest.raises(InvalidConfig, match="it is no text"):
        client_options(given("--api-key-file", str(tmp_path / "key")))


def test_headers_and_files_for_tls_are_passed_on(given):
    words = ["--header", "a: b", "--header", "c:d:e", "--ca-file", "ca.pem", "--timeout", "2"]
    options = client_options(given(*words))
    assert options == {"timeout_s": 2.0, "headers": {"a": "b", "c": "d:e"}, "ca_file": "ca.pem"}


@pytest.mark.parametrize("verb", [bench, infer])
def test_text_asks_for_no_binary_data(verb, given):
    assert "binary" not in client_options(verb.parser().read(["model"]))
    assert client_options(verb.parser().read(["model", "--text"]))["binary"] is False


@pytest.mark.parametrize(
    ("error", "url", "said"),
    [
        (ConnectFailed("not trusted; name its authority with ca_file"), "https://h", "--ca-file"),
        (DeadlineExceeded("longer than its time limit (timeout_s)"), "http://h", "(--timeout)"),
        (ConnectionLost("it closed"), "grpc://h", "If it speaks TLS, write grpcs://"),
        (ConnectionLost("it closed"), "grpcs://h", "it closed"),
        (ConnectFailed("no server listens at h"), "http://h", "start one with inferd serve"),
    ],
)
def test_errors_say_what_to_do_in_the_words_of_the_command_line(error, url, said):
    text = failure_text(error, url)
    assert text.endswith(said) or said in text
    assert "_s" not in text and "ca_file" not in text


@pytest.mark.parametrize("words", [["--timeout", "0"], ["--timeout", "x"], ["--urll", "x"], ["x"]])
def test_wrong_arguments_are_two_lines_and_code_2(given, capsys, words):
    assert given(*words) == 2
    assert capsys.readouterr().err.endswith("\nSee inferd verb --help.\n")
