"""What is found in one model."""

from pathlib import Path

from inferd.check.model import ModelCheck, read_config
from inferd.repository.local import find_model

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


SOUND = """\
name: "m"
backend: "identity"
max_batch_size: 8
input { name: "x" data_type: TYPE_FP32 dims: [1] }
output { name: "y" data_type: TYPE_FP32 dims: [1] }
"""


def check(repository, text, **files):
    folder = repository({"m/config.pbtxt": text, "m/1/a.txt": "", **files})
    return ModelCheck(find_model(folder / "m"))


def test_in_a_sound_model_nothing_is_found(repository):
    checked = check(repository, SOUND)
    assert checked.findings == []
    assert not checked.is_refused
    assert checked.config.max_batch_size == 8


def test_everything_that_the_rules_say_is_found_not_only_the_first(repository):
    text = SOUND.replace('"m"', '"n"').replace("dims: [1]", "dims: [0]").replace("8", "-8")
    checked = check(repository, text)
    assert checked.is_refused
    found = {(one.line, one.column): one.text for one in checked.findings}
    assert found == {
        (1, 1): "name is 'n', expected 'm', the name of its folder",
        (3, 1): "max_batch_size is -8, expected 0 or more",
        (4, 40): "input 'x' has dim 0, expected 1 or more, or -1 for one that varies",
        (5, 41): "output 'y' has dim 0, expected 1 or more, or -1 for one that varies",
    }
    assert {one.rule for one in checked.findings} == {"config"}


def test_what_the_server_says_is_said_once(repository):
    checked = check(repository, SOUND + "dynamic_batching { preferred_batch_size: [9] }")
    assert checked.model.error.message.endswith(checked.findings[0].text)
    assert len(checked.findings) == 1


def test_a_text_that_cannot_be_read_is_all_that_is_told(repository):
    checked = check(repository, SOUND + "\nmax_batch: 1\n")
    assert [(one.rule, one.line) for one in checked.findings] == [("syntax", 7)]


def test_a_text_that_is_no_text_is_told_with_its_place(repository):
    checked = check(repository, SOUND.encode() + b"\nplatform: \xff")
    assert [(one.rule, one.line, one.column) for one in checked.findings] == [("syntax", 7, 11)]


def test_what_is_about_the_folder_is_told_of_the_folder(repository):
    folder = repository({"m/config.pbtxt": SOUND})
    [one] = ModelCheck(find_model(folder / "m")).findings
    assert (one.rule, one.file, one.line) == ("layout", folder / "m", 0)
    assert one.text == "model 'm' has no version folder, such as m/1"
