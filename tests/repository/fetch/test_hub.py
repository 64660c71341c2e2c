"""The Hugging Face Hub: which files are fetched, and what is said when none can be."""

import json

import pytest
from small_hub import basic

from inferd.errors import NotLoadable
from inferd.repository.fetch.hub import wanted_files
from inferd.repository.fetch.url import model_url

ONNX = {"README.md": b"read", "config.json": b"{}", "onnx/model.onnx": b"m", "model.bin": b"w"}


@pytest.mark.parametrize(
    ("names", "path", "found"),
    [
        (["README.md", "config.json", "onnx/model.onnx"], "", ["onnx/model.onnx"]),
        (["model.onnx", "model.onnx_data", "o/m.onnx"], "", ["model.onnx", "model.onnx_data"]),
        (["onnx/model.onnx", "onnx/model_int8.onnx"], "", ["onnx/model.onnx"]),
        (["onnx/a.onnx", "onnx/b.onnx"], "onnx/b.onnx", ["onnx/b.onnx"]),
        (["resnet.onnx", "resnet.data", "x.py"], "", ["resnet.onnx", "resnet.data"]),
        (["config.pbtxt", "1/model.py", ".gitattributes"], "", ["config.pbtxt", "1/model.py"]),
        (["a/config.pbtxt", "a/1/m.onnx", "R"], "", ["a/config.pbtxt", "a/1/m.onnx", "R"]),
        (["a/1/x", "b/c", "bc"], "a", ["a/1/x"]),
        (["MLmodel", "model.pkl"], "", ["MLmodel", "model.pkl"]),
        (["m.tflite", "README.md"], "", ["m.tflite"]),
        (["a.xml", "a.bin", "b.bin"], "", ["a.xml", "a.bin"]),
        (["sklearn_model.joblib"], "sklearn_model.joblib", ["sklearn_model.joblib"]),
    ],
)
def test_the_files_of_a_model_are_these(names, path, found):
    url = model_url(f"hf://org/name{'/' * bool(path)}{path}")
    assert sorted(wanted_files(sorted(names), url)[1]) == sorted(found)


@pytest.mark.parametrize(
    ("names", "path", "words"),
    [
        (["a.onnx", "b.onnx"], "", "has several model files, name one: hf://org/name/a.onnx"),
        (["README.md"], "", "has no model file that is served here$"),
        (["model.safetensors"], "", "'model.safetensors' are weights alone: export the model"),
        (["m.joblib"], "", "'m.joblib' runs code when it is loaded, so name it: hf://org/name/m.j"),
        (["a.onnx"], "b.onnx", "is not there: it has 'a.onnx'$"),
        ([str(number) for number in range(20)], "x", "'0', '1', '10'.* and 12 more$"),
    ],
)
def test_where_no_model_can_be_told_the_text_says_what_to_do(names, path, words):
    with pytest.raises(NotLoadable, match=words):
        wanted_files(sorted(names), model_url(f"hf://org/name{'/' * bool(path)}{path}"))


def test_a_model_is_fetched_at_its_commit(hub, fetch, tree):
    commit = hub.put_hub_model("org/name", ONNX, lfs=["onnx/model.onnx"])
    folder = fetch("hf://org/name")
    assert (folder.name, tree(folder)) == ("name", {"model.onnx": b"m"})
    assert hub.paths == [
        "/api/models/org/name/revision/main?blobs=true",
        f"/org/name/resolve/{commit}/onnx/model.onnx",
    ]


@pytest.mark.parametrize("lfs", [(), ("onnx/model.onnx",)])
def test_a_file_that_is_not_what_the_hub_names_is_refused(hub, fetch, lfs):
    commit = hub.put_hub_model("org/name", ONNX, lfs=lfs)
    hub.files[f"/org/name/resolve/{commit}/onnx/model.onnx"] = b"x"
    with pytest.raises(NotLoadable, match=r"model.onnx' is not what was announced: its SHA-"):
        fetch("hf://org/name")


def test_files_come_from_where_the_hub_redirects_to(hub, other_hub, fetch, tree, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hidden")
    hub.secret = "Bearer hidden"
    commit = hub.put_hub_model("org/name", ONNX)
    other_hub.files["/blob"] = b"m"
    place = f"{other_hub.url}/blob?Signature=x"
    hub.answers[f"/org/name/resolve/{commit}/onnx/model.onnx"] = lambda request: request.answer(
        302, b"", {"Location": place}
    )
    assert tree(fetch("hf://org/name")) == {"model.onnx": b"m"}
    assert "Authorization" not in other_hub.requests[0][1]


def test_the_token_is_taken_from_where_the_hubs_programs_have_it(hub, fetch, tmp_path):
    hub.put_hub_model("org/name", ONNX)
    hub.secret = "Bearer hidden"
    with pytest.raises(NotLoadable, match=r"wants a login; for a private model set HF_TOKEN$"):
        fetch("hf://org/name")
    (tmp_path / "home/.cache/huggingface").mkdir(parents=True)
    (tmp_path / "home/.cache/huggingface/token").write_text("hidden\n")
    assert fetch("hf://org/name").name == "name"


def test_user_and_password_may_be_in_the_endpoint(hub, fetch, monkeypatch):
    hub.put_hub_model("org/name", ONNX)
    hub.secret = basic("me", "hidden")
    monkeypatch.setenv("HF_ENDPOINT", hub.url.replace("://", "://me:hidden@"))
    assert fetch("hf://org/name").name == "name"


def test_the_variable_of_the_hubs_programs_for_no_network_counts_too(hub, fetch, monkeypatch):
    hub.put_hub_model("org/name", ONNX)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(NotLoadable, match="is not asked for, as HF_HUB_OFFLINE is set"):
        fetch("hf://org/name")
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    folder = fetch("hf://org/name")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    hub.requests.clear()
    assert fetch("hf://org/name") == folder
    assert hub.requests == []


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [
        (403, "GatedRepo", "'hf://org/name' has terms that have to be accepted"),
        (404, "RevisionNotFound", "'hf://org/name' has no revision 'main'"),
        (404, "RepoNotFound", "revision/main' is not there"),
    ],
)
def test_refusals_of_the_hub_are_said(hub, fetch, status, code, words):
    hub.answers["/api/models/org/name/revision/main"] = lambda request: request.answer(
        status, b"", {"X-Error-Code": code}
    )
    with pytest.raises(NotLoadable, match=words):
        fetch("hf://org/name")


@pytest.mark.parametrize(
    "body", [b"[]", b"{}", b'{"x":' * 100_000, b'{"sha": "../../x", "siblings": []}']
)
def test_an_answer_that_is_no_listing_is_refused(hub, fetch, body):
    hub.files["/api/models/org/name/revision/main"] = body
    with pytest.raises(NotLoadable, match=r"answer is not as expected|names no commit"):
        fetch("hf://org/name")


@pytest.mark.parametrize("code", ["1/model.py", "model.pkl"])
def test_code_is_fetched_only_at_a_commit_that_is_named(hub, fetch, tree, code):
    files = {"config.pbtxt": b"", code: b"pass"}
    commit = hub.put_hub_model("org/name", files)
    words = f"'hf://org/name' has '{code}', which runs .* have read: hf://org/name@{commit}$"
    with pytest.raises(NotLoadable, match=words):
        fetch("hf://org/name")
    assert tree(fetch(f"hf://org/name@{commit}")) == files


SKLEARN = (
    b'{"implementation": "mlserver_sklearn.SKLearnModel", "parameters": {"uri": "m.skops", %s}}'
)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("config.pbtxt", b'backend: "python" default_model_filename: "m.skops"'),
        ("one/config.pbtxt", b'backend: "python" default_model_filename: "m.skops"'),
        ("config.pbtxt", b'parameters {key: "inferd_trusted_types" value {string_value: "os.x"}}'),
        (
            "configs/fast.pbtxt",
            b'parameters {key: "inferd_allow_native_code" value {string_value: "TRUE"}}',
        ),
        ("model-settings.json", SKLEARN % b'"extra": {"inferd_trusted_types": "os.system"}'),
    ],
)
def test_configurations_have_code_run_only_at_a_commit_that_is_named(
    hub, fetch, tree, file, content
):
    files = {"1/model.onnx": b"", "m.skops": b"code", file: content}
    commit = hub.put_hub_model("org/name", files)
    words = f"'hf://org/name' has '{file}', which makes .* have read: hf://org/name@{commit}$"
    for _ in range(2):  # the second finds what the first has fetched
        with pytest.raises(NotLoadable, match=words):
            fetch("hf://org/name")
    assert tree(fetch(f"hf://org/name@{commit}")) == files
    with pytest.raises(NotLoadable, match=words):
        fetch("hf://org/name")


def test_configurations_of_models_without_code_are_fetched(hub, fetch, tree):
    files = {
        "config.pbtxt": b'parameters {key: "inferd_allow_native_code" value {string_value: "0"}}',
        "1/config.pbtxt": b"not read",
        "model-settings.json": SKLEARN % b'"version": "1"',
        "m.skops": b"",
    }
    hub.put_hub_model("org/name", files)
    assert tree(fetch("hf://org/name")) == files


def test_names_that_lead_out_are_not_fetched(hub, fetch, tree, tmp_path):
    hub.put_hub_model("org/name", {"config.pbtxt": b"", "1/../../../x": b"bad", "1/m": b"1"})
    folder = fetch("hf://org/name")
    assert tree(folder) == {"config.pbtxt": b"", "1/m": b"1"}


def test_a_listing_that_sends_files_of_no_end_fetches_nothing(hub, fetch):
    rows = [{"rfilename": "model.onnx", "size": 1 << 50, "blobId": "0" * 40}]
    body = json.dumps({"sha": "0" * 40, "siblings": rows}).encode()
    hub.files["/api/models/org/name/revision/main"] = body
    with pytest.raises(NotLoadable, match=r"has \d+ bytes, allowed are .*--fetch-max-bytes"):
        fetch("hf://org/name")
    with pytest.raises(NotLoadable, match=r"bytes to fetch, and .* has room for"):
        fetch("hf://org/name", max_bytes=1 << 60)
    assert len(hub.requests) == 2
