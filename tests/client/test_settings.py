"""Options of a client."""

import ssl

import pytest

from inferd.client import InvalidTarget
from inferd.client.settings import read_settings


def test_what_is_left_out_has_a_default():
    settings = read_settings("http://h", {})
    assert (settings.timeout_s, settings.retries, settings.tls) == (60, 2, None)
    assert read_settings("http://h", {"timeout_s": 1}).timeout_s == 1


def test_tls_is_checked_by_default():
    settings = read_settings("https://h", {})
    assert settings.tls.verify_mode is ssl.CERT_REQUIRED
    assert settings.tls.check_hostname
    own = ssl.create_default_context()
    assert read_settings("grpcs://h", {"tls": own}).tls is own


@pytest.mark.parametrize("name", ["timeout_s", "connect_timeout_s", "connections"])
def test_numbers_are_more_than_0(name):
    for value in (0, -1, float("nan")):
        with pytest.raises(InvalidTarget, match=name):
            read_settings("http://h", {name: value})


def test_options_that_cannot_be_meant():
    with pytest.raises(TypeError, match="time_out"):
        read_settings("http://h", {"time_out": 1})
    with pytest.raises(InvalidTarget, match="write https://"):
        read_settings("http://h", {"ca_file": "x.pem"})
    with pytest.raises(InvalidTarget, match="certificates cannot be read"):
        read_settings("https://h", {"ca_file": "nowhere.pem"})
