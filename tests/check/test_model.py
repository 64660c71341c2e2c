"""What is found in one model."""

from inferd.check.model import ModelCheck
from inferd.repository.local import find_model

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
