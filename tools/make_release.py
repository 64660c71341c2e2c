"""Makes a release of what is committed: python tools/make_release.py VERSION [--dry-run]

Checks that nothing is left to commit, that the version is a new one and that CHANGELOG.md has
something to say of it; writes the version wherever it stands, dates the CHANGELOG, commits and
tags. Nothing is pushed: that is for whoever looked at it.
"""

import argparse
import datetime
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = "src/inferd/__init__.py"
WRITTEN = (
    SOURCE,
    "src/inferd/wire/openapi.json",
    "Makefile",
    "deploy/helm/inferd/Chart.yaml",
    "deploy/image/*",
    "deploy/kubernetes/**/*.yaml",
    "docs/guide/install.md",
    "docs/guide/scaling.md",
    "docs/guide/workers.md",
    "tests/browser/test_views.py",
    "tests/browser/fake_site.py",
)
"""Where the version stands; tests/packaging/test_make_release.py finds what is missing here."""

CHANGELOG = "CHANGELOG.md"
UNRELEASED = "## Unreleased\n"
_VERSION = re.compile(r"\d+\.\d+\.\d+((a|b|rc)\d+)?")
_SAID = re.compile(r'^__version__ = "(.+)"$', re.MULTILINE)


class NoRelease(Exception):
    """Why nothing was done."""


def current_version(root: Path) -> str:
    """Return the version that the sources say."""
    found = _SAID.search((root / SOURCE).read_text())
    if found is None:
        msg = f"{SOURCE} says no version"
        raise NoRelease(msg)
    return found[1]


def places(root: Path, version: str) -> Iterator[tuple[Path, str]]:
    """Yield the files that say `version`, with their text."""
    for pattern in WRITTEN:
        for path in sorted(root.glob(pattern)):
            text = path.read_text()
            if _word(version).search(text):
                yield path, text


def _word(version: str) -> re.Pattern[str]:
    """Return what finds `version`, and no longer number that it is a part of."""
    return re.compile(rf"(?<![\d.v]){re.escape(version)}(?![\d.]*\d)")


def dated(changelog: str, version: str, day: datetime.date) -> str:
    """Return the changelog with what is unreleased under `version`. Raises NoRelease if nothing."""
    before, heading, after = changelog.partition(UNRELEASED)
    entries, following, rest = after.partition("\n## ")
    if not heading or not re.search(r"^- ", entries, re.MULTILINE):
        msg = f"{CHANGELOG} has nothing under '{UNRELEASED.strip()}'"
        raise NoRelease(msg)
    return f"{before}{heading}\n## {version} ({day.isoformat()})\n{entries}{following}{rest}"


def release(root: Path, version: str, day: datetime.date, *, is_dry: bool) -> list[str]:
    """Make the release, or only check that it could be; return what was, or would be, done."""
    _check(root, version)
    old = current_version(root)
    changelog = dated((root / CHANGELOG).read_text(), version, day)
    texts = {path: _word(old).sub(version, text) for path, text in places(root, old)}
    texts[root / CHANGELOG] = changelog
    done = [f"{path.relative_to(root)}: {old} becomes {version}" for path in texts]
    done[-1] = f"{CHANGELOG}: what is unreleased becomes {version} of {day.isoformat()}"
    done.append(f"commit 'chore: release {version}', tag v{version}")
    if is_dry:
        return done
    for path, text in texts.items():
        path.write_text(text)
    _git(root, "commit", "-aqm", f"chore: release {version}")
    _git(root, "tag", "-am", f"inferd {version}", f"v{version}")
    return done


def _check(root: Path, version: str) -> None:
    if not _VERSION.fullmatch(version):
        msg = f"'{version}' is no version such as 1.2.3 or 1.2.3rc1"
        raise NoRelease(msg)
    if changed := _git(root, "status", "--porcelain"):
        msg = f"there are changes that are not committed:\n{changed}"
        raise NoRelease(msg)
    tags = _git(root, "tag", "--list", "v*").split()
    if f"v{version}" in tags:
        msg = f"there is a tag v{version} already"
        raise NoRelease(msg)
    newest = max((_number(tag[1:]) for tag in tags if _VERSION.fullmatch(tag[1:])), default=())
    if newest and _number(version) < newest:
        msg = f"{version} is older than the newest tag, v{'.'.join(map(str, newest[:3]))}"
        raise NoRelease(msg)


def _number(version: str) -> tuple[int, ...]:
    """Return what versions are ordered by: a candidate comes before its release."""
    major, minor, patch, *candidate = map(int, re.findall(r"\d+", version))
    stage = next((place for place, one in enumerate(("a", "b", "rc")) if one in version), 3)
    return (major, minor, patch, stage, *candidate)


def _git(root: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=root, check=True, capture_output=True, text=True)
    return done.stdout


def main() -> int:
    """Release; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("version")
    parser.add_argument("--dry-run", action="store_true", help="say what would be done")
    given = parser.parse_args()
    today = datetime.datetime.now(datetime.UTC).date()
    try:
        done = release(ROOT, given.version, today, is_dry=given.dry_run)
    except NoRelease as error:
        print(f"no release: {error}", file=sys.stderr)
        return 1
    print(*done, sep="\n")
    if not given.dry_run:
        print(f"Look at it, then: git push origin HEAD v{given.version}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
