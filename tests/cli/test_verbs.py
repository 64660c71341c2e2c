"""The verbs: each has a module that runs it."""

import pytest

from inferd.cli.verbs import VERBS, run_verb


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_prints_its_help(verb, capsys):
    assert run_verb(verb, ["--help"]) == 0
    assert f"inferd {verb}" in capsys.readouterr().out
