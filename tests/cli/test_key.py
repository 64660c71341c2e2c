"""inferd key: a key on standard output, its hash in the file."""

import stat

import pytest

from inferd.cli.main import main
from inferd.config.options.access import hash_key, read_api_keys


@pytest.fixture
def make(capsys, tmp_path):
    """make(NAME, GROUPS) runs the verb on one file; returns exit code, output and error."""
    path = tmp_path / "keys"

    def run(*arguments, path=path):
        code = main(["key", arguments[0], str(path), *arguments[1:]])
        said = capsys.readouterr()
        return code, said.out, said.err

    return path, run


def test_keys_are_added_to_the_file_and_printed_once(make):
    path, run = make
    keys = {}
    for name, groups in (("alice", ()), ("bob", ("inference,health",))):
        code, out, err = run(name, *groups)
        assert (code, err) == (0, "")
        keys[name] = out.strip()
        assert keys[name] not in path.read_text()
    found = read_api_keys(path.read_text(), "f")
    assert {found[hash_key(key.encode())].name: key for key in keys.values()} == keys
    assert found[hash_key(keys["bob"].encode())].groups == {"inference", "health"}


def test_a_new_file_is_for_its_owner_alone(make):
    path, run = make
    run("alice")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_last_line_without_an_end_is_retained_whole(make):
    path, run = make
    path.write_text("# mine")
    run("alice")
    first, second = path.read_text().splitlines()
    assert first == "# mine" and second.startswith("alice:")


@pytest.mark.parametrize(
    "arguments", [("a:b",), ("alice", "everything"), ("a", "trace", "x"), ("",)]
)
def test_wrong_arguments_end_with_code_2_and_touch_nothing(make, arguments):
    path, run = make
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("inferd key: ") and err.endswith("See inferd key --help.\n")
    assert not path.exists()


def test_a_file_that_cannot_be_written_is_named(make, tmp_path):
    _, run = make
    code, out, err = run("alice", path=tmp_path / "no" / "keys")
    assert (code, out) == (1, "")
    assert err == f"inferd key: cannot write {tmp_path}/no/keys: No such file or directory\n"


def test_help_says_what_goes_where(capsys):
    assert main(["key", "--help"]) == 0
    assert capsys.readouterr().out.startswith("inferd key NAME FILE [GROUPS]")
