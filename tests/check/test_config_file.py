"""Everything that is wrong with the text of a config.pbtxt."""

from pathlib import Path

from inferd.check.config_file import read_config

FILE = Path("models/m/config.pbtxt")

BROKEN = """\
name: "m"
backendd: "x"
max_batch_size: "8"
input { name: "x" data_type: TYPE_FLOAT dims: [1] }
input { name: "y" dims: [1] }
output { name: "z" data_type: TYPE_FP32 dims: [1.5] }
dynamic_batching { max_queue_delay_microseconds: -3 preserve_ordering: 7 }
instance_group { kind: 9 }
"""

FOUND = [
    ("syntax", 2, 1, "ModelConfig has no field 'backendd'; did you mean 'backend'?"),
    ("syntax", 3, 17, 'max_batch_size: expected a whole number, got "8"'),
    ("syntax", 4, 30, "data_type: 'TYPE_FLOAT' is no DataType, expected one of TYPE_INVALID, "),
    ("config", 5, 1, "input 'y' has no data_type"),
    ("syntax", 6, 48, "dims: expected a whole number, got 1.5"),
    ("syntax", 7, 50, "max_queue_delay_microseconds: -3 is out of range"),
    ("syntax", 7, 72, "preserve_ordering: expected true or false, got 7"),
    ("config", 8, 18, "kind is 9, expected one of KIND_AUTO, KIND_GPU, KIND_CPU, KIND_MODEL"),
]


def test_each_error_of_a_text_is_found_at_its_place():
    file, findings = read_config(FILE, BROKEN, "m")
    assert file.config is None
    found = sorted((one.line, one.column, one.rule, one.text) for one in findings)
    assert len(found) == len(FOUND)
    for (line, column, rule, text), expected in zip(found, FOUND, strict=True):
        assert (rule, line, column) == expected[:3], text
        assert text.startswith(expected[3])
    assert {one.file for one in findings} == {FILE}
    assert {one.model for one in findings} == {"m"}


def test_a_sound_text_is_read_and_its_places_are_known():
    file, findings = read_config(FILE, 'name: "m"\n# more\nmax_batch_size: 8\n', "m")
    assert findings == []
    assert file.config.max_batch_size == 8
    assert file.positions.of(("max_batch_size",)) == (3, 1)


def test_a_block_without_an_end_is_blamed_not_what_follows_it():
    _, findings = read_config(FILE, 'name: "m"\ninput { name: "x"\nmax_batch_size: "8"', "m")
    [one] = findings
    assert (one.line, one.column) == (2, 1)
    assert one.text.startswith("this block has no end, so that line 3 is read as a part of it: ")


def test_what_is_wrong_before_a_block_without_an_end_is_told_itself():
    _, findings = read_config(FILE, 'nam: "m"\ninput { name: "x"\n', "m")
    assert [(one.line, one.column) for one in findings] == [(1, 1)]


def test_of_very_many_errors_twenty_are_told():
    _, findings = read_config(FILE, "max_batch: 1\n" * 200, "m")
    assert [one.line for one in findings] == list(range(1, 21))


def test_a_very_long_text_is_read_once():
    _, findings = read_config(FILE, "max_batch: 1\n" * 25_000, "m")
    assert [one.line for one in findings] == [1]
