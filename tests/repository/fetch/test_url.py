"""URLs of models: which there are, their parts, and what is shown of them."""

import pytest

from inferd.errors import InvalidConfig
from inferd.repository.fetch.url import model_url, shown

HEX = "ab" * 32


@pytest.mark.parametrize(
    ("text", "place", "revision", "digest", "path"),
    [
        ("hf://org/a.b-c_1", "org/a.b-c_1", "main", "", ""),
        ("hf://org/name@v1.0", "org/name", "v1.0", "", ""),
        ("hf://org/name@v1/onnx/model.onnx", "org/name", "v1", "", "onnx/model.onnx"),
        ("hf://org/name@refs%2Fpr%2F1", "org/name", "refs/pr/1", "", ""),
        ("hf://org/name/onnx/", "org/name", "main", "", "onnx"),
        ("oci://ghcr.io/a/b", "ghcr.io/a/b", "latest", "", ""),
        ("oci://h:5000/a/b:v1", "h:5000/a/b", "v1", "", ""),
        (f"oci://h/b@sha256:{HEX}", "h/b", "", HEX, ""),
        (f"oci://h/b:v1@sha256:{HEX}", "h/b", "v1", HEX, ""),
        ("models:/name/3", "name", "3", "", ""),
        ("models:/a b@champion", "a b", "@champion", "", ""),
        ("models://name/3", "name", "3", "", ""),
        (f"https://h/x.onnx#sha256={HEX.upper()}", "https://h/x.onnx", "", HEX, ""),
        (f"http://h:1/x?a=b#sha256={HEX}", "http://h:1/x?a=b", "", HEX, ""),
    ],
)
def test_urls_of_models_have_these_parts(text, place, revision, digest, path):
    url = model_url(text)
    assert (url.place, url.revision, url.digest, url.path) == (place, revision, digest, path)
    assert url.text == text


@pytest.mark.parametrize(
    "text", ["models", "/models", "models/hf:", "s3://b/x", "a:b", "file:///x"]
)
def test_other_texts_are_none(text):
    assert model_url(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "hf://name",
        "hf:/org/name",
        "hf://org/name/../../x",
        "hf://org/name@",
        "hf://org/name@a@b",
        "oci://host",
        "oci://host/UPPER",
        "oci://host/a/../b",
        "oci://host/a@sha256:12",
        "oci://user:password@host/a",
        "models:/name",
        "models:/name/1/2",
        "https://h/x.onnx",
        "https://h/x.onnx#sha256=12",
        f"https:///x#sha256={HEX}",
        f"https://h:x/x#sha256={HEX}",
        f"https://h/a b#sha256={HEX}",
        f"https://h/a\udc80#sha256={HEX}",
        f"https://h/a\n#sha256={HEX}",
        f"https://user:word@h/x#sha256={HEX}",
        f"https:/user:word@h/x#sha256={HEX}",
    ],
)
def test_what_names_no_model_is_refused_with_what_is_expected(text):
    with pytest.raises(InvalidConfig, match=r"expected|netrc") as failure:
        model_url(text)
    assert "word@" not in failure.value.message


def test_what_may_be_secret_is_not_shown():
    url = model_url(f"https://h/x.onnx?X-Signature=hidden#sha256={HEX}")
    assert url.shown == "https://h/x.onnx"
    assert shown("https://me:hidden@h/a?b#c") == "https://h/a"
    assert shown("/a?b#c") == "/a?b#c"
