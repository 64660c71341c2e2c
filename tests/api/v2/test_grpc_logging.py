"""The gRPC method of the logging extension: bytes in, buffers or an error out."""

import asyncio

import pytest
from tritonclient.grpc import service_pb2 as pb

from inferd.api.v2.grpc_logging import LoggingMethods
from inferd.config.options.log import LogSettings
from inferd.errors import InvalidRequest, Unsupported
from inferd.observe.log import Log, close_log


@pytest.fixture
def log():
    log = Log(LogSettings())
    log.open()
    yield log
    close_log()


def called(log, **settings):
    request = pb.LogSettingsRequest()
    for name, (kind, value) in settings.items():
        setattr(request.settings[name], kind, value)
    method = LoggingMethods(log).methods()["LogSettings"]
    answer = asyncio.run(method.handler(request.SerializeToString(), None))
    return pb.LogSettingsResponse.FromString(b"".join(answer)).settings


def test_an_empty_request_tells_all_six(log):
    told = called(log)
    assert len(told) == 6
    assert told["log_info"].bool_param
    assert told["log_format"].string_param == "default"


def test_settings_are_changed(log):
    told = called(log, log_info=("bool_param", False), log_verbose_level=("uint32_param", 2))
    assert (told["log_info"].bool_param, told["log_verbose_level"].uint32_param) == (False, 2)
    assert log.settings == LogSettings(info=False, verbose=2)


def test_the_wrong_type_and_the_file_are_refused(log):
    with pytest.raises(InvalidRequest, match="log_info"):
        called(log, log_info=("string_param", "no"))
    with pytest.raises(Unsupported, match="log file"):
        called(log, log_file=("string_param", "/tmp/x"))
