"""A release is made in a clone of its own: nothing else of the repository is touched."""

import datetime
import re
import subprocess
from pathlib import Path

import pytest
from make_release import WRITTEN, NoRelease, current_version, dated, release

import inferd

ROOT = Path(__file__).parents[2]
DAY = datetime.date(2027, 2, 3)
CHANGES = """# Changelog

## Unreleased

### Fixed

- a point

## 1.0.0 (2026-01-01)

- older
"""
SAID_ELSEWHERE = (
    "CHANGELOG.md",
    "bench/results/",
    "docs/decisions/",
    "examples/",
    "tests/packaging/",
)
"""What may say a version for another reason than that it is this one's."""


def git(folder, *words):
    command = ["git", "-c", "user.name=n", "-c", "user.email=e@example.com", *words]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """A repository with the files that say the version, and a changelog."""
    for name, value in (("NAME", "n"), ("EMAIL", "e@example.com")):
        monkeypatch.setenv(f"GIT_AUTHOR_{name}", value)
        monkeypatch.setenv(f"GIT_COMMITTER_{name}", value)
    for pattern in WRITTEN:
        for path in ROOT.glob(pattern):
            copy = tmp_path / path.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())
    (tmp_path / "CHANGELOG.md").write_text(CHANGES)
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "begin")
    return tmp_path


def test_a_release_is_a_commit_and_a_tag(clone):
    old = current_version(clone)
    release(clone, "9.8.7", DAY, is_dry=False)
    assert git(clone, "log", "-1", "--format=%s") == "chore: release 9.8.7\n"
    assert git(clone, "describe") == "v9.8.7\n"
    assert git(clone, "status", "--porcelain") == ""
    assert current_version(clone) == "9.8.7"
    assert "## Unreleased\n\n## 9.8.7 (2027-02-03)\n" in (clone / "CHANGELOG.md").read_text()
    left = git(clone, "grep", "-nE", rf"(^|[^0-9.v]){re.escape(old)}([^0-9.]|$)|9\.8\.7")
    assert all("9.8.7" in line for line in left.splitlines())


def test_a_dry_run_says_the_same_and_changes_nothing(clone):
    before = git(clone, "log", "--format=%H")
    said = release(clone, "9.8.7", DAY, is_dry=True)
    assert (git(clone, "log", "--format=%H"), git(clone, "status", "--porcelain")) == (before, "")
    assert git(clone, "tag") == ""
    assert said == release(clone, "9.8.7", DAY, is_dry=False)
    assert "src/inferd/__init__.py" in said[0] and said[-1].endswith("tag v9.8.7")


@pytest.mark.parametrize("version", ["1.2", "v1.2.3", "1.2.3.4", "1.2.3-rc1", "next"])
def test_what_is_no_version_is_refused(clone, version):
    with pytest.raises(NoRelease, match="is no version"):
        release(clone, version, DAY, is_dry=False)


def test_changes_that_are_not_committed_are_refused(clone):
    (clone / "left").touch()
    with pytest.raises(NoRelease, match=r"not committed:\n\?\? left"):
        release(clone, "9.8.7", DAY, is_dry=False)


def test_a_version_is_released_once_and_never_after_a_newer_one(clone):
    release(clone, "9.8.7rc1", DAY, is_dry=False)
    (clone / "CHANGELOG.md").write_text(CHANGES)
    git(clone, "commit", "-qam", "more")
    with pytest.raises(NoRelease, match=r"a tag v9\.8\.7rc1 already"):
        release(clone, "9.8.7rc1", DAY, is_dry=False)
    with pytest.raises(NoRelease, match=r"9\.8\.6 is older than the newest tag"):
        release(clone, "9.8.6", DAY, is_dry=False)
    release(clone, "9.8.7", DAY, is_dry=False)


@pytest.mark.parametrize(
    "text", ["# Changelog\n", "## Unreleased\n\n### Fixed\n\n## 1.0.0\n\n- a\n"]
)
def test_a_changelog_with_nothing_to_say_is_refused(text):
    with pytest.raises(NoRelease, match="has nothing under"):
        dated(text, "1.0.1", DAY)


def test_each_file_that_says_the_version_is_known():
    """A file that is not is left behind by the next release."""
    known = {path for pattern in WRITTEN for path in ROOT.glob(pattern)}
    word = re.compile(rf"(inferd:?|[Vv]ersion\W{{1,4}}){re.escape(inferd.__version__)}(?![\d.]*\d)")
    names = git(ROOT, "ls-files", "--cached", "--others", "--exclude-standard").splitlines()
    for name in names:
        path = ROOT / name
        if path in known or name.startswith(SAID_ELSEWHERE) or not path.is_file():
            continue
        assert not word.search(path.read_text(errors="replace")), name
