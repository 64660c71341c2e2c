"""HAProxy's program: found, or it is said how to get it."""

import pytest

from inferd.errors import InvalidConfig
from inferd.route.haproxy import check_configuration, find_program


def script(folder, text):
    path = folder / "haproxy"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_the_program_of_the_package_is_found(program):
    assert program.path.endswith("haproxy")
    assert program.has_lua


def test_the_program_that_is_named_is_taken(tmp_path):
    path = script(tmp_path, 'echo "HAProxy version 3.0.1-x 2026/01/01 - https://haproxy.org/"')
    assert find_program(path) == (path, False)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('echo "HAProxy version 2.6.12"', "is 2.6, and 2.8 or newer is needed"),
        ("echo nothing", "does not say that it is HAProxy: 'nothing"),
        ('echo "HAProxy version 2.8.1"; exit 1', "does not say that it is HAProxy"),
    ],
)
def test_a_program_that_will_not_do_is_refused(tmp_path, text, message):
    with pytest.raises(InvalidConfig, match=message):
        find_program(script(tmp_path, text))


def test_a_program_that_cannot_be_run_is_named(tmp_path):
    with pytest.raises(InvalidConfig, match=r"HAProxy at .*/none cannot be run"):
        find_program(str(tmp_path / "none"))


def test_without_any_it_is_said_how_to_get_one(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.path", [])
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InvalidConfig, match=r"pip install 'inferd\[route\]'"):
        find_program(None)


def test_what_cannot_be_checked_is_no_success(tmp_path, program):
    assert check_configuration(program._replace(path=str(tmp_path)), tmp_path)
