import json

import pytest

from inferd.errors import InvalidRequest
from inferd.wire.cloud import decode_load, encode_model, encode_models


def decoded(body):
    return decode_load(memoryview(body))


def test_a_load_has_a_name_and_a_folder():
    load = decoded(b'{"model_name": "m", "url": "/opt/ml/models/m/model", "more": 1}')
    assert (load.model_name, load.url) == ("m", "/opt/ml/models/m/model")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[]",
        b'{"model_name": "m"}',
        b'{"model_name": 1, "url": "/x"}',
        b'{"model_name": "\xff", "url": "/x"}',
        b'{"more": ' + b"[" * 60000,
    ],
)
def test_any_other_body_is_invalid_arg(body):
    with pytest.raises(InvalidRequest, match="no JSON object with model_name and url"):
        decoded(body)


@pytest.mark.parametrize("url", ["x", "s3://bucket/x", "/a\0b", ""])
def test_a_url_must_be_a_path(url):
    with pytest.raises(InvalidRequest, match="expected the path of a folder"):
        decoded(json.dumps({"model_name": "m", "url": url}).encode())


def test_a_body_that_is_too_long_is_not_read():
    with pytest.raises(InvalidRequest, match="the limit is 65536"):
        decoded(b" " * 65537)


def test_models_are_reported_with_their_folders():
    assert json.loads(encode_model("m", "/x")) == {"modelName": "m", "modelUrl": "/x"}
    assert json.loads(encode_models({})) == {"models": []}
    rows = json.loads(encode_models({"m": "/x", "n": "/y"}))["models"]
    assert rows == [{"modelName": "m", "modelUrl": "/x"}, {"modelName": "n", "modelUrl": "/y"}]
