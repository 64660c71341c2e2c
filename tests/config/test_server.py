import re
import runpy
from dataclasses import dataclass, fields
from itertools import groupby
from pathlib import Path

import pytest

from inferd.cli.command_line.flags import read_command_line
from inferd.cli.help import serve_help
from inferd.config.options.option import groups_of, option, options_of
from inferd.config.sections.ignored import IgnoredSection
from inferd.config.server import ServerConfig
from inferd.config.sources import read_settings
from inferd.errors import InvalidConfig

ROOT = Path(__file__).parents[2]
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
    assert sorted(OPTIONS) == sorted(each.name for each in fields(ServerConfig))


@dataclass(frozen=True, kw_only=True)
class MoreConfig(ServerConfig):
    shoe_size: int = option(42, "Size of the shoes.", group="Shoes")


@pytest.mark.parametrize("way", ["flag", "variable", "file"])
def test_an_option_that_is_declared_can_be_set_in_each_way(way, tmp_path):
    file = tmp_path / "options.toml"
    file.write_text("shoe-size = 43")
    arguments = {"flag": ["--shoe-size", "43"], "file": ["--config", str(file)]}.get(way, [])
    environ = {"INFERD_SHOE_SIZE": "43"} if way == "variable" else {}
    line = read_command_line(arguments, MoreConfig)
    assert read_settings(line.flags, environ, MoreConfig).config.shoe_size == 43
    assert read_settings([], {}, MoreConfig).config.shoe_size == 42


def test_an_option_that_is_declared_is_in_the_help_and_in_the_reference():
    build = runpy.run_path(str(ROOT / "tools/build_options_doc.py"))["build"]
    assert re.search(
        r"^Shoes\n  --shoe-size N +Size of the shoes. \[42\]$", serve_help(MoreConfig), re.MULTILINE
    )
    assert "## Shoes\n\n" in build(MoreConfig)
    assert "| `--shoe-size` | N | 42 | Size of the shoes. |" in build(MoreConfig)


def test_what_is_ignored_stands_in_the_group_of_what_it_comes_after():
    names = list(OPTIONS)
    for each in fields(IgnoredSection):
        after = each.metadata["after"]
        assert not OPTIONS[each.name].acted_on
        assert OPTIONS[each.name].group == OPTIONS[after].group
        assert names[names.index(each.name) - 1] == after


def test_every_other_option_is_acted_on():
    ignored = {each.name for each in fields(IgnoredSection)}
    assert {one.name for one in OPTIONS.values() if not one.acted_on} == ignored


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
