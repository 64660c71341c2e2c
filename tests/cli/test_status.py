"""inferd status, without servers and with sockets that are none."""

import socket

import pytest

from inferd.cli.main import main
from inferd.cli.status import _duration


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder in which control sockets are looked for."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (tmp_path / "inferd").mkdir(mode=0o700)
    return tmp_path / "inferd"


@pytest.mark.parametrize("verb", ["status", "reload"])
def test_no_server_is_told_so(folder, capsys, verb):
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(folder / "8000-a.0.control"))
    assert main([verb]) == 1
    words = "no server of several processes is running (inferd serve --workers N)"
    assert capsys.readouterr() == ("", f"inferd {verb}: {words}\n")
    assert main([verb, "--port", "8000"]) == 1
    assert capsys.readouterr().err == f"inferd {verb}: {words} that has port 8000\n"


@pytest.mark.parametrize("verb", ["status", "reload"])
def test_a_folder_of_others_is_not_looked_at(folder, capsys, verb):
    folder.chmod(0o777)
    assert main([verb]) == 1
    assert "can be written by others" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.9, "0s"), (61, "1m 1s"), (3600, "1h 0m"), (90_000, "1d 1h")],
)
def test_times_have_two_units(seconds, text):
    assert _duration(seconds) == text


@pytest.mark.parametrize("verb", ["status", "reload"])
def test_help_says_what_is_shown(capsys, verb):
    assert main([verb, "--help"]) == 0
    assert capsys.readouterr().out.startswith(f"inferd {verb} [--port PORT]")
