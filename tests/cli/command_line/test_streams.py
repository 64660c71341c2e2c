"""Commands whose standard streams are closed, full or in another encoding."""

import json
import os
import subprocess
import sys

import pytest


def in_shell(line, **environment):
    """Run a line of the shell in which $inferd is the command."""
    command = f"{sys.executable} -m inferd"
    return subprocess.run(
        ["bash", "-c", line.replace("$inferd", command)],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("words", ["--help", "completion bash", "check --help"])
def test_a_full_disk_behind_the_output_is_told_in_words(words):
    ended = in_shell(f"$inferd {words} > /dev/full")
    verb = words.split()[0]
    said = f"inferd {verb}: cannot write to standard output: No space left on device\n"
    assert (ended.returncode, ended.stderr) == (1, said)


@pytest.mark.parametrize("words", ["--help", "completion bash", "check /nowhere", "status"])
@pytest.mark.parametrize("stream", ["0<&-", "1>&-", "2>&-"])
def test_a_closed_stream_is_as_one_that_leads_nowhere(words, stream):
    elsewhere = stream.replace("&-", "/dev/null")
    closed, nowhere = (in_shell(f"$inferd {words} {one}") for one in (stream, elsewhere))
    assert closed.returncode == nowhere.returncode
    assert (closed.stdout, closed.stderr) == (nowhere.stdout, nowhere.stderr)


def test_what_the_encoding_of_the_output_lacks_is_written_as_json_does(tmp_path):
    model = tmp_path / "日😀"
    (model / "1").mkdir(parents=True)
    (model / "config.pbtxt").write_text("nothing: 1")
    ended = in_shell(f"$inferd check {model} --json", PYTHONIOENCODING="ascii")
    assert ended.returncode == 1 and "\\u65e5\\ud83d\\ude00" in ended.stdout, ended.stderr
    assert str(model) in json.dumps(json.loads(ended.stdout), ensure_ascii=False)
