import pytest

from inferd.cli.help import serve_help
from inferd.cli.main import main


def test_help_is_the_help_of_the_options(capsys):
    assert main(["serve", "models/", "--help"]) == 0
    assert capsys.readouterr().out == serve_help()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["models", "--http-prot=1"], "there is no option --http-prot, did you mean --http-port?"),
        (["models", "--http-port=x"], "--http-port: 'x' is not a whole number"),
        (["models", "--config=/no/such.toml"], "cannot read the options file /no/such.toml: "),
        ([], "name at least one model repository: inferd serve PATH"),
    ],
)
def test_wrong_options_end_with_code_2_and_point_to_the_help(
    capsys, monkeypatch, arguments, complaint
):
    monkeypatch.delenv("INFERD_MODEL_REPOSITORY", raising=False)
    assert main(["serve", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"inferd serve: {complaint}")
    assert error.endswith("See inferd serve --help.\n")
