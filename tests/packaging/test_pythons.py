import sys

import pytest
from pythons import find_pythons, look_at


@pytest.fixture
def interpreter(tmp_path):
    """Return a function that makes a program which answers like an interpreter."""

    def make(*lines):
        path = tmp_path / "python"
        path.write_text("\n".join(["#!/bin/sh", *lines]))
        path.chmod(0o755)
        return str(path)

    return make


def test_an_interpreter_is_known_by_what_it_says(interpreter):
    assert look_at(sys.executable).minor == sys.version_info[:2]
    found = look_at(interpreter("""echo '["cpython", [3, 19], false]'"""))
    assert (found.minor, found.tag) == ((3, 19), "cp319")


@pytest.mark.parametrize(
    "answer",
    [
        '["cpython", [3, 10], false]',  # too old
        '["cpython", [3, 13], true]',  # without the GIL
        '["pypy", [3, 11], false]',
        "command not found",  # a version manager's stub
    ],
)
def test_what_cannot_have_a_compiled_wheel_is_left_out(interpreter, answer):
    assert look_at(interpreter(f"echo '{answer}'")) is None


def test_a_program_that_fails_is_left_out(interpreter):
    assert look_at(interpreter("exit 127")) is None
    assert look_at("/no/such/python") is None


def test_there_is_one_for_each_version_the_oldest_first(interpreter, monkeypatch, tmp_path):
    (tmp_path / "bin").mkdir()
    for name, minor in (("python3.12", 12), ("python3.11", 11), ("python3.13", 12)):
        path = interpreter(f"""echo '["cpython", [3, {minor}], false]'""")
        (tmp_path / "python").rename(tmp_path / "bin" / name)
        del path
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/bin")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    found = [(python.tag, python.path) for python in find_pythons() if "bin/" in python.path]
    ours = [(tag, path) for tag, path in found if path.startswith(str(tmp_path))]
    assert ours == [
        ("cp311", str(tmp_path / "bin" / "python3.11")),
        ("cp312", str(tmp_path / "bin" / "python3.12")),
    ]
