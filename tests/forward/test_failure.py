import pytest

import inferd.errors
from inferd.backends.worker.failure import Lost, NotFoundFailure, UnknownFailure
from inferd.errors import InferdError, ModelNotFound, Refused, Unavailable, UnknownCall
from inferd.forward.failure import decode_failure, encode_failure, lost

ALL = [
    kind
    for kind in vars(inferd.errors).values()
    if isinstance(kind, type) and issubclass(kind, InferdError) and kind is not Refused
]


@pytest.mark.parametrize("kind", ALL)
def test_an_error_keeps_its_class_and_text(kind):
    found = decode_failure(encode_failure(kind("why, \ud800")))
    assert type(found) is kind
    assert found.message == "why, \\ud800"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (Lost("w"), Unavailable),
        (UnknownFailure("w"), UnknownCall),
        (Refused("X", "w"), InferdError),
    ],
)
def test_one_that_only_its_module_knows_keeps_its_reason(error, kind):
    found = decode_failure(encode_failure(error))
    assert (type(found), found.code, found.message) == (kind, error.code, error.message)


def test_a_reason_that_several_classes_have_is_kept():
    found = decode_failure(encode_failure(NotFoundFailure("w")))
    assert (type(found), found.message) == (ModelNotFound, "w")


def test_what_is_no_class_of_ours_is_refused():
    for name in ("Code", "enum", "Refused", ""):
        with pytest.raises(ValueError, match="an error of class"):
            decode_failure((name, "text"))


def test_a_lost_request_says_where_it_was():
    error = lost(3, "ended")
    assert error.is_lost
    assert str(error) == "process 3 of the server, which had the request, ended; it may have run"
