"""Each field of config.pbtxt is broken: that is found, and blamed on no other place."""

import pytest
from good import BASES
from mutations import Mutation, all_fields, mutations_of, offset_of

from inferd.check.places import check_paths
from inferd.config.proto import MODEL_CONFIG, config_pool
from inferd.repository.local import Reading

GPUS = Reading(gpu_count=2)


def first_text(files):
    return next(iter(files.values()))


CASES = {base: list(mutations_of(first_text(files))) for base, files in BASES.items()}
WAYS = ("misspelled", "of another type", "too large", "given twice")


def check(repository, files):
    return check_paths([repository(files)], GPUS).findings


@pytest.mark.parametrize("files", BASES.values(), ids=BASES)
def test_in_a_good_repository_there_are_no_errors(repository, files):
    assert {one.level for one in check(repository, files)} <= {"warning"}


def test_each_field_that_there_is_is_broken():
    broken = {one.names for mutations in CASES.values() for one in mutations}
    known = set(all_fields(config_pool().FindMessageTypeByName(MODEL_CONFIG)))
    assert known - broken == set()
    assert sum(map(len, CASES.values())) > 300


def is_blamed(mutation: Mutation, finding, file):
    """Tell whether a finding is about what was broken."""
    if finding.file != file:
        return False
    return mutation.begin <= offset_of(mutation.text, finding.line, finding.column) < mutation.end


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("base", BASES)
def test_a_broken_field_is_found_at_its_place_and_nothing_else_is_blamed(repository, base, way):
    files = dict(BASES[base])
    folder = repository(files)
    file = folder / next(iter(files))
    for mutation in CASES[base]:
        if mutation.what != way:
            continue
        file.write_text(mutation.text)
        findings = check_paths([folder], GPUS).findings
        where = mutation.path, findings
        assert findings, where
        assert all(is_blamed(mutation, one, file) for one in findings), where
        assert {one.level for one in findings} == {"error"}, where
