"""Who may read and change what; tests/ui/test_routes.py has the same over sockets."""

import pytest

from inferd.api.access import KeyRing
from inferd.config.options.access import ApiKey, hash_key
from inferd.errors import Forbidden, Restricted, Unauthenticated
from inferd.http.access import OPEN, Access, Secret
from inferd.ui.acts import decode_act
from inferd.ui.permission import SESSION, Permission
from inferd.ui.tokens import own_tokens
from inferd.ui.topics import GROUPS

ACT = decode_act(memoryview(b'{"act":"load","model":"m"}'))
KEYS = KeyRing({hash_key(b"key"): ApiKey("key", frozenset(("model-repository",)))})
SECRET = {"model-repository": Secret(b"admin", b"yes")}


def test_an_open_server_shows_everything_and_changes_nothing_without_a_session():
    permission = Permission(OPEN, own_tokens())
    for topic in GROUPS:
        permission.check_topic(topic, {})
    with pytest.raises(Unauthenticated, match="needs a session"):
        permission.check_act(ACT, {b"x-api-key": b"key"})
    assert not permission.needs_keys and permission.key_headers == []


def test_a_session_is_as_good_as_a_key():
    tokens = own_tokens()
    permission = Permission(Access(keys=KEYS), tokens)
    session = tokens.unlock(tokens.token()).encode()
    permission.check_act(ACT, {SESSION: session})
    permission.check_act(ACT, {b"x-api-key": b"key"})
    permission.check_act(ACT, {SESSION: b"old", b"x-api-key": b"key"})
    for headers in ({}, {SESSION: b"x"}, {SESSION: session + b"x", b"x-api-key": b"other"}):
        with pytest.raises(Unauthenticated):
            permission.check_act(ACT, headers)


def test_a_session_is_not_the_secret_of_a_restricted_api():
    tokens = own_tokens()
    session = tokens.unlock(tokens.token()).encode()
    permission = Permission(Access(SECRET), tokens)
    with pytest.raises(Restricted):
        permission.check_act(ACT, {SESSION: session})
    permission.check_act(ACT, {SESSION: session, b"admin": b"yes"})
    with pytest.raises(Unauthenticated):
        permission.check_act(ACT, {b"admin": b"yes"})


def test_a_session_does_not_show_what_needs_a_key():
    tokens = own_tokens()
    session = tokens.unlock(tokens.token()).encode()
    with pytest.raises(Unauthenticated):
        Permission(Access(keys=KEYS), tokens).check_topic("overview", {SESSION: session})


def test_without_tokens_nothing_can_be_changed():
    with pytest.raises(Forbidden, match="--ui=full"):
        Permission(OPEN, None).tokens()
