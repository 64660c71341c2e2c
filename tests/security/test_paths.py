"""Paths that lead elsewhere, wherever a load takes one: nothing is read, written or told of."""

import base64
import hashlib
import json
from pathlib import Path

import grpc
import pytest
from target import SERVICE, field_of

NAMES = [
    *("..", ".", "../echo", "echo/../../secret", "/etc", "%2e%2e", "..\\echo", "C:\\x", "a/b"),
    *("echo/1", "\0", "echo\0", "x" * 300, "~", ".hidden", "\ud7ff", "file:///etc", "s3://b/x"),
]
OUTSIDE = ["../{}", "../../{}", "../../../{}", "1/../../../{}", "1/../../{}", "..\\{}", "./../{}"]
CONFIG = {
    "backend": "identity",
    "input": [{"name": "IN", "data_type": "TYPE_FP32", "dims": [1]}],
    "output": [{"name": "OUT", "data_type": "TYPE_FP32", "dims": [1]}],
}


def in_label(path):
    output = CONFIG["output"][0] | {"label_filename": path}
    return CONFIG | {"output": [output]}


def in_warmup(path):
    data = {"data_type": "TYPE_FP32", "dims": [1], "input_data_file": path}
    return CONFIG | {"model_warmup": [{"name": "w", "batch_size": 1, "inputs": {"IN": data}}]}


def in_state(path):
    first = {"data_type": "TYPE_FP32", "dims": [1], "data_file": path, "name": "s"}
    state = {"input_name": "S", "output_name": "T", "data_type": "TYPE_FP32", "dims": [1]}
    state["initial_state"] = [first]
    return CONFIG | {"sequence_batching": {"state": [state]}}


def in_checksum(path):
    agent = {"name": "checksum", "parameters": {f"SHA256:{path}": "0" * 64}}
    return CONFIG | {"model_repository_agents": {"agents": [agent]}}


FIELDS = {
    "default_model_filename": lambda path: CONFIG | {"default_model_filename": path},
    "label_filename": in_label,
    "input_data_file": in_warmup,
    "data_file": in_state,
    "op_library_filename": lambda path: (
        CONFIG | {"model_operations": {"op_library_filename": [path]}}
    ),
    "checksum": in_checksum,
}


@pytest.fixture(scope="module")
def secret(_server):
    """The name of a file beside the repository, and beside each model."""
    for folder in (_server.folder, _server.repository, _server.repository / "echo"):
        (folder / "secret").write_text("the secret")
    return "secret"


def load(target, name, config, files=()):
    """Load a model with a configuration over REST and over gRPC, and return both errors."""
    text = json.dumps(config)
    given = {"config": text}
    message = field_of(2, name.encode()) + _parameter("config", field_of(3, text.encode()))
    for path, content in dict(files).items():
        given[path] = base64.b64encode(content).decode()
        message += _parameter(path, field_of(4, content))
    body = json.dumps({"parameters": given})
    status, answer = target.ask("POST", f"/v2/repository/models/{name}/load", body)
    code, details = target.call(SERVICE + "RepositoryModelLoad", message)
    assert (status == 200) == (code is grpc.StatusCode.OK)
    return (answer.decode(), "") if status == 200 else (json.loads(answer)["error"], details)


def _parameter(name, value):
    return field_of(3, field_of(1, name.encode()) + field_of(2, value))


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_a_name_that_is_a_path_loads_nothing(target, name):
    quoted = "".join(f"%{byte:02x}" for byte in name.encode())
    for verb in ("load", "unload"):
        status, answer = target.ask("POST", f"/v2/repository/models/{quoted}/{verb}", b"{}")
        assert status >= 400 or verb == "unload", answer
        assert str(target.folder) not in answer.decode()
    code, answer = target.call(SERVICE + "RepositoryModelLoad", field_of(2, name.encode()))
    assert code is not grpc.StatusCode.OK
    status, _ = target.ask("POST", f"/api/modelcontrol/load/{quoted}")
    assert status == 400
    step = {"model_name": name, "model_version": -1}
    step |= {"input_map": {"IN": "IN"}, "output_map": {"OUT": "OUT"}}
    ensemble = CONFIG | {"backend": "", "platform": "ensemble"}
    for error in load(target, "text", ensemble | {"ensemble_scheduling": {"step": [step]}}):
        assert "load" in error
        assert str(target.folder) not in error
    assert target.ask("GET", "/v2/models/text/ready")[0] == 200


@pytest.mark.parametrize("field", FIELDS)
def test_a_configuration_names_no_file_elsewhere_and_is_not_told_what_is_there(
    target, field, secret
):
    name = "echo"
    for way in OUTSIDE:
        told = []
        for file in (secret, "nothing"):
            found = load(target, name, FIELDS[field](way.format(file)))
            for error in found:
                assert "load" in error
                assert "the secret" not in error
                assert hashlib.sha256(b"the secret").hexdigest() not in error
                assert str(target.folder) not in error
            told.append([error.replace(file, "FILE") for error in found])
        assert told[0] == told[1], "whether the file is there is told"
    for path in ("/etc/passwd", "/nowhere/at all", str(target.folder / secret), "//etc/passwd"):
        [first, second] = load(target, name, FIELDS[field](path))
        assert "root:" not in first + second
        assert "leads out" in first or "in the model's folder" in first, first
    assert target.ask("GET", "/v2/models/echo/ready")[0] == 200


@pytest.mark.parametrize(
    "path",
    [
        *(
            "file:../planted",
            "file:1/../../planted",
            "file:/tmp/inferd_planted",
            "file:..\\planted",
        ),
        *("file:1/../../../../../../../../tmp/inferd_planted", "file:", "file:.", "file:1"),
        *("file:C:\\planted", "file:\0", "file:1/\0", "file:1/" + "x/" * 40 + "y", "file://x"),
        *("file:1/" + "x" * 300, "file:./../planted", "planted", "../planted"),
    ],
    ids=ascii,
)
def test_a_file_that_is_sent_lies_nowhere_else(target, path):
    answer, _ = load(target, "sent", CONFIG, {path: b"planted", "file:1/x": b"x"})
    is_refused = "leads nowhere" in answer or "one lies inside the other" in answer
    assert is_refused or not path.startswith("file:"), answer
    assert not Path("/tmp/inferd_planted").exists()
    assert not list(target.folder.rglob("*planted*"))
    target.ask("POST", "/v2/repository/models/sent/unload", b"{}")


def test_a_link_in_a_repository_that_leads_out_is_not_followed_for_clients(target, secret):
    folder = target.repository / "linked"
    deep = folder / "1" / "/".join("d" * 40)
    deep.mkdir(parents=True)
    (folder / "config.pbtxt").write_text('backend: "identity"')
    for place in (folder / "labels.txt", folder / "1" / "x", deep / "x"):
        place.symlink_to(target.folder / secret)
        status, answer = target.ask("POST", "/v2/repository/models/linked/load", b"{}")
        assert status >= 400
        assert "is a link that leads out of the repository" in answer.decode()
        assert str(target.folder) not in answer.decode()
        for error in load(target, "linked", in_checksum(place.relative_to(folder).as_posix())):
            assert hashlib.sha256(b"the secret").hexdigest() not in error
        place.unlink()
    (folder / "config.pbtxt").unlink()
    (folder / "config.pbtxt").symlink_to(target.folder / secret)
    status, answer = target.ask("POST", "/v2/repository/models/linked/load", b"{}")
    assert status >= 400
    assert b"the secret" not in answer


@pytest.mark.parametrize("setting", ["log_file", "trace_file"])
def test_a_client_chooses_no_file_to_be_written(target, setting):
    path = "/v2/logging" if setting == "log_file" else "/v2/trace/setting"
    for name in ("/tmp/inferd_planted", "../planted", "a/b", "..", ".", "\0", "x" * 300, "..\\x/y"):
        status, answer = target.ask("POST", path, json.dumps({setting: name}))
        assert status == 400, answer
        assert not Path("/tmp/inferd_planted").exists()
        assert not list(target.folder.rglob("planted"))


@pytest.mark.parametrize("setting", ["log_file", "trace_file"])
def test_a_link_in_the_folder_of_logs_or_traces_is_not_written_through(target, secret, setting):
    path = "/v2/logging" if setting == "log_file" else "/v2/trace/setting"
    link = target.written / f"link to a {setting}"
    link.symlink_to(target.folder / secret)
    given = {setting: link.name} | ({} if setting == "log_file" else {"trace_level": "TIMESTAMPS"})
    status, answer = target.ask("POST", path, json.dumps(given))
    try:
        target.check_sound()
        assert (target.folder / secret).read_text() == "the secret"
        assert status >= 400, answer
    finally:
        target.ask("POST", path, json.dumps(dict.fromkeys(given)))
        target.ask("POST", path, json.dumps({setting: ""}))
