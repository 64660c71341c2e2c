import re
from dataclasses import fields
from itertools import groupby

import pytest

from inferd.config.options.option import groups_of, options_of
from inferd.config.server import ServerConfig
from inferd.errors import InvalidConfig

OPTIONS = options_of(ServerConfig)


def test_options_of_one_group_stand_together():
    groups = [group for group, _ in groupby(OPTIONS.values(), lambda each: each.group)]
    assert groups == list(groups_of(ServerConfig))


def test_every_default_is_one_its_own_option_accepts():
    for each in OPTIONS.values():
        if each.default not in (None, ()):
            assert each.read_toml(each.default, each.flag) == each.default


def test_every_help_is_a_sentence():
    for each in OPTIONS.values():
        assert re.fullmatch(r".+[.]", each.help), each.flag


def test_no_spelling_is_used_twice():
    spellings = [
        name
        for each in OPTIONS.values()
        for name in (each.key, *each.aliases, *each.old_flags, *each.old_switches)
    ]
    assert len(spellings) == len(set(spellings))


def test_no_variable_is_one_kubernetes_sets_for_a_service_called_inferd():
    variables = {each.variable for each in OPTIONS.values()}
    assert not {name for name in variables if re.match(r"INFERD_(PORT|SERVICE)(_|$)", name)}


def test_the_configuration_never_changes():
    config = ServerConfig()
    with pytest.raises(AttributeError):
        config.http_port = 1


def test_the_declaration_covers_every_field():
    assert list(OPTIONS) == [each.name for each in fields(ServerConfig)]


def test_no_time_is_longer_than_the_systems_timers_take():
    words = ("SECONDS", "MILLISECONDS")
    times = [one for one in OPTIONS.values() if one.word in words]
    assert len(times) > 15
    for one in times:
        with pytest.raises(InvalidConfig, match="the most is 2147483647"):
            one.read_text("9999999999", one.flag)
        if one.is_raised:
            assert one.read_text("-1", one.flag) == one.minimum
            continue
        with pytest.raises(InvalidConfig, match="is too small"):
            one.read_text("-1", one.flag)


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("http_max_header_bytes", 2**31 - 1),
        ("grpc_max_metadata_bytes", 2**31 - 1),
        ("grpc_max_concurrent_streams", 2**31 - 1),
        ("grpc_http2_max_pings_without_data", 2**31 - 1),
        ("grpc_http2_max_ping_strikes", 2**31 - 1),
        ("log_verbose", 2**32 - 1),
    ],
)
def test_what_the_wire_carries_in_32_bits_has_a_limit(name, most):
    one = OPTIONS[name]
    assert one.read_text(str(most), one.flag) == most
    with pytest.raises(InvalidConfig, match=f"too large, the most is {most}"):
        one.read_text(str(most + 1), one.flag)


def test_a_negative_number_of_pings_is_no_limit():
    for name in ("grpc_http2_max_pings_without_data", "grpc_http2_max_ping_strikes"):
        assert OPTIONS[name].read_text("-1", "here") == 0
