"""Field blocks: their frames, and HPACK in them (RFC 9113 §4.3, §6.10, §10.5.1; RFC 7541)."""

import hpack
import pytest
from hpack.huffman_constants import REQUEST_CODES, REQUEST_CODES_LENGTH
from raw_http2 import (
    CHECK,
    NOTHING,
    PADDED,
    Error,
    Setting,
    Type,
    block,
    call,
    continuation,
    data,
    frame,
    headers,
    integer,
    literal,
    pieces,
    ping,
    point,
    request,
    settings,
    string,
)

UNKNOWN = "/no.such.Service/Method"
BEFORE = literal(":method", "POST") + literal(":scheme", "http")
BEFORE += literal(":authority", "localhost")
AFTER = literal("te", "trailers") + literal("content-type", "application/grpc")
NEWEST = b"\xbe"
"""The field at index 62: the newest entry of the dynamic table."""
EMPTIED = b"\x20"
FULL_SIZE = integer(4096, 5, 0x20)


def with_path(path_field):
    """Return a block whose :path is the given representation."""
    return BEFORE + path_field + AFTER


def inserted(path):
    """Return :path as a literal that is added to the table."""
    return b"\x44" + string(path)


def ask(peer, stream, fields):
    peer.send(headers(stream, fields), data(stream, NOTHING, end=True))
    return peer.answer(stream)


# --- HEADERS and CONTINUATION (§4.3, §6.10) -----------------------------------------------------


@point("RFC 9113 §6.10", "MUST", "nothing may come between HEADERS and its CONTINUATION")
@pytest.mark.parametrize(
    "between",
    [
        ping(),
        settings(),
        data(1, NOTHING),
        data(3, NOTHING),
        headers(5, block(request())),
        continuation(3, b""),
        frame(Type.WINDOW_UPDATE, 0, 0, b"\0\0\0\1"),
        frame(Type.RST_STREAM, 0, 1, bytes(4)),
        frame(0x42, 0, 1, b"unknown"),
    ],
    ids=["PING", "SETTINGS", "DATA", "DATA elsewhere", "HEADERS", "CONTINUATION elsewhere",
         "WINDOW_UPDATE", "RST_STREAM", "unknown type"],
)  # fmt: skip
def test_a_frame_within_a_field_block_is_a_protocol_error(peer, between):
    peer.send(headers(3, block(request())))
    peer.send(headers(5, block(request()), whole=False), between)
    peer.expect_goaway(Error.PROTOCOL_ERROR)


@point("RFC 9113 §6.10", "MUST", "CONTINUATION without an open field block is a PROTOCOL_ERROR")
def test_a_continuation_of_nothing_is_a_protocol_error(peer):
    peer.send(headers(1, block(request())), continuation(1, block([("x-more", "1")])))
    peer.expect_goaway(Error.PROTOCOL_ERROR)


@point("RFC 9113 §6.10", "MUST", "CONTINUATION after DATA is a PROTOCOL_ERROR")
def test_a_continuation_after_data_is_a_protocol_error(peer):
    peer.send(headers(1, block(request())), data(1, NOTHING), continuation(1, b""))
    peer.expect_goaway(Error.PROTOCOL_ERROR)


@point("RFC 9113 §4.3", "MUST", "a field block may be cut anywhere, also within a field")
@pytest.mark.parametrize("size", [25, 40, 1000])
def test_a_field_block_may_be_cut_anywhere(peer, size):
    parts = pieces(block(request()), size)
    if len(parts) == 1:
        parts = [*parts, b""]
    peer.send(headers(1, parts[0], whole=False))
    for part in parts[1:-1]:
        peer.send(continuation(1, part, whole=False))
    peer.send(continuation(1, parts[-1]), data(1, NOTHING, end=True))
    peer.expect_ok(1)


@point("RFC 9113 §6.10", "MUST", "END_STREAM of HEADERS counts when its CONTINUATIONs are done")
def test_the_end_of_the_stream_waits_for_the_block(peer):
    fields = block(request("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"))
    peer.send(headers(1, fields[:10], end=True, whole=False), continuation(1, fields[10:]))
    peer.expect_ok(1)


@point("RFC 9113 §6.2", "MUST", "padding of HEADERS is not part of the block that goes on")
def test_padded_headers_go_on_in_a_continuation(peer):
    fields = block(request())
    padded = b"\x05" + fields[:10] + bytes(5)
    peer.send(headers(1, padded, whole=False, flags=PADDED), continuation(1, fields[10:]))
    peer.send(data(1, NOTHING, end=True))
    peer.expect_ok(1)


@point("RFC 9113 §4.3", "MUST", "a block that ends within a field is a COMPRESSION_ERROR")
@pytest.mark.parametrize(
    "cut", [b"\x40", b"\x40\x03ab", b"\x00\x01a", b"\x00\x01a\x05abc", b"\x7f", b"\xff\x80"]
)
def test_a_cut_off_field_is_a_compression_error(peer, cut):
    peer.send(headers(1, block(request()) + cut))
    peer.expect_goaway(Error.COMPRESSION_ERROR)


@point("RFC 9113 §4.3", "MUST", "blocks of malformed requests still change the table")
def test_the_block_of_a_malformed_request_changes_the_table(peer):
    peer.send(headers(1, literal("Wrong", "1") + with_path(inserted(CHECK)), end=True))
    peer.expect_malformed(1)
    assert ask(peer, 3, with_path(NEWEST)).status == 0


@point("RFC 9113 §4.3", "MUST", "trailers still change the table")
def test_trailers_change_the_table(peer):
    peer.send(headers(1, block(request())), data(1, NOTHING))
    peer.send(headers(1, literal("te", "trailers", first=0x40), end=True))
    peer.answer(1)
    assert ask(peer, 3, block(request(te=None)) + NEWEST).status == 0


# --- representations (RFC 7541 §6) --------------------------------------------------------------


@point("RFC 7541 §6", "MUST", "every representation of a field is understood")
@pytest.mark.parametrize(
    "fields",
    [
        b"\x83\x86" + inserted(CHECK) + AFTER,
        BEFORE + literal(":path", CHECK, first=0x10) + AFTER,
        BEFORE + b"\x04" + string(CHECK) + AFTER,
        BEFORE + b"\x14" + string(CHECK) + AFTER,
        hpack.Encoder().encode(request(), huffman=True),
        hpack.Encoder().encode(request(), huffman=False),
        BEFORE + b"\x44" + string(CHECK) + literal("te", "trailers") + b"\x0f\x10"
        + string("application/grpc"),
    ],
    ids=["indexed", "never", "name indexed", "never, name indexed", "huffman", "plain",
         "name index 31"],
)  # fmt: skip
def test_every_representation_is_understood(peer, fields):
    assert ask(peer, 1, fields).status == 0


@point("RFC 7541 §2.3.3", "MUST", "an index between the tables and beyond them is an error")
@pytest.mark.parametrize("index", [62, 63, 127, 1000, 2**20])
def test_an_index_beyond_the_tables_is_a_compression_error(peer, index):
    peer.send(headers(1, BEFORE + integer(index, 7, 0x80) + AFTER))
    peer.expect_goaway(Error.COMPRESSION_ERROR)


@point("RFC 7541 §6.1", "MUST", "index 0 is an error")
def test_index_0_is_a_compression_error(peer):
    peer.send(headers(1, block(request()) + b"\x80"))
    peer.expect_goaway(Error.COMPRESSION_ERROR)


@point("RFC 7541 §6.2", "MUST", "a name index beyond the tables is an error")
@pytest.mark.parametrize(("bits", "first"), [(6, 0x40), (4, 0x00), (4, 0x10)])
def test_a_name_index_beyond_the_tables_is_a_compression_error(peer, bits, first):
    peer.send(headers(1, block(request()) + integer(70, bits, first) + string("x")))
    peer.expect_goaway(Error.COMPRESSION_ERROR)


# --- integers and strings (§5) ------------------------------------------------------------------


@point("RFC 7541 §5.1", "MUST", "integers too large to be meant are an error")
@pytest.mark.parametrize(
    "sent",
    [
        b"\xff" + b"\xff" * 10 + b"\x7f",
        b"\x00\x7f" + b"\xff" * 9 + b"\x7f",
        b"\x3f" + b"\xff" * 9 + b"\x7f",
        b"\xff" + b"\x80" * 5000 + b"\x01",
    ],
    ids=["index", "length", "table size", "endless zeros"],
)
def test_integers_that_overflow_are_a_compression_error(peer, sent):
    fields = sent + block(request()) if sent.startswith(b"\x3f") else block(request()) + sent
    peer.send(headers(1, fields))
    peer.expect_goaway(Error.COMPRESSION_ERROR)


@point("RFC 7541 §5.2", "MUST", "a string longer than the block is an error")
def test_a_string_longer_than_the_block_is_a_compression_error(peer):
    peer.send(headers(1, block(request()) + b"\x00\x01a" + integer(1000, 7) + b"short"))
    peer.expect_goaway(Error.COMPRESSION_ERROR)


def huffman(text, padding=1, extra=0):
    """Return the Huffman code of `text`, its last byte filled with `padding` bits, and more."""
    bits = "".join(f"{REQUEST_CODES[c]:0{REQUEST_CODES_LENGTH[c]}b}" for c in text)
    bits += str(padding) * (-len(bits) % 8 + 8 * extra)
    raw = int(bits, 2).to_bytes(len(bits) // 8)
    return integer(len(raw), 7, 0x80) + raw


@point("RFC 7541 §5.2", "MUST", "Huffman padding is less than a byte of ones; EOS does not come")
@pytest.mark.parametrize(
    "value",
    [huffman(b"aaaa", padding=0), huffman(b"a", extra=1), integer(4, 7, 0x80) + b"\xff" * 4],
    ids=["zeros", "a byte more", "EOS"],
)
def test_wrong_huffman_padding_is_a_compression_error(peer, value):
    peer.send(headers(1, block(request()) + b"\x00" + string("x-text") + value))
    peer.expect_goaway(Error.COMPRESSION_ERROR)


@point("RFC 7541 §5.2", "MUST", "right Huffman codes are read, whatever the length of the padding")
def test_huffman_codes_are_read(peer):
    codes = [huffman(CHECK.encode() + b"a" * n) for n in range(8)]
    answers = [
        ask(peer, 2 * n + 1, BEFORE + b"\x04" + code + AFTER).status for n, code in enumerate(codes)
    ]
    assert answers == [0, 12, 12, 12, 12, 12, 12, 12]


# --- the dynamic table (§4) ---------------------------------------------------------------------


@point("RFC 7541 §2.3.2", "MUST", "an index means what the table says now, not what it said before")
def test_the_same_block_means_what_the_table_says_now(peer):
    assert ask(peer, 1, with_path(inserted(CHECK))).status == 0
    for turn in range(4):
        base = 3 + 8 * turn
        assert ask(peer, base, with_path(NEWEST)).status == 0
        assert ask(peer, base + 2, with_path(inserted(UNKNOWN))).status == 12
        assert ask(peer, base + 4, with_path(NEWEST)).status == 12
        assert ask(peer, base + 6, with_path(inserted(CHECK))).status == 0


@point("RFC 7541 §2.3.2", "MUST", "an insertion in the middle of a block moves what follows")
def test_an_insertion_within_a_block_moves_the_index(peer):
    assert ask(peer, 1, with_path(inserted(CHECK))).status == 0
    moved = BEFORE + b"\xbe" + literal("x-a", "1", first=0x40) + AFTER
    assert ask(peer, 3, moved).status == 0
    assert ask(peer, 5, with_path(b"\xbf")).status == 0
    peer.send(headers(7, with_path(NEWEST), end=True))  # x-a: no :path any more
    peer.expect_malformed(7)


@point("RFC 7541 §2.2", "MUST", "the table is the connection's own")
def test_the_table_is_the_connections_own(connect):
    first, second = connect(), connect()
    assert ask(first, 1, with_path(inserted(CHECK))).status == 0
    assert ask(first, 3, with_path(NEWEST)).status == 0
    second.send(headers(1, with_path(NEWEST)))
    second.expect_goaway(Error.COMPRESSION_ERROR)
    assert ask(first, 5, with_path(NEWEST)).status == 0


@point("RFC 7541 §4.4", "MUST", "entries that do not fit any more are evicted, oldest first")
def test_entries_are_evicted(peer):
    assert ask(peer, 1, with_path(inserted(CHECK))).status == 0
    assert ask(peer, 3, with_path(NEWEST)).status == 0
    room = 4096 - (len(":path") + len(CHECK) + 32)
    fill = literal("x-fill", "a" * (room - 32 - 6), first=0x40)
    assert ask(peer, 5, block(request()) + fill).status == 0  # just fits
    assert ask(peer, 7, with_path(b"\xbf")).status == 0
    assert ask(peer, 9, block(request()) + literal("x", "", first=0x40)).status == 0
    peer.send(headers(11, with_path(b"\xc0")))
    peer.expect_goaway(Error.COMPRESSION_ERROR)


@point("RFC 7541 §4.4", "MUST", "an entry larger than the table empties it")
def test_too_large_an_entry_empties_the_table(peer):
    assert ask(peer, 1, with_path(inserted(CHECK))).status == 0
    assert ask(peer, 3, with_path(NEWEST)).status == 0
    large = literal("x-large", "a" * 4090, first=0x40)
    assert ask(peer, 5, block(request()) + large).status == 0
    peer.send(headers(7, with_path(NEWEST)))
    peer.expect_goaway(Error.COMPRESSION_ERROR)


@point("RFC 7541 §4.4", "MUST", "a name may be taken from the entry that its own entry evicts")
def test_a_name_may_come_from_an_evicted_entry(peer):
    filled = literal("te", "a" * 4000, first=0x40)
    assert ask(peer, 1, EMPTIED + FULL_SIZE + block(request())).status == 0
    peer.send(headers(3, block(request(te=None)) + filled, end=True))
    peer.expect_malformed(3)
    same_name = b"\x7e" + string("trailers")  # the name at index 62; 4034 + 42 bytes fit
    assert ask(peer, 5, block(request(te=None)) + same_name).status == 0
    again = b"\x7f\x00" + integer(4000, 7) + b"b" * 4000  # the name at index 63, now evicted
    peer.send(headers(7, block(request(te=None)) + again, end=True))
    peer.expect_malformed(7)
    assert ask(peer, 9, block(request(te=None)) + b"\x7e" + string("trailers")).status == 0


# --- table size (§4.2, §6.3) --------------------------------------------------------------------


@point("RFC 7541 §6.3", "MUST", "a table size above what the server allows is an error")
def test_too_large_a_table_is_a_compression_error(peer):
    allowed = peer.settings.get(Setting.HEADER_TABLE_SIZE, 4096)
    peer.send(headers(1, integer(allowed + 1, 5, 0x20) + block(request())))
    peer.expect_goaway(Error.COMPRESSION_ERROR)


@point("RFC 7541 §4.2", "MUST", "a table size after a field is an error")
def test_a_table_size_after_a_field_is_a_compression_error(peer):
    peer.send(headers(1, BEFORE + EMPTIED + inserted(CHECK) + AFTER))
    peer.expect_goaway(Error.COMPRESSION_ERROR)


@point("RFC 7541 §4.2", "MUST", "a table size at the end of a block is an error")
def test_a_table_size_at_the_end_is_a_compression_error(peer):
    peer.send(headers(1, block(request()) + EMPTIED))
    peer.expect_goaway(Error.COMPRESSION_ERROR)


@point("RFC 7541 §4.2", "MUST", "table sizes may come twice at the start of a block")
def test_two_table_sizes_may_come(peer):
    assert ask(peer, 1, EMPTIED + FULL_SIZE + with_path(inserted(CHECK))).status == 0
    assert ask(peer, 3, with_path(NEWEST)).status == 0


@point("RFC 7541 §4.3", "MUST", "a table size of 0 empties the table, whatever was used before")
def test_a_table_size_of_0_empties_the_table(peer):
    assert ask(peer, 1, with_path(inserted(CHECK))).status == 0
    assert ask(peer, 3, with_path(NEWEST)).status == 0
    assert ask(peer, 5, EMPTIED + FULL_SIZE + block(request())).status == 0
    peer.send(headers(7, with_path(NEWEST)))
    peer.expect_goaway(Error.COMPRESSION_ERROR)


@point("RFC 7541 §4.3", "MUST", "a smaller table keeps its newest entries alone")
def test_a_smaller_table_keeps_the_newest(peer):
    assert ask(peer, 1, with_path(inserted(UNKNOWN))).status == 12
    assert ask(peer, 3, with_path(inserted(CHECK))).status == 0
    smaller = integer(100, 5, 0x20)  # one entry of 32 + 5 + 28 bytes
    assert ask(peer, 5, smaller + with_path(NEWEST)).status == 0
    peer.send(headers(7, with_path(b"\xbf")))
    peer.expect_goaway(Error.COMPRESSION_ERROR)


# --- the server as an encoder -------------------------------------------------------------------


@point("RFC 7541 §4.2", "MUST", "the server's blocks keep to the table size the client allows")
@pytest.mark.parametrize("size", [0, 64, 4096, 65_536])
def test_answers_keep_to_the_clients_table_size(connect, size):
    peer = connect((Setting.HEADER_TABLE_SIZE, size))
    peer.decoder.max_allowed_table_size = size
    for stream in range(1, 21, 2):
        peer.send(call(stream, CHECK if stream % 4 == 1 else UNKNOWN))
        assert peer.answer(stream).status == (0 if stream % 4 == 1 else 12)
    assert peer.decoder.header_table_size <= max(size, 4096)


@point("RFC 7541 §4.2", "MUST", "the table size the client allows may change at any time")
def test_the_clients_table_size_may_change(peer):
    for turn, size in enumerate((4096, 0, 100, 0, 65_536, 4096)):
        peer.send(settings((Setting.HEADER_TABLE_SIZE, size)))
        peer.expect_alive()
        peer.decoder.max_allowed_table_size = size
        stream = 4 * turn + 1
        peer.send(call(stream), call(stream + 2, UNKNOWN))
        assert peer.answer(stream).status == 0
        assert peer.answer(stream + 2).status == 12


# --- limits (RFC 9113 §6.5.2, §10.5.1) ----------------------------------------------------------


def padded_list(peer, spare):
    """Return the fields of a call whose list is `spare` bytes below the server's limit."""
    limit = peer.settings[Setting.MAX_HEADER_LIST_SIZE]
    used = sum(len(name) + len(value) + 32 for name, value in request())
    names = []
    left = limit - used - spare
    while left > 0:
        size = min(left, 1000) if left - 1000 > 40 or left <= 1000 else left - 500
        names.append((f"x-{len(names):04}", "a" * (size - 32 - 6)))
        left -= size
    return request(CHECK, *names)


def send_fields(peer, stream, fields):
    parts = pieces(block(fields), 16_000)
    peer.send(headers(stream, parts[0], whole=len(parts) == 1))
    for part in parts[1:]:
        peer.send(continuation(stream, part, whole=part is parts[-1]))
    peer.send(data(stream, NOTHING, end=True))


@point("RFC 9113 §10.5.1", "MUST", "a field list as large as the server allows is taken")
def test_a_field_list_within_the_limit_is_taken(peer):
    send_fields(peer, 1, padded_list(peer, 0))
    peer.expect_ok(1)


@point("RFC 9113 §10.5.1", "SHOULD", "a larger field list fails the request, not the connection")
def test_a_field_list_beyond_the_limit_fails_the_request(peer):
    send_fields(peer, 1, padded_list(peer, -100))
    answer = peer.answer(1)
    if answer.sections:
        refused = answer.headers[":status"] == "431" or answer.status == 8
        assert refused, answer
    else:
        assert answer.reset in (Error.ENHANCE_YOUR_CALM, Error.PROTOCOL_ERROR, Error.REFUSED_STREAM)
    peer.send(call(3))
    peer.expect_ok(3)
    peer.expect_alive()


@pytest.mark.slow
@point("RFC 9113 §4.2", "MUST", "HEADERS may be as large as frames and field lists may be")
def test_headers_may_be_as_large_as_a_frame(connect, start):
    with start("--grpc-max-metadata-bytes=60000") as server:
        peer = connect(port=server.port)
        size = min(peer.settings.get(Setting.MAX_FRAME_SIZE, 16_384), 40_000)
        fields = block(request(CHECK, ("x-large", "a" * (size - 200))))
        assert size - 200 < len(fields) <= size
        peer.send(headers(1, fields), data(1, NOTHING, end=True))
        peer.expect_ok(1)


@point(
    "RFC 9113 §10.5.1", "SHOULD", "one frame with too large a field list fails its request alone"
)
def test_one_frame_with_too_large_a_field_list_fails_its_request(peer):
    fields = block(padded_list(peer, -4000))
    if len(fields) <= peer.settings.get(Setting.MAX_FRAME_SIZE, 16_384):
        peer.send(headers(1, fields), data(1, NOTHING, end=True))
        answer = peer.answer(1)
        assert answer.reset or answer.headers[":status"] == "431" or answer.status == 8
    peer.send(call(3))
    peer.expect_ok(3)
