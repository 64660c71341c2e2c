import subprocess
import sys
from pathlib import Path

import pytest

from inferd.backends.worker.environments.choice import Uv
from inferd.errors import InvalidConfig

OFFLINE = "--no-index\n--find-links ../wheels\n"


@pytest.fixture
def uv():
    """uv(folder) is the program as it is run there."""
    return lambda folder: Uv(folder, 120, "here")


@pytest.fixture
def source(tmp_path):
    """source(text) is a requirements.txt in a folder of its own."""

    def write(text):
        folder = tmp_path / "m"
        folder.mkdir()
        (folder / "requirements.txt").write_text(OFFLINE + text)
        return folder / "requirements.txt"

    return write


@pytest.mark.slow
def test_an_interpreter_is_found_by_path_version_and_range(uv, tmp_path):
    version = "{}.{}".format(*sys.version_info)
    assert uv(tmp_path).interpreter(sys.executable) == Path(sys.executable)
    for wanted in (version, f"=={version}.*"):
        found = uv(tmp_path).interpreter(wanted)
        own = [sys.executable, "-c", "import sys; print(sys.base_prefix)"]
        prefixes = [subprocess.check_output([python, *own[1:]]) for python in (own[0], found)]
        assert prefixes[0] == prefixes[1]


@pytest.mark.parametrize("wanted", ["/no/such/python", "99.1"])
def test_an_interpreter_that_is_not_there_is_told(uv, tmp_path, wanted):
    with pytest.raises(InvalidConfig, match=r"^here failed: error: No interpreter found"):
        uv(tmp_path).interpreter(wanted)


def test_an_interpreter_is_no_option(uv, tmp_path):
    with pytest.raises(InvalidConfig, match="'--help' is no Python, expected a version"):
        uv(tmp_path).interpreter("--help")


@pytest.mark.slow
def test_an_environment_has_what_was_asked_for_and_numpy(uv, wheel, source, tmp_path):
    wheel("numpy", "9.0", "where = 'wheel'")
    wheel("tiny", code="import numpy\nanswer = 42")
    target = tmp_path / "env"
    asked = source("tiny\n")
    uv(asked.parent).make(target, Path(sys.executable), asked.name)
    code = "import tiny, numpy; print(tiny.answer, numpy.where)"
    done = subprocess.run([target / "bin/python", "-c", code], capture_output=True, check=True)
    assert done.stdout == b"42 wheel\n"


@pytest.mark.slow
def test_what_does_not_resolve_is_told_in_uvs_words(uv, wheel, source, tmp_path):
    wheel("numpy", "9.0")
    asked = source("nothing-of-that-name==1.0\n")
    with pytest.raises(InvalidConfig, match=r"here failed: .*nothing-of-that-name"):
        uv(asked.parent).make(tmp_path / "env", Path(sys.executable), asked.name)


@pytest.mark.slow
def test_secrets_of_an_index_are_not_told(uv, source, tmp_path, caplog):
    text = "--index-url http://me:secret@127.0.0.1:1/simple?token=hidden\nx\n"
    asked = source("")
    asked.write_text(text)
    with pytest.raises(InvalidConfig) as caught:
        uv(asked.parent).make(tmp_path / "env", Path(sys.executable), asked.name)
    told = caught.value.message + "".join(record.getMessage() for record in caplog.records)
    assert "127.0.0.1" in told
    assert "secret" not in told
    assert "hidden" not in told
