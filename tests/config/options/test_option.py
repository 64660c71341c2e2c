import math
from dataclasses import dataclass

import pytest

from inferd.config.options.option import option, options_of
from inferd.errors import InvalidConfig


@dataclass(frozen=True, kw_only=True)
class Config:
    is_on: bool = option(True, "a switch", group="G")
    count: int = option(3, "a count", group="G", minimum=1, maximum=9)
    level: int = option(0, "a level", group="G", bare="1")
    delay: float = option(0.5, "a delay", group="G")
    mode: str = option("a", "a mode", group="G", choices=("a", "b"))
    status: int = option(400, "a status", group="G", choices=(400, 503))
    name: str | None = option(None, "a name", group="G")
    title: str | None = option(None, "a title", group="G")
    many: tuple[str, ...] = option((), "many", group="G")


OPTIONS = options_of(Config)


def test_the_spellings_follow_from_the_name():
    is_on = OPTIONS["is_on"]
    assert (is_on.flag, is_on.variable, is_on.key) == ("--is-on", "INFERD_IS_ON", "is-on")


def test_the_kind_follows_from_the_annotation():
    kinds = [each.kind for each in OPTIONS.values()]
    assert kinds == [bool, int, int, float, str, int, str, str, tuple]


def test_help_shows_what_an_option_takes_and_its_default():
    shown = {name: (each.word, each.shown) for name, each in OPTIONS.items()}
    assert shown == {
        "is_on": ("true|false", "true"),
        "count": ("N", "3"),
        "level": ("N", "0"),
        "delay": ("N", "0.5"),
        "mode": ("a|b", "a"),
        "status": ("400|503", "400"),
        "name": ("NAME", ""),
        "title": ("TEXT", ""),
        "many": ("TEXT", ""),
    }


@pytest.mark.parametrize(
    ("text", "value"),
    [("true", True), ("ON", True), ("1", True), ("False", False), ("oFF", False), ("0", False)],
)
def test_a_boolean_is_read_in_any_case(text, value):
    assert OPTIONS["is_on"].read_text(text, "--is-on") is value


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("count", "+7", 7),
        ("level", "true", 1),
        ("level", "2", 2),
        ("delay", "1e-3", 0.001),
        ("status", "503", 503),
        ("name", "", ""),
        ("many", "a,b", "a,b"),
    ],
)
def test_text_is_read_by_kind(name, text, value):
    assert OPTIONS[name].read_text(text, "here") == value


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("is_on", "maybe", "here: 'maybe' is not true or false (or on, off, 1, 0)"),
        ("count", "1.5", "here: '1.5' is not a whole number"),
        ("count", "1_0", "here: '1_0' is not a whole number"),
        ("count", "1" * 5000, f"here: '{'1' * 5000}' is not a whole number"),
        ("count", "true", "here: 'true' is not a whole number"),
        ("count", "0", "here: 0 is too small, the least is 1"),
        ("count", "10", "here: 10 is too large, the most is 9"),
        ("delay", "soon", "here: 'soon' is not a number"),
        ("delay", "nan", "here: 'nan' is not a number"),
        ("delay", "inf", "here: 'inf' is not a number"),
        ("mode", "c", "here: 'c' is none of a, b"),
        ("status", "404", "here: 404 is none of 400, 503"),
    ],
)
def test_a_wrong_text_is_refused_with_what_was_expected(name, text, complaint):
    with pytest.raises(InvalidConfig) as caught:
        OPTIONS[name].read_text(text, "here")
    assert caught.value.message == complaint


@pytest.mark.parametrize(
    ("name", "given", "value"),
    [
        ("is_on", False, False),
        ("count", 7, 7),
        ("level", True, 1),
        ("delay", 2, 2.0),
        ("mode", "B", "b"),
        ("name", "x", "x"),
        ("many", "one", ("one",)),
        ("many", ["one", "two"], ("one", "two")),
    ],
)
def test_toml_values_are_read_by_kind(name, given, value):
    assert OPTIONS[name].read_toml(given, "file: key") == value


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("is_on", 1),
        ("is_on", "true"),
        ("count", "7"),
        ("count", True),
        ("count", 7.0),
        ("count", 0),
        ("delay", True),
        ("delay", math.nan),
        ("delay", math.inf),
        ("name", 3),
        ("many", [1]),
        ("many", {"a": "b"}),
    ],
)
def test_toml_of_the_wrong_kind_is_refused(name, given):
    with pytest.raises(InvalidConfig, match=r"^file: key: "):
        OPTIONS[name].read_toml(given, "file: key")


def test_the_error_for_a_wrong_boolean_of_toml_has_no_words_of_the_command_line():
    with pytest.raises(InvalidConfig) as caught:
        OPTIONS["is_on"].read_toml("on", "file: is-on")
    assert caught.value.message == "file: is-on: 'on' is not true or false"
