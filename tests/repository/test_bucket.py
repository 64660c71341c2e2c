"""Places in clouds: URLs in every form of Triton's documents, and the credentials for them."""

import json

import pytest

from inferd.errors import InvalidConfig, NotLoadable
from inferd.repository.bucket import Bucket, cloud_url, credentials

FORMS = {
    "s3://bucket/path/to/models": ("s3", "bucket", "path/to/models", "", ""),
    "s3://bucket": ("s3", "bucket", "", "", ""),
    "s3://bucket/models/": ("s3", "bucket", "models", "", ""),
    "s3://host:9000/bucket/models": ("s3", "bucket", "models", "http://host:9000", ""),
    "s3://http://host:9000/bucket/a/b": ("s3", "bucket", "a/b", "http://host:9000", ""),
    "s3://https://host:443/bucket": ("s3", "bucket", "", "https://host:443", ""),
    "s3://https://minio.example/bucket/m": ("s3", "bucket", "m", "https://minio.example", ""),
    "gs://bucket/models": ("gs", "bucket", "models", "", ""),
    "as://account/container/models": ("as", "container", "models", "", "account"),
    "as://account.blob.core.windows.net/container": ("as", "container", "", "", "account"),
}


@pytest.mark.parametrize(("text", "parts"), FORMS.items(), ids=FORMS)
def test_a_url_names_a_place_in_a_cloud(text, parts):
    assert cloud_url(text) == (text, *parts)


@pytest.mark.parametrize("text", ["models", "/models", "./s3/models", "s3:/bucket", "S3://b", ""])
def test_everything_else_is_a_path(text):
    assert cloud_url(text) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("s3://", "expected s3://BUCKET/PATH"),
        ("s3://host:9000/", "expected s3://BUCKET/PATH"),
        ("gs:///models", "names no place in Google Cloud Storage, expected gs://BUCKET/PATH"),
        ("as://account", "expected as://ACCOUNT/CONTAINER/PATH"),
        ("as:///container/models", "names no place in Azure Blob Storage"),
    ],
)
def test_a_url_without_a_place_is_reported(text, expected):
    with pytest.raises(InvalidConfig, match=expected):
        cloud_url(text)


@pytest.mark.parametrize("place", ["me:hidden@h:1/b", "http://me:hidden@h:1/b", "hidden@b/x"])
def test_a_url_with_a_password_is_refused_without_it(place):
    with pytest.raises(InvalidConfig, match="has a user or a password in it") as caught:
        cloud_url(f"s3://{place}")
    assert "hidden" not in str(caught.value)
    assert cloud_url("s3://bucket/models@v1").prefix == "models@v1"


@pytest.mark.slow
def test_a_login_in_a_variable_is_not_logged(caplog, monkeypatch):
    caplog.set_level("DEBUG")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    place = S3._replace(endpoint="http://me:hidden@127.0.0.1:1")
    with pytest.raises(NotLoadable, match="cannot be listed"):
        Bucket(place, {}).objects()
    assert "127.0.0.1:1" in caplog.text
    assert "hidden" not in caplog.text


S3 = cloud_url("s3://bucket/models")
GS = cloud_url("gs://bucket/models")
AZURE = cloud_url("as://account/container/models")
OF_FILE = {"access_key_id": "id", "secret_access_key": "secret"}


@pytest.fixture
def environ(tmp_path):
    """An environment whose home is empty."""
    return {"HOME": str(tmp_path)}


@pytest.fixture
def credential_file(tmp_path, environ):
    """credential_file(content) writes what TRITON_CLOUD_CREDENTIAL_PATH names."""

    def write(content):
        file = tmp_path / "credentials.json"
        file.write_text(content if isinstance(content, str) else json.dumps(content))
        environ["TRITON_CLOUD_CREDENTIAL_PATH"] = str(file)

    return write


@pytest.fixture
def aws_files(tmp_path):
    """AWS's own two files in the home of `environ`."""
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "credentials").write_text(
        "[default]\naws_access_key_id = id\naws_secret_access_key = se%cret\n"
        "[other]\naws_access_key_id = other\naws_session_token = token\n"
    )
    (tmp_path / ".aws" / "config").write_text(
        "[default]\nregion = eu-west-1\n[profile other]\nregion = us-west-2\n"
    )


def test_without_any_nothing_is_set(environ):
    assert credentials(S3, environ) == {}
    assert credentials(GS, environ) == {}
    assert credentials(AZURE, environ) == {"account_name": "account"}


@pytest.mark.usefixtures("aws_files")
def test_the_files_of_aws_are_read_by_profile(environ):
    default = {"access_key_id": "id", "secret_access_key": "se%cret", "region": "eu-west-1"}
    assert credentials(S3, environ) == default
    other = {"access_key_id": "other", "session_token": "token", "region": "us-west-2"}
    assert credentials(S3, {**environ, "AWS_PROFILE": "other"}) == other
    assert credentials(S3, {**environ, "AWS_PROFILE": "third"}) == {}


@pytest.mark.usefixtures("aws_files")
def test_a_key_in_the_environment_comes_before_the_files_of_aws(environ):
    assert credentials(S3, {**environ, "AWS_ACCESS_KEY_ID": "mine"}) == {}


def test_azure_takes_its_two_variables(environ):
    environ |= {"AZURE_STORAGE_ACCOUNT": "mine", "AZURE_STORAGE_KEY": "key"}
    assert credentials(AZURE, environ) == {"account_name": "mine", "account_key": "key"}


@pytest.mark.parametrize(
    ("kind", "setting"),
    [("service_account", "service_account"), ("authorized_user", "application_credentials")],
)
def test_googles_file_is_taken_by_its_kind(kind, setting, environ, tmp_path):
    file = tmp_path / "google.json"
    file.write_text(json.dumps({"type": kind}))
    environ["GOOGLE_APPLICATION_CREDENTIALS"] = str(file)
    assert credentials(GS, environ) == {setting: str(file)}


def test_the_credential_file_has_several_places_and_the_longest_beginning_wins(
    environ, credential_file
):
    own = {"key_id": "id", "secret_key": "secret"}
    credential_file(
        {
            "s3": {"": {"key_id": "all"}, "s3://bucket": own, "s3://bucket-2": {"key_id": "2"}},
            "as": {"": {"account_str": "mine", "account_key": "key"}},
        }
    )
    assert credentials(S3, environ) == OF_FILE
    assert credentials(cloud_url("s3://third"), environ) == {"access_key_id": "all"}
    assert credentials(AZURE, environ) == {"account_name": "mine", "account_key": "key"}
    assert credentials(GS, environ) == {}


@pytest.mark.usefixtures("aws_files")
def test_the_credential_file_may_name_a_profile(environ, credential_file):
    credential_file({"s3": {"": {"profile": "other"}}})
    assert credentials(S3, environ)["access_key_id"] == "other"


@pytest.mark.parametrize(
    "content", ["{", "[]", '"text"', '{"s3": []}', '{"s3": {"": 1}}', '{"s3": {"": [1]}}']
)
def test_a_credential_file_that_is_none_is_reported_without_what_is_in_it(
    content, environ, credential_file
):
    credential_file(content)
    with pytest.raises(InvalidConfig, match="TRITON_CLOUD_CREDENTIAL_PATH names is not as expec"):
        credentials(S3, environ)


@pytest.mark.parametrize(
    "variable", ["TRITON_CLOUD_CREDENTIAL_PATH", "GOOGLE_APPLICATION_CREDENTIALS"]
)
def test_a_file_that_is_not_there_is_reported(variable, environ, tmp_path):
    environ[variable] = str(tmp_path / "nowhere")
    with pytest.raises(InvalidConfig, match=variable) as failure:
        credentials(GS, environ)
    assert str(tmp_path) not in failure.value.message


def test_a_file_of_aws_that_is_none_is_reported(environ, tmp_path):
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "credentials").write_text("aws_secret_access_key = hidden")
    with pytest.raises(InvalidConfig, match="'credentials' cannot be read") as failure:
        credentials(S3, environ)
    assert "hidden" not in failure.value.message
