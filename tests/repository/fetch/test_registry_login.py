"""Logins at registries: tokens, stored passwords, credential helpers."""

import json
import os

import pytest
from small_hub import basic, tar_of

from inferd.errors import NotLoadable
from inferd.repository.fetch.oci import RegistryLogin, stored_credentials
from inferd.repository.fetch.web import Login

OTHERS = ("http://h/api", "https://h:444/api", "https://h.example.com/api")


@pytest.fixture
def place(hub):
    hub.put_image("team/resnet", "latest", [tar_of({"models/m": b"m"})])
    return f"oci://127.0.0.1:{hub.server_port}/team/resnet"


@pytest.fixture
def store(tmp_path, hub):
    """store(document) writes docker's file of credentials."""

    def write(**document):
        (tmp_path / "home/.docker").mkdir(exist_ok=True)
        (tmp_path / "home/.docker/config.json").write_text(json.dumps(document))

    return write


def with_tokens(hub, wanted=""):
    """Have a registry want a token, which it gives to whoever sends `wanted`."""

    def give(request):
        hub.seen = request.query, request.headers.get("Authorization", "")
        if hub.seen[1] != wanted:
            return request.answer(401, b"")
        return request.answer(200, b'{"token": "short-lived"}')

    hub.secret = "Bearer short-lived"
    scope = 'scope="repository:team/resnet:pull"'
    hub.challenge = f'Bearer realm="{hub.url}/token",service="it",{scope}'
    hub.answers["/token"] = give


def test_a_token_is_fetched_where_the_registry_says(hub, fetch, tree, place):
    with_tokens(hub)
    assert tree(fetch(place)) == {"m": b"m"}
    assert hub.seen == ({"service": "it", "scope": "repository:team/resnet:pull"}, "")
    assert sum(path.startswith("/token") for path in hub.paths) == 1


def test_a_token_that_has_expired_is_renewed(hub, fetch, tree, place):
    with_tokens(hub)
    digest = next(path for path in hub.files if "/blobs/" in path)

    def expired(request):
        del hub.answers[digest]
        request.answer(401, b"", {"WWW-Authenticate": hub.challenge})

    hub.answers[digest] = expired
    assert tree(fetch(place)) == {"m": b"m"}


def test_the_password_is_sent_where_the_token_is_and_nowhere_else(hub, fetch, tree, place, store):
    with_tokens(hub, basic("me", "hidden"))
    with pytest.raises(NotLoadable, match="/token' wants a login"):
        fetch(place)
    pair = basic("me", "hidden").removeprefix("Basic ")
    store(auths={f"127.0.0.1:{hub.server_port}": {"auth": pair}})
    hub.requests.clear()
    assert tree(fetch(place)) == {"m": b"m"}
    sent = [headers.get("Authorization") for path, headers in hub.requests if "/token" not in path]
    assert set(sent) == {None, "Bearer short-lived"}


def test_a_registry_may_want_the_password_itself(hub, fetch, tree, place, store):
    hub.secret, hub.challenge = basic("me", "hidden"), 'Basic realm="it"'
    with pytest.raises(NotLoadable, match="wants a login; log in with docker, podman or oras"):
        fetch(place)
    entry = {"username": "me", "password": "hidden"}
    store(auths={f"https://127.0.0.1:{hub.server_port}": entry})
    assert tree(fetch(place)) == {"m": b"m"}


def test_a_wrong_password_is_an_error_without_it(hub, fetch, place, store):
    hub.secret, hub.challenge = basic("me", "right"), 'Basic realm="it"'
    entry = {"username": "me", "password": "hidden"}
    store(auths={f"127.0.0.1:{hub.server_port}": entry})
    with pytest.raises(NotLoadable, match="wants a login") as failure:
        fetch(place)
    assert "hidden" not in failure.value.message
    assert len(hub.requests) <= 3


@pytest.mark.parametrize("kind", ["credHelpers", "credsStore"])
def test_a_credential_helper_is_asked(store, tmp_path, monkeypatch, kind):
    (tmp_path / "bin").mkdir()
    helper = tmp_path / "bin/docker-credential-here"
    program = (
        '#!/bin/sh\n[ "$(cat)" = ghcr.io ] && echo \'{"Username": "me", "Secret": "hidden"}\'\n'
    )
    helper.write_text(program)
    helper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    store(**{kind: {"ghcr.io": "here"} if kind == "credHelpers" else "here"})
    assert stored_credentials("ghcr.io", os.environ) == basic("me", "hidden")
    assert stored_credentials("quay.io", os.environ) == ""


@pytest.mark.parametrize("text", ["no JSON", "[]", '{"credsStore": "../../bin/sh"}', "{}"])
def test_a_file_that_is_of_no_use_is_no_failure(text, tmp_path):
    (tmp_path / "home/.docker").mkdir()
    (tmp_path / "home/.docker/config.json").write_text(text)
    assert stored_credentials("ghcr.io", os.environ) == ""


def test_podmans_file_is_read_and_docker_hub_has_a_name_of_its_own(tmp_path, monkeypatch):
    (tmp_path / "auth.json").write_text(
        '{"auths": {"https://index.docker.io/v1/": {"auth": "eA=="}}}'
    )
    monkeypatch.setenv("REGISTRY_AUTH_FILE", str(tmp_path / "auth.json"))
    assert stored_credentials("docker.io", os.environ) == "Basic eA=="


def test_a_registry_with_tls_cannot_have_passwords_sent_without_it():
    login = RegistryLogin("ghcr.io", "https://ghcr.io", {})
    with pytest.raises(
        NotLoadable, match=r"the registry ghcr.io wants a login that is not over HT"
    ):
        login.answer('Bearer realm="http://ghcr.io/token"')
    assert not login.answer("Digest x")


def test_a_token_is_for_its_registry_alone(hub, place):
    with_tokens(hub)
    login = RegistryLogin("it", hub.url, {})
    assert login.answer(hub.challenge)
    assert login.header(f"{hub.url}/v2/") == "Bearer short-lived"
    assert [login.header(url) for url in OTHERS] == [""] * 3
    fixed = Login("https://h/api", "hidden")
    assert fixed.header("https://h:443/x") == "hidden"
    assert [fixed.header(url) for url in OTHERS] == [""] * 3


@pytest.mark.parametrize("body", [b"[]", b'{"x":' * 100_000])
def test_an_answer_without_a_token_is_refused(hub, fetch, place, body):
    with_tokens(hub)
    hub.answers["/token"] = lambda request: request.answer(200, body)
    with pytest.raises(NotLoadable, match="gives no token"):
        fetch(place)
