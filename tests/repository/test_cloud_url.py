"""URLs of repositories in clouds, in every form that Triton's documents have."""

import pytest

from inferd.errors import InvalidConfig
from inferd.repository.bucket import cloud_url

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
