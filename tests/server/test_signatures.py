"""Servers that load signed models alone."""

import json
import shutil
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from small_hub import SmallHub, tar_of

import inferd
from inferd.errors import InvalidConfig, LoadFailed

SIGNED = Path(__file__).parents[1] / "data/signed"


@pytest.fixture
def models(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    shutil.copytree(SIGNED / "echo", tmp_path / "models/echo")
    shutil.copytree(SIGNED / "echo", tmp_path / "models/changed")
    (tmp_path / "models/changed/1/weights.bin").write_bytes(b"others")
    return tmp_path / "models"


def served(models, **options):
    return inferd.Server(
        model_repository=str(models), require_signatures=(str(SIGNED / "pub.pem"),), **options
    )


def ask(url, document=None):
    body = None if document is None else json.dumps(document).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body), timeout=30) as answer:
            return json.loads(answer.read() or b"{}")
    except urllib.error.HTTPError as error:
        return json.loads(error.read())


@pytest.mark.slow
def test_a_signed_model_is_served_and_one_that_does_not_verify_is_not(models):
    words = "model 'changed', --require-signatures: it was signed as 'echo', expected 'changed'$"
    with pytest.raises(LoadFailed, match=words):
        served(models).start()
    with served(models / "echo") as server:
        tensor = {"name": "x", "datatype": "FP32", "shape": [2], "data": [1, 2]}
        answer = ask(f"{server.http_url}/v2/models/echo/infer", {"inputs": [tensor]})
        assert answer["outputs"][0]["data"] == [1, 2]


@pytest.mark.slow
def test_what_is_fetched_has_to_be_signed_too(models, tmp_path, monkeypatch):
    monkeypatch.setenv("INFERD_FETCH_DIRECTORY", str(tmp_path / "stored"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    hub = SmallHub()
    try:
        files = {
            path.relative_to(models).as_posix(): path.read_bytes()
            for path in models.rglob("*")
            if path.is_file()
        }
        good = {path: content for path, content in files.items() if path.startswith("echo/")}
        with served(hub.put("/good.tar.gz", tar_of(good))) as server:
            assert ask(f"{server.http_url}/v2/models/echo")["name"] == "echo"
        with pytest.raises(LoadFailed, match="expected 'changed'"):
            served(hub.put("/all.tar.gz", tar_of(files))).start()
    finally:
        hub.close()


@pytest.mark.slow
def test_clients_send_no_configurations_and_no_files(models):
    with served(models, model_control_mode="explicit") as server:
        load = f"{server.http_url}/v2/repository/models/echo/load"
        config = '{"backend": "square"}'
        refused = ask(load, {"parameters": {"config": config}})
        assert "models have to be signed (--require-signatures)" in refused["error"]
        refused = ask(load, {"parameters": {"config": config, "file:1/x": "eA=="}})
        assert "models have to be signed (--require-signatures)" in refused["error"]
        assert "error" not in ask(load, {})
        refused = ask(f"{server.http_url}/v2/repository/models/changed/load", {})
        assert "expected 'changed'" in refused["error"]


def test_functions_are_no_models_that_can_be_signed(models, tmp_path):
    (tmp_path / "app.py").write_text("raise SystemExit\n")
    with (
        pytest.raises(InvalidConfig, match=r"signatures\): the functions of app.py are no models"),
        served(tmp_path / "app.py"),
    ):
        pass


def test_a_key_that_cannot_be_read_ends_the_start(models):
    with pytest.raises(InvalidConfig, match="--require-signatures: none is no file"):
        inferd.Server(model_repository=str(models), require_signatures=("none",)).start()
