"""SETTINGS values, and the layout of frames (RFC 9113, sections 4.1 and 6.5.2)."""

import pytest

from inferd.http.h2.frames import (
    ConnectionFault,
    ErrorCode,
    Setting,
    decode_settings,
    encode_goaway,
    encode_rst_stream,
    encode_settings,
    encode_window_update,
)


def test_frames_are_laid_out_as_the_rfc_draws_them():
    assert encode_rst_stream(5, ErrorCode.CANCEL) == bytes.fromhex("000004 03 00 00000005 00000008")
    assert encode_window_update(0, 7) == bytes.fromhex("000004 08 00 00000000 00000007")
    assert encode_goaway(3, ErrorCode.NO_ERROR, "x") == bytes.fromhex(
        "000009 07 00 00000000 00000003 00000000 78"
    )


def test_settings_come_back_in_their_order():
    wanted = {Setting.MAX_FRAME_SIZE: 2**24 - 1, Setting.ENABLE_PUSH: 1, Setting.MAX_FRAME_SIZE: 1}
    payload = encode_settings({Setting.ENABLE_PUSH: 0, Setting.MAX_FRAME_SIZE: 16384})[9:]
    assert decode_settings(payload) == [(2, 0), (5, 16384)]
    assert len(encode_settings(wanted)) == 9 + 12


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        (Setting.ENABLE_PUSH, 2, ErrorCode.PROTOCOL_ERROR),
        (Setting.INITIAL_WINDOW_SIZE, 2**31, ErrorCode.FLOW_CONTROL_ERROR),
        (Setting.MAX_FRAME_SIZE, 16383, ErrorCode.PROTOCOL_ERROR),
        (Setting.MAX_FRAME_SIZE, 2**24, ErrorCode.PROTOCOL_ERROR),
    ],
)
def test_values_out_of_range_are_faults(name, value, code):
    with pytest.raises(ConnectionFault) as caught:
        decode_settings(encode_settings({name: value})[9:])
    assert caught.value.code is code


def test_a_torn_setting_is_a_frame_size_error():
    with pytest.raises(ConnectionFault) as caught:
        decode_settings(b"12345")
    assert caught.value.code is ErrorCode.FRAME_SIZE_ERROR
