"""`inferd route`'s options, and what it does without routing."""

import json

import pytest

from inferd.cli.route import HELP, read_words, run
from inferd.cli.verbs import run_verb
from inferd.route.configuration import RouteSettings


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "places.json"
    path.write_text(json.dumps({"places": []}))
    return path


def test_the_help_names_every_option(capsys):
    assert run_verb("route", ["--help"]) == 0
    assert capsys.readouterr().out == HELP
    for name in RouteSettings.__dataclass_fields__:
        assert f"  --{name.replace('_', '-')} " in HELP


def test_the_configuration_is_printed_with_its_reasons(file, capsys):
    assert (
        run(
            [
                f"--places={file}",
                "--print-config",
                "--address=127.0.0.1",
                "--max-places=2",
                "--max-groups=1",
            ]
        )
        == 0
    )
    text = capsys.readouterr().out
    assert "    # A model may take as long as it likes" in text
    assert "    bind 127.0.0.1:8000\n    bind 127.0.0.1:8001\n" in text
    assert "server p2 " in text
    assert "server p3 " not in text


def test_one_port_is_bound_once(file, capsys):
    run([f"--places={file}", "--print-config", "--http-port=9000", "--grpc-port=9000"])
    text = capsys.readouterr().out
    assert text.count(":9000\n") == 1


def test_the_configuration_and_the_file_are_checked(file, capsys):
    assert run([f"--places={file}", "--check"]) == 0
    assert "accepts the configuration" in capsys.readouterr().out
    file.write_text("{")
    assert run([f"--places={file}", "--check"]) == 2
    assert f"{file} is not valid JSON" in capsys.readouterr().err


def test_tls_is_in_the_configuration(file, certificates, capsys):
    words = [f"--places={file}", f"--tls-cert={certificates / 'server.pem'}", "--check"]
    words.append(f"--tls-key={certificates / 'server.key'}")
    words.append(f"--tls-client-ca={certificates / 'ca.pem'}")
    assert run(words) == 0
    words[1] = f"--tls-cert={file}"
    assert run(words) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "name one source of places: --places or --kubernetes or --ray"),
        (["--places", "a", "--kubernetes", "b"], "name one source of places"),
        (["--places"], "--places needs a value"),
        (["--nothing"], "there is no option --nothing"),
        (["--places=/nowhere"], "cannot read the places in /nowhere: No such file"),
        (["--http-port=x"], "--http-port is 'x', expected a number from 0 to 65535"),
        (["--max-places=0"], "--max-places is '0', expected a number from 1 to 1000"),
        (["--max-groups=101"], "--max-groups is '101', expected a number from 1 to 100"),
        (["--tls-key=k"], "--tls-key and --tls-client-ca need --tls-cert"),
        (["--kubernetes=a/b/c"], "--kubernetes is 'a/b/c', expected SERVICE or NAMESPACE/SERVICE"),
        (["--kubernetes=a/b"], "--kubernetes works in a pod"),
    ],
)
def test_wrong_options_are_named(words, message, capsys, monkeypatch):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert run(words) == 2
    assert capsys.readouterr().err.startswith(f"inferd route: {message}")


def test_values_may_follow_in_both_ways():
    assert read_words(["--places", "f", "--http-port=1", "--check"]) == {
        "--places": "f",
        "--http-port": "1",
        "--check": "",
    }
