"""inferd completion: the scripts have all verbs and options, and bash completes with its one."""

import re
import subprocess

import pytest

from inferd.cli import completion
from inferd.cli.completion import abouts, help_of, options_of_help
from inferd.cli.verbs import VERBS
from inferd.config.options.option import options_of
from inferd.config.server import ServerConfig

HELP = """\
inferd thing FILE --not-this

  --port 8080          an example, not an option
  --port PORT          where it listens.
  -o FILE, --output FILE
                       what it writes
  --json               as JSON
--timeout SECONDS  how long; see --port
"""


@pytest.fixture
def script(capsys):
    """script(SHELL) is what the command prints."""

    def printed(shell):
        assert completion.run([shell]) == 0
        return capsys.readouterr().out

    return printed


def test_options_are_read_from_a_help():
    assert [*options_of_help(HELP).items()] == [
        ("port", "where it listens"),
        ("output", "what it writes"),
        ("json", "as JSON"),
        ("timeout", "how long; see --port"),
    ]


@pytest.mark.parametrize(
    "line",
    [
        "  --rate R, -r R        requests a second",  # Python 3.11
        "  --rate, -r R          requests a second",  # 3.13
        "  --rate R, -r R\n                        requests a second",
        "  -r R, --rate R        requests a second",
    ],
)
def test_a_short_name_is_no_part_of_what_an_option_is_about(line):
    assert options_of_help(line) == {"rate": "requests a second"}


def test_all_options_of_the_server_are_found():
    expected = {one.key for one in options_of(ServerConfig).values() if one.acted_on}
    assert expected <= options_of_help(help_of("serve")).keys()


@pytest.mark.parametrize("verb", sorted({*VERBS} - {"key", "completion"}))
def test_each_verb_has_options_and_a_line_in_the_main_help(verb):
    assert abouts()[verb]
    options = options_of_help(help_of(verb))
    assert options
    assert all(options.values())


def completed(script, *words):
    """Return what bash offers for the last of the `words`."""
    line = " ".join(f"'{word}'" for word in ("inferd", *words))
    asked = (
        f'COMP_WORDS=({line}); COMP_CWORD={len(words)}; _inferd; printf "%s\\n" "${{COMPREPLY[@]}}"'
    )
    found = subprocess.run(
        ["bash", "--norc", "-c", f"{script}\n{asked}"], capture_output=True, text=True, check=True
    )
    assert found.stderr == ""
    return found.stdout.split()


def test_bash_completes_verbs_options_and_leaves_the_rest_to_files(script):
    bash = script("bash")
    assert completed(bash, "ser") == ["serve"]
    assert {"serve", "infer", "--help"} <= {*completed(bash, "")}
    assert completed(bash, "serve", "--http-p") == ["--http-port"]
    assert completed(bash, "convert", "models/", "--tol") == ["--tolerance"]
    assert completed(bash, "serve", "mod") == []
    assert completed(bash, "nonsense", "--x") == []
    assert "complete -o default -F _inferd inferd" in bash


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_others_have_all_verbs_and_options_in_quotes_that_end(script, shell):
    text = script(shell)
    for verb in VERBS:
        assert re.search(rf"\b{verb}\b", text)
    for option in options_of_help(help_of("serve")):
        assert (f"'--{option}:" if shell == "zsh" else f" -l {option} ") in text
    for line in text.splitlines():
        assert line.startswith("#") or line.count("'") % 2 == 0


@pytest.mark.parametrize("words", [[], ["tcsh"], ["bash", "zsh"]])
def test_what_is_no_shell_is_refused(capsys, words):
    assert completion.run(words) == 2
    assert "bash, zsh or fish" in capsys.readouterr().err
