"""The words after the commands about running servers."""

import pytest

from inferd.cli.main import main
from inferd.cli.running import read_words
from inferd.errors import InvalidConfig


def test_numbers_and_switches_are_read():
    assert read_words(["--port=1", "--json"], ("--port",), ("--json",)) == {
        "--port": 1,
        "--json": 1,
    }
    assert read_words(["--port", "2"], ("--port",)) == {"--port": 2}


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--prot=1"], "there is no option --prot"),
        (["8000"], "there is no option 8000"),
        (["--port"], "--port is '', expected a number"),
        (["--port=\u0661"], "expected a number"),
        (["--port", "-1"], "--port is '-1', expected a number"),
        (["--port=" + "1" * 5000], "expected a number"),
        (["--json=1"], "there is no option --json"),
    ],
)
def test_other_words_are_refused(words, complaint):
    with pytest.raises(InvalidConfig, match=complaint):
        read_words(words, ("--port",), ("--json",))


@pytest.mark.parametrize("verb", ["status", "reload"])
def test_wrong_words_end_with_code_2(capsys, verb):
    assert main([verb, "x"]) == 2
    said = capsys.readouterr().err
    assert said == f"inferd {verb}: there is no option x\nSee inferd {verb} --help.\n"
