"""Index, load and unload: both encodings, both ways."""

import base64
import json

import orjson
import pytest
from tritonclient.grpc import service_pb2 as pb

from inferd.aio.inline import GROUP
from inferd.core.load import LoadRequest, UnloadRequest
from inferd.core.metadata import IndexEntry, ModelState
from inferd.errors import InferdError, InvalidRequest, Unsupported
from inferd.wire.v2 import repository as wire

LIMIT = 1 << 20
ROWS = [
    IndexEntry("a", "1", ModelState.READY),
    IndexEntry("a", "2", ModelState.UNAVAILABLE, "it is broken"),
    IndexEntry("never loaded"),
]


def view(text):
    return memoryview(text if isinstance(text, bytes) else text.encode())


def refused(call, *args, kind=InvalidRequest):
    with pytest.raises(kind) as caught:
        call(*args)
    return caught.value.message


# --- the index ---


@pytest.mark.parametrize(
    ("body", "ready"),
    [
        ("", False),
        ("{}", False),
        ('{"ready": null}', False),
        ('{"ready": false}', False),
        ('{"ready": true}', True),
        ('{"other": 1, "ready": true}', True),
    ],
)
def test_an_index_request_may_ask_for_ready_models_only(body, ready):
    assert wire.decode_index_request(view(body)) is ready


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ('{"ready": 1}', "'ready' is 1, expected true or false"),
        ('{"ready": "yes"}', "'ready' is \"yes\", expected true or false"),
        ("[]", "the body is [], expected a JSON object"),
        ("{", "failed to parse the request JSON buffer: "),
        (" \r\n", "failed to parse the request JSON buffer: "),
        (b"\xff", "failed to parse the request JSON buffer: "),
        ("[" * 5000, "failed to parse the request JSON buffer: "),
        (f'["{"x" * 500}"]', f'the body is ["{"x" * 198}..., expected a JSON object'),
        (" " * (wire.MAX_SMALL_BYTES + 1), "the body has 65537 bytes, the limit is 65536"),
    ],
)
def test_an_index_request_of_another_shape_is_refused(body, text):
    assert text in refused(wire.decode_index_request, view(body))


def test_an_index_row_leaves_out_what_it_does_not_know():
    assert orjson.loads(b"".join(wire.encode_index(ROWS))) == [
        {"name": "a", "version": "1", "state": "READY", "reason": ""},
        {"name": "a", "version": "2", "state": "UNAVAILABLE", "reason": "it is broken"},
        {"name": "never loaded"},
    ]
    assert wire.decode_index(b"".join(wire.encode_index(ROWS))) == ROWS


def test_an_index_message_has_the_same_rows():
    message = pb.RepositoryIndexResponse.FromString(b"".join(wire.encode_index_message(ROWS)))
    assert [(m.name, m.version, m.state, m.reason) for m in message.models] == [
        ("a", "1", "READY", ""),
        ("a", "2", "UNAVAILABLE", "it is broken"),
        ("never loaded", "", "", ""),
    ]


def test_the_index_of_many_models_comes_in_pieces():
    rows = [IndexEntry(f"m{number}", "1", ModelState.READY) for number in range(3 * GROUP + 1)]
    pieces = list(wire.encode_index(rows))
    assert max(piece.count(b"READY") for piece in pieces) == GROUP
    assert wire.decode_index(b"".join(pieces)) == rows
    messages = list(wire.encode_index_message(rows))
    assert max(piece.count(b"READY") for piece in messages) == GROUP
    told = pb.RepositoryIndexResponse.FromString(b"".join(messages)).models
    assert [row.name for row in told] == [row.name for row in rows]


def test_an_index_without_models_is_empty():
    assert b"".join(wire.encode_index([])) == b"[]"
    assert b"".join(wire.encode_index_message([])) == b""


def test_text_that_is_no_unicode_does_not_break_the_index():
    rows = [IndexEntry("m", "1", ModelState.UNAVAILABLE, "half \ud800 of a pair")]
    assert b"half ? of" in b"".join(wire.encode_index(rows))
    assert b"half ? of" in b"".join(wire.encode_index_message(rows))


def test_an_index_message_may_ask_for_ready_models_only():
    for ready in (True, False):
        data = pb.RepositoryIndexRequest(ready=ready).SerializeToString()
        assert wire.decode_index_message(data) is ready
    named = pb.RepositoryIndexRequest(repository_name="r").SerializeToString()
    assert "repository_name" in refused(wire.decode_index_message, named, kind=Unsupported)


def test_an_index_that_is_none_is_the_servers_fault():
    with pytest.raises(InferdError, match="malformed"):
        wire.decode_index(b'{"error": "no"}')
    with pytest.raises(InferdError, match="malformed"):
        wire.decode_index(b'[{"a":' + b"[" * 200_000)


# --- load over REST ---


def load_body(**parameters):
    return view(json.dumps({"parameters": parameters}))


@pytest.mark.parametrize("body", ["", "{}", '{"parameters": null}', '{"parameters": {}}'])
def test_a_plain_load_says_nothing_more(body):
    assert wire.decode_load_request(LIMIT, view(body), "m") == LoadRequest("m")


@pytest.mark.parametrize(
    "load",
    [
        LoadRequest("m", "{}"),
        LoadRequest("m", '{"name": "mü"}', {"1/model.onnx": b"\x00\xff", "labels.txt": b""}),
        LoadRequest("m", None, {"1/big": bytes(range(256)) * 20_000}),
    ],
)
def test_a_load_survives_both_encodings(load):
    assert wire.decode_load_request(1 << 24, view(wire.encode_load_request(load)), "m") == load
    assert wire.decode_load_message(wire.encode_load_message(load)) == load


def test_escaped_base64_is_read():
    body = view(r'{"parameters": {"file:1/a": "\/\/79\u002b\/4="}}')
    [content] = wire.decode_load_request(LIMIT, body, "m").files.values()
    assert content == base64.b64decode("//79+/4=")


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_base64_in_lines_is_read(end):
    content = bytes(range(256))
    text = base64.encodebytes(content).decode().replace("\n", end)
    body = load_body(config="{}", **{"file:1/a": text})
    assert wire.decode_load_request(LIMIT, body, "m").files == {"1/a": content}


BAD_LOADS = {
    "unrecognized load parameter 'zz', expected 'config' or 'file:VERSION/PATH'": load_body(zz="x"),
    "unrecognized load parameter 'File:1/a'": load_body(**{"File:1/a": ""}),
    "parameter 'config' is {}, expected a string that holds JSON": load_body(config={}),
    "parameter 'config' is null, expected": load_body(config=None),
    "parameter 'file:1/a' is 7, expected a string of base64": load_body(**{"file:1/a": 7}),
    "parameter 'file:1/a' is not base64: ": load_body(**{"file:1/a": "a*b="}),
    "parameter 'file:1/b' is not base64: ": load_body(**{"file:1/b": "ä"}),
    "parameter 'file:1/c' is not base64: it has 3 characters, expected a multiple": load_body(
        **{"file:1/c": "abc"}
    ),
    "parameter 'file:1/e' is not base64: it has 9": load_body(**{"file:1/e": "//79+/v4="}),
    "parameter 'file:1/d' is not base64: padding before the end": load_body(
        **{"file:1/d": "A" * ((1 << 20) - 1) + "=AAAA"}
    ),
    "the body is no load request, a JSON object with 'parameters': ": view("[]"),
    "the body is no load request": view('{"parameters": [1]}'),
    "the body is no load request, a JSON": view(" \n"),
    "the body is no load reques": view('{"parameters": {"config": "\\x"'),
    "parameter 'config' is \"": view(b'{"parameters": {"config": "\xff"}}'),
    "the body is no load request, a": view(b'{"parameters": {"\xff": 1}}'),
    "the body is no load request, a JSON object": view('{"a":' * 200_000),
    "the load has 2097153 bytes of JSON, the limit is 2097152": view(b" " * ((1 << 21) + 1)),
    "a load may have at most 1000 parameters": load_body(**{f"file:{n}": "" for n in range(1001)}),
    "a load may have at most 1000 parameters ": view(
        b'{"parameters": {' + b",".join(b'"%d":1' % n for n in range(200_000)) + b"}}"
    ),
}


@pytest.mark.parametrize(("text", "body"), BAD_LOADS.items(), ids=range(len(BAD_LOADS)))
def test_a_load_of_another_shape_is_refused(text, body):
    message = refused(wire.decode_load_request, 1 << 21, body, "m")
    assert text.rstrip() in message
    assert len(message) < 500


@pytest.mark.parametrize(
    ("body", "dependents"),
    [
        ("", False),
        ("{}", False),
        ('{"parameters": null}', False),
        ('{"parameters": {"unload_dependents": true}}', True),
        ('{"parameters": {"unload_dependents": false, "other": 1}}', False),
    ],
)
def test_an_unload_may_take_the_dependents_with_it(body, dependents):
    assert wire.decode_unload_request(view(body), "m") == UnloadRequest("m", dependents)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (
            '{"parameters": {"unload_dependents": "yes"}}',
            "parameter 'unload_dependents' is \"yes\"",
        ),
        ('{"parameters": []}', "'parameters' is [], expected an object"),
        ("7", "the body is 7, expected a JSON object"),
        ("\x0c", "failed to parse the request JSON buffer"),
        (" \r\n\t", "failed to parse the request JSON buffer"),
    ],
)
def test_an_unload_of_another_shape_is_refused(body, text):
    assert text in refused(wire.decode_unload_request, view(body), "m")


@pytest.mark.parametrize("dependents", [True, False])
def test_an_unload_survives_both_encodings(dependents):
    unload = UnloadRequest("m", dependents)
    assert wire.decode_unload_request(view(wire.encode_unload_request(unload)), "m") == unload
    assert wire.decode_unload_message(wire.encode_unload_message(unload)) == unload


def test_answers_are_those_of_kserve():
    assert orjson.loads(wire.encode_loaded("m")) == {"name": "m", "load": True}
    assert orjson.loads(wire.encode_unloaded("m")) == {"name": "m", "unload": True}
    # Fields 1 and 2 of KServe's answers: model_name and isLoaded, or isUnloaded.
    assert wire.encode_done("mü") == b"\x0a\x03m\xc3\xbc\x10\x01"
    assert pb.RepositoryModelLoadResponse.FromString(wire.encode_done("m")) is not None


# --- load over gRPC ---


def load_message(repository_name="", model_name="", **parameters):
    message = pb.RepositoryModelLoadRequest(repository_name=repository_name, model_name=model_name)
    for key, (choice, value) in parameters.items():
        setattr(message.parameters[key.replace("__", ":")], choice, value)
    return message.SerializeToString()


def test_kserves_field_of_the_name_is_understood():
    assert wire.decode_load_message(load_message("m")) == LoadRequest("m")
    assert wire.decode_load_message(load_message("", "m")) == LoadRequest("m")
    unload = pb.RepositoryModelUnloadRequest(repository_name="m").SerializeToString()
    assert wire.decode_unload_message(unload) == UnloadRequest("m")


def test_a_named_repository_is_not_offered():
    assert "repository_name" in refused(
        wire.decode_load_message, load_message("r", "m"), kind=Unsupported
    )
    unload = pb.RepositoryModelUnloadRequest(repository_name="r", model_name="m")
    refused(wire.decode_unload_message, unload.SerializeToString(), kind=Unsupported)


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ({"zz": ("string_param", "x")}, "unrecognized load parameter 'zz'"),
        ({"config": ("bytes_param", b"{}")}, "'config', expected string_param: it is bytes_param"),
        (
            {"file__1/a": ("string_param", "x")},
            "'file:1/a', expected bytes_param: it is string_param",
        ),
        ({"file__1/a": ("int64_param", 7)}, "'file:1/a', expected bytes_param: it is int64_param"),
    ],
)
def test_parameters_of_the_wrong_type_are_refused(parameters, text):
    message = load_message(model_name="m", **parameters)
    assert text in refused(wire.decode_load_message, message)


def test_a_parameter_that_is_not_set_is_refused():
    message = pb.RepositoryModelLoadRequest(model_name="m")
    message.parameters["config"].SetInParent()
    text = refused(wire.decode_load_message, message.SerializeToString())
    assert text == (
        "invalid value type for load parameter 'config', expected string_param: it is not set"
    )
    unload = pb.RepositoryModelUnloadRequest(model_name="m")
    unload.parameters["unload_dependents"].int64_param = 1
    text = refused(wire.decode_unload_message, unload.SerializeToString())
    assert text == (
        "invalid value type for 'unload_dependents' parameter, expected bool_param: "
        "it is int64_param"
    )


def test_large_files_are_views_and_small_ones_are_parsed():
    large, small = b"x" * 100_000, b"y" * 100
    message = load_message(
        model_name="m",
        config=("string_param", "{}"),
        **{"file__1/large": ("bytes_param", large), "file__1/small": ("bytes_param", small)},
    )
    for data in (message, memoryview(message)):
        load = wire.decode_load_message(data)
        assert (load.model, load.config) == ("m", "{}")
        assert isinstance(load.files["1/large"], memoryview)
        assert load.files == {"1/large": large, "1/small": small}


def test_a_large_config_is_no_file():
    text = json.dumps({"name": "x" * 100_000})
    message = load_message(model_name="m", config=("string_param", text))
    assert wire.decode_load_message(message).config == text
    message = load_message(model_name="m", other__=("bytes_param", b"x" * 100_000))
    assert "unrecognized load parameter 'other:'" in refused(wire.decode_load_message, message)


def test_more_files_than_a_load_may_have_are_refused_before_they_are_parsed():
    files = {f"file__{number}": ("bytes_param", b"") for number in range(wire.MAX_FILES + 1)}
    message = load_message(model_name="m", **files)
    assert "at most 1000" in refused(wire.decode_load_message, message)


@pytest.mark.parametrize("cut", [1, 5, 40_000, 99_990])
def test_a_message_that_is_cut_short_is_refused(cut):
    files = {"file__1/large": ("bytes_param", b"x" * 100_000)}
    message = load_message(model_name="m", **files)
    assert "cannot be read" in refused(wire.decode_load_message, message[:-cut])
