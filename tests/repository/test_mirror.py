"""Repositories in clouds: what is fetched, when, and what goes wrong."""

import json
from contextlib import suppress

import numpy as np
import pytest
import tritonclient.http
from tritonclient.utils import InferenceServerException

import inferd
from inferd.errors import InvalidConfig, NotLoadable
from inferd.repository.bucket import cloud_url
from inferd.repository.repositories import Repositories
from inferd.repository.watch import ModelWatch

FILES = {
    "models/a/config.pbtxt": b"max_batch_size: 4",
    "models/a/1/model.onnx": b"first",
    "models/a/2/model.onnx": b"second",
    "models/b/1/model.onnx": b"b's",
    "models/readme.txt": b"no model's",
    "other/c/1/model.onnx": b"another place's",
}


@pytest.fixture(autouse=True)
def environment(monkeypatch, tmp_path):
    """Nothing of whoever runs the tests; models are kept in a folder that the tests look into."""
    (tmp_path / "kept").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("TRITON_CLOUD_CREDENTIAL_PATH", "GOOGLE_APPLICATION_CREDENTIALS", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for cloud in ("AWS", "GCS", "AZURE"):
        monkeypatch.setenv(f"TRITON_{cloud}_MOUNT_DIRECTORY", str(tmp_path / "kept"))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hidden")


@pytest.fixture
def bucket(make_bucket):
    return filled(make_bucket())


def filled(bucket):
    for name, content in FILES.items():
        bucket.put(name, content)
    return bucket


@pytest.fixture
def repositories(bucket):
    """The repository models/ of the bucket, as S3."""
    repositories = Repositories([cloud_url(f"s3://{bucket.url}/models/models")])
    yield repositories
    repositories.close()


def content(model, version=None):
    return (model.folder / str(version or model.versions[-1]) / "model.onnx").read_bytes()


def test_models_are_found_with_their_configuration(repositories):
    a, b = repositories.find_all()
    assert (a.name, a.error, a.versions, a.config.max_batch_size) == ("a", None, (2,), 4)
    assert (b.name, b.error, b.versions) == ("b", None, (1,))
    assert [content(a, 1), content(a, 2), content(b)] == [b"first", b"second", b"b's"]


def test_only_the_model_that_is_requested_is_fetched(repositories, bucket):
    assert list(repositories.places()) == ["a", "b"]
    assert bucket.requested == []
    assert content(repositories.find("b")) == b"b's"
    assert bucket.requested == ["models/b/1/model.onnx"]
    assert repositories.find("c") is None


def test_what_has_not_changed_is_fetched_once(repositories, bucket):
    repositories.find_all()
    bucket.requested.clear()
    bucket.put("models/a/2/model.onnx", b"third.")
    a, _ = repositories.find_all()
    assert content(a, 2) == b"third."
    assert bucket.requested == ["models/a/2/model.onnx"]


def test_what_serves_keeps_the_file_it_has_open(repositories, bucket):
    with (repositories.find("b").folder / "1" / "model.onnx").open("rb") as file:
        bucket.put("models/b/1/model.onnx", b"new")
        assert content(repositories.find("b")) == b"new"
        assert file.read() == b"b's"


def test_what_is_gone_there_is_gone_here(repositories, bucket):
    a = repositories.find("a")
    del bucket.objects["models/a/2/model.onnx"]
    assert repositories.find("a").versions == (1,)
    for name in [name for name in bucket.objects if name.startswith("models/a/")]:
        del bucket.objects[name]
    assert list(repositories.places()) == ["b"]
    assert not a.folder.exists()


@pytest.mark.slow
def test_a_watch_sees_changes_as_in_a_folder(repositories, bucket):
    watch = ModelWatch(repositories)
    assert watch.look() == ["a", "b"]
    assert watch.look() == []
    bucket.put("models/b/1/model.onnx", b"B's")  # as long, in the same second
    assert watch.look() == ["b"]
    bucket.put("models/new/1/model.onnx", b"")
    del bucket.objects["models/a/2/model.onnx"]
    assert watch.look() == ["a", "new"]


def test_a_cloud_that_does_not_answer_changes_nothing(repositories, bucket):
    watch = ModelWatch(repositories)
    watch.look()
    bucket.refused.add("*")
    with pytest.raises(NotLoadable, match=r"cannot be listed: .*403 Forbidden"):
        watch.look()
    bucket.refused.clear()
    assert watch.look() == []


@pytest.mark.slow
def test_one_object_that_cannot_be_had_is_its_models_error_alone(repositories, bucket):
    bucket.refused.add("models/a/2/model.onnx")
    a, b = repositories.find_all()
    assert "does not give 'a/2/model.onnx': these credentials may not read it" in a.error.message
    assert b.error is None
    watch = ModelWatch(repositories)
    assert watch.look() == ["a", "b"]
    assert watch.look() == []
    bucket.refused.clear()
    assert watch.look() == ["a"]


def test_an_object_that_changes_while_it_is_fetched_is_not_taken(repositories, bucket):
    repositories.places()

    def change(name):
        bucket.put(name, b"changed")

    bucket.before_get = change
    [place] = repositories.places()["b"]
    with pytest.raises(NotLoadable, match=r"'b/1/model\.onnx': it has changed meanwhile"):
        repositories.fetch(place)
    bucket.before_get = None
    assert content(repositories.find("b")) == b"changed"


@pytest.mark.slow
def test_an_empty_object_in_a_folders_place_is_that_folder(repositories, bucket):
    for name in ("models/e/", "models/e/1/", "models/b/1/"):
        bucket.put(name, b"")
    bucket.put("models/e/config.pbtxt", b'platform: "ensemble"')
    assert content(repositories.find("b")) == b"b's"
    repositories.find("e")
    assert (repositories.places()["e"][0].path / "1").is_dir()


def test_a_folder_in_which_nothing_lies_keeps_no_model_from_being_read(repositories, bucket):
    # As consoles of clouds make them; the name in the listing has lost its slash.
    bucket.put("models/b/later/", b"")
    b = repositories.find("b")
    assert b.error is None
    assert (b.folder / "later").is_dir()
    del bucket.objects["models/b/later/"]
    assert repositories.find("b").error is None
    assert not (b.folder / "later").exists()


def test_a_version_that_is_an_empty_object_is_gone_with_it(repositories, bucket):
    bucket.put("models/b/2/", b"")
    assert repositories.find("b").versions == (2,)
    del bucket.objects["models/b/2/"]
    assert repositories.find("b").versions == (1,)


def test_a_file_may_become_a_folder_and_the_reverse(repositories, bucket):
    bucket.put("models/b/more", b"content")
    folder = repositories.find("b").folder
    bucket.put("models/b/more", b"")
    bucket.put("models/b/more/below", b"content")
    assert repositories.find("b").error is None
    assert (folder / "more" / "below").read_bytes() == b"content"
    del bucket.objects["models/b/more/below"]
    bucket.put("models/b/more", b"again")
    assert repositories.find("b").error is None
    assert (folder / "more").read_bytes() == b"again"


def test_an_object_that_is_gone_before_it_is_fetched_is_named(repositories, bucket):
    [place] = repositories.places()["b"]
    del bucket.objects["models/b/1/model.onnx"]
    with pytest.raises(NotLoadable, match=r"does not give 'b/1/model\.onnx': it is not there"):
        repositories.fetch(place)


def test_a_name_that_no_folder_can_have_takes_no_other_model_along(bucket):
    bucket.put(f"models/{'m' * 300}/config.pbtxt", b"")
    repositories = Repositories([cloud_url(f"s3://{bucket.url}/models/models")])
    assert list(repositories.places()) == ["a", "b"]
    repositories.close()


def test_a_folder_that_cannot_be_written_is_reported_and_not_left(bucket, monkeypatch, tmp_path):
    def fail(self, *_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.mkdir", fail)
    with pytest.raises(NotLoadable, match="for them: No space left on device"):
        Repositories([cloud_url(f"s3://{bucket.url}/models/models")])
    assert not list((tmp_path / "kept").iterdir())


@pytest.mark.parametrize(
    "name", ["models/b/../../outside", "models/../outside", "models/b/..\\outside", "models/b/./x"]
)
def test_names_that_lead_elsewhere_are_written_nowhere(name, bucket, tmp_path):
    bucket.put(name, b"hostile")
    with suppress(NotLoadable):  # some are refused with the whole list
        repositories = Repositories([cloud_url(f"s3://{bucket.url}/models/models")])
        repositories.find_all()
        assert content(repositories.find("b")) == b"b's"
    files = [path for path in (tmp_path / "kept").rglob("*") if path.is_file()]
    assert all(path.name in ("model.onnx", "config.pbtxt") for path in files)
    assert not list(tmp_path.rglob("outside*"))


def test_more_objects_than_a_repository_has_are_refused(bucket, monkeypatch):
    monkeypatch.setattr("inferd.repository.bucket.MAX_OBJECTS", 4)
    with pytest.raises(NotLoadable, match="has more than 4 objects"):
        Repositories([cloud_url(f"s3://{bucket.url}/models")])


def test_closing_deletes_what_was_fetched(repositories, tmp_path):
    repositories.find_all()
    assert list((tmp_path / "kept").iterdir())
    repositories.close()
    assert not list((tmp_path / "kept").iterdir())


def test_google_is_read_the_same_way(bucket, monkeypatch, tmp_path):
    file = tmp_path / "google.json"
    account = {"type": "service_account", "gcs_base_url": bucket.url, "disable_oauth": True}
    more = {"client_email": "", "private_key": "", "private_key_id": ""}
    file.write_text(json.dumps(account | more))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
    a, b = Repositories([cloud_url("gs://models/models")]).find_all()
    assert [content(a, 2), content(b)] == [b"second", b"b's"]


def test_azure_is_read_the_same_way(make_bucket, monkeypatch):
    bucket = filled(make_bucket("container", account="mine"))
    monkeypatch.setenv("AZURE_STORAGE_KEY", "aGlkZGVu")
    monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", f"{bucket.url}/mine")
    a, b = Repositories([cloud_url("as://mine/container/models")]).find_all()
    assert [content(a), content(b)] == [b"second", b"b's"]


@pytest.mark.slow
def test_a_server_serves_what_lies_in_a_cloud_and_loads_what_clients_ask_for(bucket):
    tensor = '{ name: "x" data_type: TYPE_FP32 dims: 2 }'
    config = f'backend: "identity" input {tensor} output {tensor}'
    bucket.put("models/echo/config.pbtxt", config.encode())
    bucket.put("models/echo/1/", b"")
    url = f"s3://{bucket.url}/models/models"
    with inferd.Server(model_repository=url, model_control_mode="explicit") as server:
        client = tritonclient.http.InferenceServerClient(f"127.0.0.1:{server.http_port}")
        assert [row["name"] for row in client.get_model_repository_index()] == ["a", "b", "echo"]
        client.load_model("echo")
        wanted = tritonclient.http.InferInput("x", [2], "FP32")
        wanted.set_data_from_numpy(np.array([1, 2], np.float32))
        assert client.infer("echo", [wanted]).as_numpy("x").tolist() == [1, 2]
        with pytest.raises(InferenceServerException, match="no such model"):
            client.load_model("nothing")
        client.close()


def test_a_folder_for_models_that_is_not_there_is_reported(bucket, monkeypatch, tmp_path):
    monkeypatch.setenv("TRITON_AWS_MOUNT_DIRECTORY", str(tmp_path / "nowhere"))
    with pytest.raises(InvalidConfig, match="there is no folder for the models of 's3://"):
        Repositories([cloud_url(f"s3://{bucket.url}/models")])


def test_a_bucket_that_is_not_there_is_reported(bucket):
    with pytest.raises(NotLoadable, match=r"cannot be listed: .*404 Not Found") as failure:
        Repositories([cloud_url(f"s3://{bucket.url}/nothing")])
    assert "hidden" not in failure.value.message
