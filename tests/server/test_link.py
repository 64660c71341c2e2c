import sys

import pytest

from inferd.config.server import ServerConfig
from inferd.errors import InvalidConfig
from inferd.server.places import dashboard_url, has_dashboard, say_link, ui_tokens

FULL = ServerConfig(ui="full")


@pytest.mark.parametrize(
    ("options", "has"),
    [({}, True), ({"ui": "full"}, True), ({"ui": "off"}, False), ({"allow_http": False}, False)],
)
def test_a_server_with_http_has_a_dashboard_unless_it_is_off(options, has):
    assert has_dashboard(ServerConfig(**options)) is has


@pytest.mark.parametrize(
    ("where", "url"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000/ui/"),
        ("http://0.0.0.0:8000", "http://127.0.0.1:8000/ui/"),
        ("https://[::]:8000", "https://[::1]:8000/ui/"),
        ("https://10.0.0.1:80", "https://10.0.0.1:80/ui/"),
    ],
)
def test_the_url_is_one_that_a_browser_on_this_machine_can_open(where, url):
    found = [("gRPC", "127.0.0.1:8001"), ("HTTP", "unix:/x"), ("HTTP", where)]
    assert dashboard_url(FULL, found) == url
    assert dashboard_url(ServerConfig(ui="off"), found) == ""
    assert dashboard_url(FULL, found[:2]) == ""


def test_there_are_tokens_only_where_pages_may_change_things(tmp_path):
    assert ui_tokens(ServerConfig()) is None
    assert ui_tokens(ServerConfig(ui="full", allow_http=False)) is None
    one, other = ui_tokens(FULL), ui_tokens(FULL)
    assert one.token() != other.token()
    assert ui_tokens(FULL, tmp_path).token() == ui_tokens(FULL, tmp_path).token()


def test_a_folder_that_cannot_be_used_is_told(tmp_path):
    with pytest.raises(InvalidConfig, match=r"--ui: cannot keep the token in .*nowhere"):
        ui_tokens(FULL, tmp_path / "nowhere")


def test_the_link_is_printed(capsys):
    tokens = ui_tokens(FULL)
    say_link("http://h/ui/", tokens)
    assert capsys.readouterr().out.endswith(f"http://h/ui/#token={tokens.token()}\n")
    say_link("http://h/ui/", None)
    say_link("", tokens)
    assert capsys.readouterr().out == ""


class _Gone:
    def write(self, _text):
        raise BrokenPipeError


def test_nobody_has_to_read_the_link(monkeypatch, tmp_path):
    closed = (tmp_path / "out").open("w")
    closed.close()
    for output in (_Gone(), closed, None):
        monkeypatch.setattr(sys, "stdout", output)
        say_link("http://h/ui/", ui_tokens(FULL))
