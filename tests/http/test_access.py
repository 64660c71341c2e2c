"""What a guard lets pass."""

import pytest

from inferd.errors import Restricted, Unauthenticated
from inferd.http.access import NO_GROUP, OPEN, Access, Keys, Secret, joined

METADATA = Access({"metadata": Secret(b"admin-key", b"open sesame")})


def test_what_is_not_restricted_has_no_guard():
    assert OPEN.guard("inference") is None
    assert METADATA.guard("inference") is None


def test_the_right_value_passes():
    METADATA.guard("metadata").check({b"admin-key": b"open sesame", b"other": b""})


@pytest.mark.parametrize(
    "value", [None, b"", b"open sesam", b"open sesame ", b"Open sesame", b"open sesame, x", b"\xff"]
)
def test_any_other_value_does_not(value):
    headers = {} if value is None else {b"admin-key": value}
    with pytest.raises(Restricted, match="expecting header 'admin-key'") as caught:
        METADATA.guard("metadata").check(headers)
    assert "sesame" not in caught.value.message


def test_fields_of_one_name_are_joined():
    assert joined([(b"a", b"1"), (b"b", b"2"), (b"a", b"3")]) == {b"a": b"1, 3", b"b": b"2"}


class OneKey(Keys):
    """Knows one key, for all groups."""

    header_names = frozenset((b"key",))

    def check(self, api, headers):
        if headers.get(b"key") != b"good":
            raise Unauthenticated(api)


def test_a_key_is_asked_for_except_in_keyless_groups_and_is_secret():
    access = Access(keys=OneKey(), keyless=frozenset(("health",)))
    assert access.guard("health") is None
    access.guard("trace").check({b"key": b"good"})
    with pytest.raises(Unauthenticated, match="trace"):
        access.guard("trace").check({b"key": b"bad"})
    assert access.secret_names == {"key"}


def test_a_call_without_a_group_has_no_guard():
    access = Access({"trace": Secret(b"admin-key", b"open sesame")}, OneKey())
    assert access.guard(NO_GROUP) is None
    assert access.keys is not None and OPEN.keys is None


def test_a_guard_may_leave_the_key_to_others():
    access = Access({"trace": Secret(b"admin-key", b"open sesame")}, OneKey())
    assert access.guard("logging", with_keys=False) is None
    access.guard("trace", with_keys=False).check({b"admin-key": b"open sesame"})
    with pytest.raises(Restricted):
        access.guard("trace", with_keys=False).check({b"key": b"good"})
