"""Bodies of changes: long ones lie in files, and go with the change."""

import pytest

from inferd.fleet.bodies import LONG_BYTES, discard, packed, unpacked


@pytest.mark.parametrize("size", [0, 1, LONG_BYTES, LONG_BYTES + 1])
def test_what_is_packed_is_unpacked(tmp_path, size):
    body = bytes(range(256)) * (size // 256 + 1)
    stand_in = packed(body[:size], tmp_path)
    assert unpacked(stand_in) == body[:size]
    assert len(list(tmp_path.iterdir())) == (size > LONG_BYTES)
    assert len(stand_in) <= LONG_BYTES + 1
    discard(stand_in)
    assert list(tmp_path.iterdir()) == []


def test_what_is_gone_already_may_be_discarded(tmp_path):
    stand_in = packed(bytes(LONG_BYTES + 1), tmp_path)
    discard(stand_in)
    discard(stand_in)
    with pytest.raises(OSError, match="change-"):
        unpacked(stand_in)


def test_a_body_that_looks_like_a_file_is_none(tmp_path):
    assert unpacked(packed(b"@/etc/passwd", tmp_path)) == b"@/etc/passwd"
