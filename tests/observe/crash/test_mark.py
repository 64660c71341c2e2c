"""Marks of what runs, in a memory that the test reads."""

from inferd.core.request import InferRequest
from inferd.observe.crash.mark import ID_BYTES, RUNNING, ModelMarks, RunMark, RunMarks


def marked(*ids):
    memory = bytearray(300)
    return RunMark(memory, 7, 100).with_ids([InferRequest("m", id=one) for one in ids]), bytes(
        memory
    )


def test_ids_are_written_before_their_mark_is_returned():
    mark, memory = marked("a", "", "bc")
    assert mark == RUNNING + 5
    assert memory[100:105] == b"a, bc"
    assert not any(memory[:100] + memory[105:])


def test_a_run_without_ids_has_the_plain_mark():
    assert marked() == (RUNNING, bytes(300))


def test_long_ids_are_cut():
    mark, memory = marked("x" * 1000)
    assert mark == RUNNING + ID_BYTES < 256
    assert memory[100 : 100 + ID_BYTES] == b"x" * ID_BYTES
    assert not any(memory[100 + ID_BYTES :])


def test_ids_of_changing_length_are_each_written_where_they_belong():
    memory = bytearray(300)
    mark = RunMark(memory, 0, 100)
    for id_ in ("abc", "xyz", "", "x", "abcd"):
        size = mark.with_ids([InferRequest("m", id=id_)]) - RUNNING
        assert memory[100 : 100 + size] == id_.encode()


def test_ids_that_no_encoding_has_are_written_all_the_same():
    mark, memory = marked("é\ud800")
    assert memory[100 : 100 + mark - RUNNING] == "é?".encode()


def test_without_a_record_marks_mean_nothing():
    marks = ModelMarks(RunMarks(), "m", "1")
    one, other = marks.claim(), marks.claim(3, is_load=True)
    one.memory[one.place] = one.with_ids([InferRequest("m", id="x" * 200)])
    assert other.memory[other.place] == 0
    marks.release(one)
