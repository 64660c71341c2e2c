import json
from pathlib import Path

import pytest
from tritonclient.grpc import service_pb2 as pb

from inferd.config.options.log import LogChange, LogSettings
from inferd.errors import InvalidRequest
from inferd.wire.v2.settings import (
    decode_log_message,
    decode_log_request,
    encode_log_message,
    encode_log_settings,
)

ALL = LogSettings("json", Path("/var/log/server.txt"), 3, info=False, warning=True, error=False)
AS_JSON = {
    "log_file": "server.txt",
    "log_info": False,
    "log_warning": True,
    "log_error": False,
    "log_verbose_level": 3,
    "log_format": "json",
}
CHANGE = LogChange("json", "server.txt", 3, info=False, warning=True, error=False)


def request_of(**values):
    request = pb.LogSettingsRequest()
    for name, (kind, value) in values.items():
        setattr(request.settings[name], kind, value)
    return request.SerializeToString()


def test_all_six_settings_are_reported_in_tritons_order_without_the_files_path():
    assert list(json.loads(encode_log_settings(ALL)).items()) == list(AS_JSON.items())
    assert json.loads(encode_log_settings(LogSettings()))["log_file"] == ""


def test_a_message_tells_the_same():
    message = pb.LogSettingsResponse.FromString(encode_log_message(ALL))
    reported = {
        name: getattr(value, value.WhichOneof("parameter_choice"))
        for name, value in message.settings.items()
    }
    assert reported == AS_JSON
    assert message.settings["log_verbose_level"].WhichOneof("parameter_choice") == "uint32_param"


def test_settings_in_an_answer_are_a_request_for_the_same():
    assert decode_log_request(memoryview(encode_log_settings(ALL))) == CHANGE
    assert decode_log_message(encode_log_message(ALL)) == CHANGE


@pytest.mark.parametrize("body", [b"{}", b'{"log_info": null}', b'{"log_nothing": 1}'])
def test_null_and_unknown_names_change_nothing(body):
    assert decode_log_request(memoryview(body)) == LogChange()


def test_an_empty_value_and_unknown_names_change_nothing_in_a_message():
    request = pb.LogSettingsRequest()
    request.settings["log_info"].SetInParent()
    request.settings["nothing"].string_param = "x"
    assert decode_log_message(request.SerializeToString()) == LogChange()


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("log_info", 1, "log_info is 1, expected true or false"),
        ("log_warning", "true", 'log_warning is "true", expected true or false'),
        ("log_error", {}, "log_error is {}, expected true or false"),
        ("log_verbose_level", -1, "log_verbose_level is -1, expected a whole number from 0 to"),
        ("log_verbose_level", 2**32, f"log_verbose_level is {2**32}, expected a whole number"),
        ("log_verbose_level", 1.0, "log_verbose_level is 1.0, expected a whole number"),
        ("log_verbose_level", True, "log_verbose_level is true, expected a whole number"),
        ("log_verbose_level", 10**30, "log_verbose_level"),
        ("log_file", False, "log_file is false, expected a string"),
        ("log_format", ["default"], r'log_format is \["default"\], expected a string'),
    ],
)
def test_a_value_of_the_wrong_type_is_refused(name, value, text):
    with pytest.raises(InvalidRequest, match=text):
        decode_log_request(memoryview(json.dumps({name: value}).encode()))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (("string_param", "x"), 'log_info is "x", expected true or false, in bool_param'),
        (("uint32_param", 1), "log_info is 1, expected true or false, in bool_param"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused_in_a_message(value, text):
    with pytest.raises(InvalidRequest, match=text):
        decode_log_message(request_of(log_info=value))


def test_what_is_no_message_is_refused():
    with pytest.raises(InvalidRequest, match="cannot be read"):
        decode_log_message(b"\xff")
