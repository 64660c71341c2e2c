"""How restrictions are spelled, and what is said of those that are spelled wrong."""

import pytest

from inferd.config.options.restriction import (
    API_GROUPS,
    Restriction,
    read_groups,
    read_restrictions,
)
from inferd.errors import InvalidConfig

FLAG = "--http-restricted-api"


def test_each_group_named_has_the_restriction():
    found = read_restrictions(FLAG, ["health,metadata:Admin-Key=s3cret", "inference:k=v"])
    admin = Restriction("admin-key", "s3cret")
    assert found == {"health": admin, "metadata": admin, "inference": Restriction("k", "v")}


def test_nothing_is_restricted_without_the_option():
    assert read_restrictions(FLAG, []) == {}


@pytest.mark.parametrize("value", ["a=b", "a:b", "a b", "=", "~!"])
def test_a_value_may_have_any_printable_character(value):
    assert read_restrictions(FLAG, [f"trace:k={value}"])["trace"].value == value


def test_all_groups_can_be_restricted_at_once():
    assert set(read_restrictions(FLAG, [",".join(API_GROUPS) + ":k=v"])) == set(API_GROUPS)


@pytest.mark.parametrize(
    "text",
    [
        *("", "health", "health:", "health:k", "health:k=", "health:=v", "health=k"),
        *("health:k k=v", "health:k= v", "health:k=v ", "health:k=v\n", "health:k=é", "health:é=v"),
    ],
)
def test_what_is_no_restriction_is_refused(text):
    with pytest.raises(InvalidConfig, match=f"^{FLAG}: expected GROUPS:KEY=VALUE"):
        read_restrictions(FLAG, [text])


@pytest.mark.parametrize("names", ["", "inferense", "Health", "health,", ",health", "health;trace"])
def test_a_group_that_does_not_exist_is_refused_with_those_that_do(names):
    with pytest.raises(InvalidConfig, match="is none of the groups health, metadata, inference"):
        read_restrictions(FLAG, [f"{names}:k=v"])


@pytest.mark.parametrize("texts", [["trace:a=b", "trace:c=d"], ["trace,trace:a=b"]])
def test_a_group_restricted_twice_is_refused(texts):
    with pytest.raises(InvalidConfig, match="the group trace is restricted twice"):
        read_restrictions(FLAG, texts)


@pytest.mark.parametrize("text", ["helth:key=s3cret", "health:ke y=s3cret", "health;key=s3cret"])
def test_no_error_tells_the_value(text):
    with pytest.raises(InvalidConfig) as caught:
        read_restrictions(FLAG, [text])
    assert "s3cret" not in caught.value.message


def test_groups_may_have_spaces_around_them():
    assert read_groups("x", "trace , logging") == ["trace", "logging"]
