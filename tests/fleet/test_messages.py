"""Messages between the supervisor and its processes, as bytes."""

import pytest

from inferd.fleet.messages import (
    MAX_MESSAGE_BYTES,
    Beat,
    Decide,
    Failure,
    Frames,
    NoMessage,
    Propose,
    ReadySockets,
    framed,
    from_process,
    to_process,
)

FROM = [Beat(), Propose(3, "models", "model/a", b"\0\xff", is_erasing=True)]
TO = [
    Decide(1, "=m", {"2": "why"}, Failure("LoadFailed", "x")),
    ReadySockets({0: "/a", 3: "/b"}, 4),
]


def test_messages_are_the_same_on_the_other_side():
    frames = Frames()
    assert [from_process(body) for one in FROM for body in frames.feed(framed(one))] == FROM
    assert [to_process(body) for one in TO for body in frames.feed(framed(one))] == TO


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_frames_may_arrive_in_pieces_of_any_size(size):
    data = b"".join(map(framed, FROM * 3))
    frames = Frames()
    bodies = [
        body for at in range(0, len(data), size) for body in frames.feed(data[at : at + size])
    ]
    assert [from_process(body) for body in bodies] == FROM * 3


def test_a_frame_that_is_too_long_is_no_message():
    head = (MAX_MESSAGE_BYTES + 1).to_bytes(4, "big")
    with pytest.raises(NoMessage, match="at most"):
        list(Frames().feed(head))


@pytest.mark.parametrize("body", [b"", b"\xc1", b"\x80", b"\x81\xa4type\xa4Nope", b"\x81" * 50])
def test_bytes_that_are_no_message_are_told(body):
    for read in (from_process, to_process):
        with pytest.raises(NoMessage):
            read(body)
