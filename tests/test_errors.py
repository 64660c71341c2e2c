"""What the texts of errors give away."""

import pytest

from inferd.errors import MAX_FOREIGN, InvalidRequest, foreign_text


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[Errno 2] No such file or directory: '/srv/models/m/1/w.bin'", "directory: 'w.bin'"),
        ("cannot open /srv/models/m/1/w.bin, sorry", "cannot open w.bin, sorry"),
        ("see file:///srv/models/w.bin", "see w.bin"),
        ("(/srv/models/)", "()"),
        ("see https://example.org/a/b and 3/4 of a/b/c", "see https://example.org/a/b and 3/4"),
    ],
)
def test_paths_of_the_server_are_not_told(text, told):
    found = foreign_text(OSError(text))
    assert found.startswith("OSError: ")
    assert told in found
    assert "/srv" not in found


def test_addresses_in_the_memory_of_the_server_are_not_told():
    """XGBoost puts the stack of C++ behind the text of an error."""
    stack = "\nStack trace:\n  [bt] (0) libxgboost.so(+0x11031e) [0x7f3f95f1031e]\n\n"
    assert foreign_text(ValueError(f"no tree{stack}")) == "ValueError: no tree"
    assert foreign_text(ValueError("Stack trace:\nof a model")).endswith("Stack trace:\nof a model")


def test_long_texts_are_cut_in_the_middle():
    found = foreign_text(ValueError("a" * 10**6 + "z"))
    assert found.startswith("ValueError: aaa") and found.endswith("az")
    assert len(found) < MAX_FOREIGN + 10


class Mute(Exception):
    """Cannot say what is wrong."""

    def __str__(self):
        raise RuntimeError


def test_an_exception_that_has_no_text_is_told_by_its_type():
    assert foreign_text(Mute()) == "Mute"


@pytest.mark.parametrize(
    ("text", "told"), [("half \udc80", "half \\udc80"), ("é", "é"), ("whole", "whole")]
)
def test_half_a_character_is_told_in_a_way_that_every_protocol_takes(text, told):
    assert InvalidRequest(text).message == told
