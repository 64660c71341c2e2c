"""MLflow's registry: versions, aliases, stages, and where their files are."""

import json

import pytest
from small_hub import basic

from inferd.errors import InvalidConfig, NotLoadable

FILES = {"MLmodel": b"flavors:", "model.onnx": b"m", "data/a/b.bin": b"b"}


@pytest.fixture(autouse=True)
def registry(hub, monkeypatch):
    for name in ("REGISTRY_URI", "TRACKING_TOKEN", "TRACKING_USERNAME", "S3_ENDPOINT_URL"):
        monkeypatch.delenv(f"MLFLOW_{name}", raising=False)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"{hub.url}/")
    return hub


def test_a_version_is_fetched_with_its_folders(registry, fetch, tree):
    registry.put_registered("a fraud", "3", FILES)
    folder = fetch("models:/a fraud/3")
    assert (folder.name, tree(folder)) == ("a fraud", FILES)


def test_an_alias_a_stage_and_latest_lead_to_versions(registry, fetch, tree):
    for version in ("2", "3", "10"):
        root = f"mlflow-artifacts:/1/{version}/artifacts"
        registry.put_registered("m", version, {"MLmodel": version.encode()}, root)
    registry.aliases = {("m", "champion"): "2", ("m", "3"): "Production"}
    artifacts = "/api/2.0/mlflow-artifacts/artifacts"

    def listing(request):
        assert request.query["path"].endswith("/artifacts")
        content = registry.files[f"{artifacts}/{request.query['path']}/MLmodel"]
        row = {"path": "MLmodel", "is_dir": False, "file_size": str(len(content))}
        request.answer(200, json.dumps({"files": [row]}).encode())

    registry.answers[artifacts] = listing
    assert tree(fetch("models:/m@champion")) == {"MLmodel": b"2"}
    assert tree(fetch("models:/m/production")) == {"MLmodel": b"3"}
    assert tree(fetch("models:/m/latest")) == {"MLmodel": b"10"}
    registry.aliases["m", "champion"] = "3"
    assert tree(fetch("models:/m@champion")) == {"MLmodel": b"3"}
    assert tree(fetch("models:/m@champion", is_offline=True)) == {"MLmodel": b"3"}
    with pytest.raises(NotLoadable, match="the model has no version 'Staging'"):
        fetch("models:/m/Staging")


@pytest.mark.parametrize("url", ["models:/m/9", "models:/m@nobody", "models:/other/1"])
def test_what_is_not_there_is_said(registry, fetch, url):
    registry.put_registered("m", "1", FILES)
    with pytest.raises(NotLoadable, match="is not there"):
        fetch(url)


@pytest.mark.parametrize(
    ("variables", "secret"),
    [
        ({"TRACKING_TOKEN": "hidden"}, "Bearer hidden"),
        ({"TRACKING_USERNAME": "me", "TRACKING_PASSWORD": "hidden"}, basic("me", "hidden")),
    ],
)
def test_credentials_are_those_of_mlflows_variables(
    registry, fetch, tree, monkeypatch, variables, secret
):
    registry.put_registered("m", "1", FILES)
    registry.secret = secret
    with pytest.raises(NotLoadable, match="wants a login; set MLFLOW_TRACKING_TOKEN, or"):
        fetch("models:/m/1")
    for name, value in variables.items():
        monkeypatch.setenv(f"MLFLOW_{name}", value)
    assert tree(fetch("models:/m/1")) == FILES


def test_user_and_password_may_be_in_the_registrys_url(registry, fetch, tree, monkeypatch):
    registry.put_registered("m", "1", FILES)
    registry.secret = basic("me", "hid@den")
    url = registry.url.replace("://", "://me:hid%40den@")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", url)
    assert tree(fetch("models:/m/1")) == FILES
    with pytest.raises(NotLoadable) as caught:
        fetch("models:/other/1")
    assert "hid" not in str(caught.value)


def test_of_a_password_and_a_token_the_password_is_sent(registry, fetch, tree, monkeypatch):
    registry.put_registered("m", "1", FILES)
    registry.secret = basic("me", "hidden")
    for name, value in (("TOKEN", "x"), ("USERNAME", "me"), ("PASSWORD", "hidden")):
        monkeypatch.setenv(f"MLFLOW_TRACKING_{name}", value)
    assert tree(fetch("models:/m/1")) == FILES


def test_a_file_is_never_of_two_parts(registry, fetch, tree):
    registry.put_registered("m", "1", {"MLmodel": b"first"})
    path = "/api/2.0/mlflow-artifacts/artifacts/1/models/m/artifacts/MLmodel"

    def answer(request):
        content, registry.files[path] = registry.files[path], b"other"
        request.send_file(content)

    registry.answers[path] = answer
    registry.breaks = [2]
    assert tree(fetch("models:/m/1")) == {"MLmodel": b"other"}


def test_a_registry_that_breaks_off_for_ever_is_given_up(registry, fetch, monkeypatch):
    registry.put_registered("m", "1", {"MLmodel": b"first"})
    monkeypatch.setattr("inferd.repository.fetch.download.WAITS_S", (0.0, 0.0))
    registry.breaks = [2] * 20
    with pytest.raises(NotLoadable, match="MLmodel' breaks off"):
        fetch("models:/m/1")


def test_what_another_registry_has_is_not_served(registry, other_hub, fetch, tree, monkeypatch):
    for site, content in ((registry, b"first"), (other_hub, b"other")):
        site.put_registered("m", "1", {"MLmodel": content})
    assert tree(fetch("models:/m/1")) == {"MLmodel": b"first"}
    monkeypatch.setenv("MLFLOW_TRACKING_URI", other_hub.url)
    with pytest.raises(NotLoadable, match="has not been fetched before"):
        fetch("models:/m/1", is_offline=True)
    other_hub.close()
    with pytest.raises(NotLoadable, match="does not answer"):
        fetch("models:/m/1")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", registry.url.replace("://", "://me:hidden@") + "/")
    assert tree(fetch("models:/m/1", is_offline=True)) == {"MLmodel": b"first"}
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    assert tree(fetch("models:/m/1", is_offline=True)) == {"MLmodel": b"first"}


def test_a_file_that_grew_meanwhile_is_refused(registry, fetch):
    registry.put_registered("m", "1", {"MLmodel": b"long"})
    registry.files["/api/2.0/mlflow-artifacts/artifacts/1/models/m/artifacts/MLmodel"] = b"longer"
    with pytest.raises(NotLoadable, match="sends more than the 4 bytes"):
        fetch("models:/m/1")


def test_a_model_that_was_logged_by_mlflow_3_is_followed(registry, fetch, tree):
    registry.put_registered("m", "1", FILES)
    place = registry.versions["m", "1"]
    registry.versions["m", "1"] = "models:/m-12ab"
    body = json.dumps({"model": {"info": {"artifact_uri": place}}}).encode()
    registry.files["/api/2.0/mlflow/logged-models/m-12ab"] = body
    assert tree(fetch("models:/m/1")) == FILES


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("/mlruns/1", "its files are in a folder of the registry's machine: have `mlflow server`"),
        ("file:///etc", "its files are in a folder of the registry's machine"),
        ("hdfs://me:hidden@h/x?y", "its files are at 'hdfs://h/x', expected mlflow-artifacts, s3"),
    ],
)
def test_files_in_other_places_are_not_fetched(registry, fetch, uri, words):
    registry.put_registered("m", "1", FILES)
    registry.versions["m", "1"] = uri
    with pytest.raises(NotLoadable, match=words):
        fetch("models:/m/1")


def answering(rows):
    return lambda request: request.answer(200, json.dumps({"files": rows}).encode())


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([{"path": ".."}], "has '..', which leads out of it"),
        ([{"path": "..", "is_dir": True}], "has '..', which leads out of it"),
        ([{"path": "a", "is_dir": True}], "has folders without end"),
        ([{"path": "a", "file_size": "x"}], "answer is not as expected"),
        ([{"path": "a", "file_size": -5}], "has a file of -5 bytes"),
        ([], "version 1 has no files"),
    ],
)
def test_listings_that_are_wrong_are_refused(registry, fetch, rows, words):
    registry.put_registered("m", "1", FILES)
    registry.answers["/api/2.0/mlflow-artifacts/artifacts"] = answering(rows)
    with pytest.raises(NotLoadable, match=words):
        fetch("models:/m/1")


@pytest.mark.parametrize("body", [b"[]", b"{}", b'{"x":' * 100_000])
def test_an_answer_that_is_no_uri_is_refused(registry, fetch, body):
    registry.files["/api/2.0/mlflow/model-versions/get-download-uri"] = body
    with pytest.raises(NotLoadable, match="the registry's answer is not as expected"):
        fetch("models:/m/1")


def test_without_a_registry_the_text_says_what_to_set(fetch, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///mlflow.db")
    with pytest.raises(InvalidConfig, match="set MLFLOW_TRACKING_URI to the registry"):
        fetch("models:/m/1")


def test_files_in_a_bucket_are_fetched_from_there(registry, fetch, tree, make_bucket, monkeypatch):
    bucket = make_bucket("artifacts")
    for name, content in FILES.items():
        bucket.put(f"1/m/{name}", content)
    bucket.put("1/other/x", b"another's")
    registry.put_registered("m", "1", FILES)
    registry.versions["m", "1"] = "s3://artifacts/1/m"
    monkeypatch.setenv("MLFLOW_S3_ENDPOINT_URL", bucket.url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hidden")
    assert tree(fetch("models:/m/1")) == FILES
    bucket.requested.clear()
    assert tree(fetch("models:/m/1")) == FILES
    assert bucket.requested == []
