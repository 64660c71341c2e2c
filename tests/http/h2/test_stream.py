"""The state of a stream, and what a handler that does nothing does."""

from inferd.http.h2.request import RequestHead
from inferd.http.h2.stream import STREAM_WINDOW, H2Stream, StreamHandler

HEAD = RequestHead(b"POST", b"/", [], 0)


def test_a_new_stream_has_the_peers_window_and_ours():
    stream = H2Stream(3, HEAD, 1000)
    assert (stream.id, stream.head) == (3, HEAD)
    assert (stream.receive_window, stream.send_window) == (STREAM_WINDOW, 1000)
    assert not stream.is_answered


def test_a_stream_is_answered_when_the_end_has_been_given_to_the_sender():
    for change in ({"is_local_done": True}, {"ending": b""}, {"ending": b"trailers"}):
        stream = H2Stream(1, HEAD, 0)
        for name, value in change.items():
            setattr(stream, name, value)
        assert stream.is_answered


def test_a_handler_without_methods_of_its_own_ignores_all():
    handler = StreamHandler(H2Stream(1, HEAD, 0))
    handler.on_open()
    handler.on_data(b"x", 0, 1, ends=False)
    handler.on_data_run(b"x", [0], 1)
    handler.on_filled(1, ends=True)
    handler.on_end()
    handler.on_drained()
    handler.on_reset()
    assert handler.room() is None
    assert not handler.takes_runs
