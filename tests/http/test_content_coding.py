"""Which coding an answer gets."""

import pytest

from inferd.http.coding import choose_coding


@pytest.mark.parametrize(
    ("accept", "coding"),
    [
        (b"gzip", b"gzip"),
        (b"deflate", b"deflate"),
        (b"identity", b"identity"),
        (b"gzip, deflate", b"gzip"),
        (b"deflate, gzip", b"deflate"),
        (b"gzip, deflate, br", b"gzip"),
        (b"br, *", b"identity"),
        (b"gzip;q=0.5, deflate;q=0.8", b"deflate"),
        (b"gzip ; q=0.5,deflate; Q=0.5", b"gzip"),
        (b"gzip;q=0, deflate", b"deflate"),
        (b"gzip;q=0", b"identity"),
        (b"gzip;q=0.000", b"identity"),
        (b"identity, gzip", b"identity"),
        (b"identity;q=0.5, gzip", b"gzip"),
        (b"identity;q=1, gzip;q=0.9", b"identity"),
        (b"GZip", b"gzip"),
        (b"x-gzip", b"gzip"),
        (b"X-GZIP;q=0.5, Deflate", b"deflate"),
        (b"gzip;level=9", b"gzip"),
        (b"gzip;q=much", b"identity"),
        (b"gzip;q=nan", b"identity"),
        (b"gzip;q=-1", b"identity"),
        (b",, ,", b"identity"),
        (b"\xff", b"identity"),
    ],
)
def test_the_preferred_coding_is_chosen(accept, coding):
    assert choose_coding(accept) == coding
