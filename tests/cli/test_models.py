"""inferd models, load, unload, stats."""

import json
import signal

import pytest

from inferd.cli.models import stats_board
from inferd.cli.terminal import board_text
from inferd.observe.statistics import Duration, InferStatistics, ModelStatistics


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_the_models_of_a_server_are_a_table(command, served, protocol):
    said = command("models", protocol=protocol)
    title, head, *rows = said.out.splitlines()
    assert title.endswith(": 6 models") and head.split() == ["model", "version", "state", "reason"]
    assert ["counted", "1", "READY"] in [row.split() for row in rows]
    found = command("models", "--json", protocol=protocol).json
    assert {"name": "rows", "version": "1", "state": "READY", "reason": ""} in found


def test_watching_goes_on_until_ctrl_c(command, monkeypatch):
    """Between two looks there is a pause; in the second the signal comes."""
    pauses = []

    def pause(seconds):
        pauses.append(seconds)
        if len(pauses) == 2:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("inferd.cli.models.time.sleep", pause)
    said = command("stats", "rows", "--watch", "--json")
    assert said.code == 130 and said.out.count("\n") == 2 and not said.err


def test_json_on_a_terminal_stays_a_line(command, monkeypatch):
    """Where tables are drawn, lines are broken at the terminal's width."""
    monkeypatch.setattr("inferd.cli.models.screen", lambda: pytest.fail("a screen is drawn"))
    said = command("models", "--json")
    assert said.out.count("\n") == 1 and said.json


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_a_model_is_shown_with_inputs_and_outputs(command, protocol):
    said = command("models", "rows", protocol=protocol)
    assert said.out.startswith("rows, ") and "input   x     FP32      [-1,3]\n" in said.out
    found = command("models", "rows", "--json", protocol=protocol).json
    assert found["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 3]}]
    said = command("models", "nobody", protocol=protocol)
    assert said.code == 1 and "nobody" in said.err


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_models_are_unloaded_and_loaded(command, protocol):
    said = command("unload", "texts", protocol=protocol)
    assert said.code == 0 and said.out.startswith("texts unloaded in ")
    states = {one["name"]: one["state"] for one in command("models", "--json").json}
    assert states["texts"] != "READY"
    said = command("load", "texts", "nobody", "ints", protocol=protocol)
    assert said.code == 1 and "texts loaded in" in said.out and "ints loaded in" in said.out
    assert said.err.startswith("inferd load: nobody: ")
    found = command("load", "texts", "nobody", "--json", protocol=protocol)
    assert found.code == 1
    assert [(one["model"], one["ok"]) for one in found.json] == [("texts", True), ("nobody", False)]


def test_a_model_is_loaded_with_another_configuration(command, tmp_path):
    ports = [{"name": "x", "data_type": "TYPE_INT32", "dims": [2]}]
    config = {"backend": "identity", "input": ports, "output": [{**ports[0], "name": "y"}]}
    (tmp_path / "c.json").write_text(json.dumps(config))
    assert command("load", "ints", "--config", str(tmp_path / "c.json")).code == 0
    assert "[2]" in command("models", "ints").out
    assert command("load", "ints").code == 0
    assert "[-1]" in command("models", "ints").out
    for text in ("{", "[" * 100_000):
        (tmp_path / "c.json").write_text(text)
        said = command("load", "ints", "--config", str(tmp_path / "c.json"))
        assert said.code == 2 and "cannot be read as JSON" in said.err
    (tmp_path / "c.json").write_text("{}")
    said = command("load", "ints", "rows", "--config", str(tmp_path / "c.json"))
    assert said.code == 2 and "of one model" in said.err


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_statistics_are_averages(command, protocol):
    assert command("infer", "rows", "-i", "x=[[1,2,3],[1,2,3]]").code == 0
    said = command("stats", "rows", protocol=protocol)
    assert said.code == 0 and "since the models were loaded" in said.out
    [found] = command("stats", "rows", "--json", protocol=protocol).json
    assert found["inference_stats"]["success"]["count"] >= 1


def test_a_server_without_statistics_is_told_apart(command, other_server):
    body = b'{"name":"other","version":"1","extensions":[],"error":"no stats"}'
    site = other_server(
        lambda request: (
            b"HTTP/1.1 %b\r\nContent-Length: %d\r\n\r\n%b"
            % (b"404 No" if b"stats" in request else b"200 OK", len(body), body)
        )
    )
    said = command("stats", url=site)
    assert said.code == 1 and "has no statistics, an extension of Triton's: no stats" in said.err


def statistics(count, ns):
    each = {name: Duration(count, ns) for name in InferStatistics.__struct_fields__}
    each |= {"fail": Duration(1, 0), "cache_hit": Duration(0, 0)}
    return ModelStatistics("m", "1", 0, 4 * count, 2 * count, InferStatistics(**each), {}, [], [])


def test_what_is_watched_is_the_difference():
    before, now = statistics(10, 10_000_000), statistics(30, 50_000_000)
    text = board_text(stats_board([now], {("m", "1"): before}, 2.0))
    row = text.splitlines()[-1].split()
    assert row == ["m", "1", "20", "-", "10", "2", *["2"] * 5, "-"]
    assert "in the last 2.0 s" in text
    row = board_text(stats_board([now], {}, 0.0)).splitlines()[-1].split()
    assert row[:5] == ["m", "1", "30", "1", "-"]


@pytest.mark.parametrize("verb", ["models", "stats", "load", "unload"])
def test_no_server_is_code_1_and_wrong_arguments_are_code_2(command, dead_url, verb):
    model = ["m"] if verb in ("load", "unload") else []
    said = command(verb, *model, url=dead_url)
    assert said.code == 1 and said.err.startswith(f"inferd {verb}: no server listens at")
    said = command(verb, *model, "--wrong")
    assert said.code == 2 and f"See inferd {verb} --help." in said.err
    said = command(verb, "--help")
    assert said.code == 0 and said.out.startswith(f"usage: inferd {verb}")


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_a_name_that_is_no_utf_8_is_refused(command, protocol):
    name = "caf\udce9"
    for verb in ("models", "stats"):
        said = command(verb, name, protocol=protocol)
        assert said.code == 2 and said.err.startswith(f"inferd {verb}: 'caf\\udce9' cannot be sent")
    found = command("load", name, "texts", "--json", protocol=protocol)
    assert found.code == 1 and [one["ok"] for one in found.json] == [False, True]
    said = command("infer", name, "--random", protocol=protocol)
    assert said.code == 2 and "cannot be sent" in said.err


@pytest.mark.parametrize("verb", ["load", "unload", "infer", "bench"])
def test_a_model_without_a_name_is_a_wrong_argument(command, verb):
    said = command(verb, "")
    assert said.code == 2 and "argument MODEL: it is empty: name a model" in said.err


@pytest.mark.parametrize("verb", ["load", "unload"])
def test_a_page_is_no_sign_that_anything_was_done(command, other_server, verb):
    page = b"<!doctype html><p>Hello"
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(page)}\r\n\r\n".encode()
    said = command(verb, "m", url=f"http://{other_server(head + page)}")
    assert said.code == 1 and not said.out
    assert "the answer is a page" in said.err and "a server that speaks V2?" in said.err


@pytest.mark.parametrize("verb", ["models", "stats", "load", "unload", "config", "infer", "bench"])
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--url", "ftp://h"], "is no URL of a server"),
        (["--url", "http://h", "--header", "a b:1"], "header 'a b' cannot be sent"),
        (["--url", "http://h", "--ca-file", "x"], "--ca-file has no use"),
    ],
)
def test_what_says_no_server_is_a_wrong_argument(command, verb, words, said):
    found = command(verb, "m", *words, url="")
    assert found.code == 2 and said in found.err
