"""How restrictions and API keys are spelled, and what is said of those that are spelled wrong."""

import hashlib

import pytest

from inferd.config.options.access import (
    API_GROUPS,
    ApiKey,
    Restriction,
    hash_key,
    make_key,
    read_api_keys,
    read_groups,
    read_header_pattern,
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


HASH = hashlib.sha256(b"secret").hexdigest()


def test_a_new_key_is_found_by_its_line():
    made = make_key("alice")
    assert read_api_keys(made.line, "f")[hash_key(made.key.encode())] == ApiKey("alice")
    assert made.key not in made.line


def test_keys_are_long_and_differ():
    keys = {make_key("a").key for _ in range(20)}
    assert len(keys) == 20
    assert all(len(key) >= 43 and key.startswith("inferd_") and key.isascii() for key in keys)


def test_a_key_may_open_some_groups_only():
    made = make_key("bob", "inference, health")
    [key] = read_api_keys(made.line, "f").values()
    assert key == ApiKey("bob", frozenset(("inference", "health")))
    assert ApiKey("alice").groups == set(API_GROUPS)


def test_empty_lines_and_comments_are_passed_over():
    text = f"# who\n\n  # more\r\n  alice:{HASH.upper()}  \n\tbob jr.:{'0' * 64}:trace"
    found = read_api_keys(text, "f")
    assert found[hashlib.sha256(b"secret").digest()] == ApiKey("alice")
    assert found[bytes(32)] == ApiKey("bob jr.", frozenset(("trace",)))


def test_a_file_without_keys_is_empty():
    assert read_api_keys("", "f") == read_api_keys("# nobody\n", "f") == {}


@pytest.mark.parametrize(
    "line",
    [
        *("alice", "alice:", "alice:secret", f"alice:{HASH[1:]}", f"alice:{HASH}0", f":{HASH}"),
        *(HASH, f"alice {HASH}", f"alice: {HASH}", "inferd_secret", f"{'a' * 101}:{HASH}"),
    ],
)
def test_a_line_that_is_none_is_named_by_number_and_not_repeated(line):
    with pytest.raises(
        InvalidConfig, match=r"^--api-key-file: line 2: expected NAME:HASH"
    ) as caught:
        read_api_keys(f"# first\n{line}\n", "--api-key-file")
    for secret in ("secret", "alice", HASH[1:]):
        assert secret not in caught.value.message


@pytest.mark.parametrize("groups", ["", "inference,", "everything"])
def test_groups_that_do_not_exist_are_refused(groups):
    with pytest.raises(InvalidConfig, match=r"^f: line 1: .* is none of the groups health,"):
        read_api_keys(f"alice:{HASH}:{groups}", "f")


def test_the_same_key_twice_is_refused():
    with pytest.raises(InvalidConfig, match=r"^f: line 2: the key is there twice"):
        read_api_keys(f"alice:{HASH}\nbob:{HASH}:trace", "f")


@pytest.mark.parametrize("name", ["", "a:b", "#a", " a", "a\nb", "a" * 101])
def test_a_name_the_file_cannot_hold_makes_no_key(name):
    with pytest.raises(InvalidConfig, match="expected NAME:HASH"):
        make_key(name)


@pytest.mark.parametrize(
    ("text", "name", "fits"),
    [
        ("x-.*", "X-Tenant", True),
        ("x-.*", "y-tenant", False),
        ("(?-i)x-.*", "x-tenant", True),
        ("(?-i)x-.*", "X-Tenant", False),
    ],
)
def test_case_matters_only_where_the_pattern_says_so(text, name, fits):
    assert bool(read_header_pattern("--option", text).fullmatch(name)) == fits


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("x-(", "is not a regular expression"),
        ("[[:alpha:]]+", r"set within a set"),
        ("x{99999999999999999999}", "is not a regular expression"),
    ],
)
def test_what_is_no_pattern_is_refused_with_the_name_of_its_option(text, reason):
    with pytest.raises(InvalidConfig, match=rf"^--option: .*{reason}"):
        read_header_pattern("--option", text)
