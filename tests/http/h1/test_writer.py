"""What an HTTP/1.1 connection writes, and when."""

import pytest

from inferd.http.h1.writer import AnswerWriter
from inferd.http.turns import Turns


class Transport:
    """A transport that keeps what it is given; `unsent` is what it says that it holds."""

    def __init__(self, *, has_halves=True):
        self.calls = []
        self.unsent = 0
        self._has_halves = has_halves

    def write(self, data):
        self.calls.append(data)

    def writelines(self, buffers):
        self.calls.extend(buffers)

    def can_write_eof(self):
        return self._has_halves

    def write_eof(self):
        self.calls.append("end")

    def close(self):
        self.calls.append("close")

    def abort(self):
        self.calls.append("abort")

    def get_write_buffer_size(self):
        return self.unsent


class Rounds(Turns):
    """Turns that only count who wants to write."""

    def __init__(self):
        super().__init__()
        self.waiting = []

    def write_soon(self, output):
        self.waiting.append(output)


@pytest.fixture
def writer():
    writer = AnswerWriter(Rounds())
    writer.transport = Transport()
    return writer


def test_small_answers_of_a_round_are_one_write(writer):
    for data in (b"a", b"b", b"c"):
        writer.write(data)
    assert writer.transport.calls == []
    assert writer.turns.waiting == [writer]
    writer.write_pending()
    assert writer.transport.calls == [b"abc"]
    writer.write_pending()
    assert writer.transport.calls == [b"abc"]


def test_a_piece_may_be_a_chunk_and_is_dropped_once_the_client_has_gone(writer):
    writer.write_piece(b"piece")
    writer.write_chunk(b"x" * 17)
    writer.write_pending()
    assert writer.transport.calls == [b"piece11\r\n" + b"x" * 17 + b"\r\n"]
    writer.drop()
    writer.write_piece(b"late")
    writer.write_chunk(b"late")
    assert writer.pending == []


def test_a_large_answer_does_not_overtake(writer):
    writer.write(b"a")
    large = memoryview(bytes(100_000))
    writer.write_now([b"head", large])
    assert writer.transport.calls == [b"a", b"head", large]
    assert writer.transport.calls[2] is large  # uncopied


def test_what_is_pending_is_written_before_the_end(writer):
    writer.write(b"a")
    writer.close()
    assert writer.transport.calls == [b"a", "close"]


def test_what_is_pending_is_lost_with_its_connection(writer):
    writer.write(b"a")
    writer.abort()
    writer.write_pending()
    assert writer.transport.calls == ["abort"]


@pytest.mark.parametrize(
    ("has_halves", "has_more", "calls"),
    [
        (True, False, ["end"]),
        (True, True, ["end"]),
        (False, False, ["close"]),
        (False, True, []),  # its client goes on sending
    ],
)
def test_a_connection_without_halves_is_closed_as_a_whole(writer, has_halves, has_more, calls):
    writer.transport = Transport(has_halves=has_halves)
    writer.end(has_more=has_more)
    assert writer.transport.calls == calls


def test_less_to_send_is_progress_and_more_is_not(writer):
    found = []
    for unsent in (0, 0, 500, 500, 400, 900, 0, 0):
        writer.transport.unsent = unsent
        found.append(writer.has_moved())
    assert found == [False, False, True, False, True, False, True, False]
    assert writer.unsent == 0
