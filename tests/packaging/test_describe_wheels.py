import hashlib

import pytest
from describe_wheels import pinned, statement


@pytest.fixture
def dist(tmp_path):
    """What has been built, and what lies beside it."""
    for name in ("a-1-py3-none-any.whl", "a-1.tar.gz", "sbom.cdx.json"):
        (tmp_path / name).write_text(name)
    return tmp_path


def test_a_statement_names_each_file_by_its_digest(dist):
    made = statement(dist, "c0ffee", "17")
    assert made["_type"] == "https://in-toto.io/Statement/v1"
    assert made["predicateType"] == "https://slsa.dev/provenance/v1"
    assert {one["name"]: one["digest"] for one in made["subject"]} == {
        name: {"sha256": hashlib.sha256(name.encode()).hexdigest()}
        for name in ("a-1-py3-none-any.whl", "a-1.tar.gz")
    }


def test_a_statement_says_from_what_and_with_what(dist):
    built = statement(dist, "c0ffee", "17")["predicate"]["buildDefinition"]
    source, *packages = built["resolvedDependencies"]
    assert source["digest"] == {"gitCommit": "c0ffee"}
    assert built["externalParameters"]["SOURCE_DATE_EPOCH"] == "17"
    assert any(one["uri"].startswith("pkg:pypi/hatchling@") for one in packages)
    assert any(one["uri"].startswith("pkg:pypi/mypy@") for one in packages)


def test_a_statement_says_the_same_each_time(dist):
    assert statement(dist, "c0ffee", "17") == statement(dist, "c0ffee", "17")


def test_of_nothing_nothing_is_said(tmp_path):
    with pytest.raises(SystemExit, match="has neither wheels nor archives"):
        statement(tmp_path, "c0ffee", "17")


def test_whatever_builds_has_one_version():
    """Two versions of a tool, in pyproject.toml and for compiling, would be two builds."""
    names = [one.partition("==")[0] for one in pinned()]
    assert sorted(set(names)) == names
