import json

import pytest
from tritonclient.grpc import service_pb2 as pb

from inferd.aio.inline import GROUP
from inferd.errors import InferdError, InvalidRequest
from inferd.observe.statistics import (
    BatchStatistics,
    Duration,
    InferStatistics,
    MemoryUsage,
    ModelStatistics,
    ResponseStatistics,
)
from inferd.wire.v2.statistics import (
    decode_statistics,
    decode_statistics_message,
    decode_statistics_request,
    encode_statistics,
    encode_statistics_message,
    encode_statistics_request,
)

INFER = ["success", "fail", "queue", "compute_input", "compute_infer", "compute_output"]
INFER += ["cache_hit", "cache_miss"]
RESPONSE = ["compute_infer", "compute_output", "success", "fail", "empty_response", "cancel"]
BATCH = ["compute_input", "compute_infer", "compute_output"]


def durations(count, first=1):
    """That many, each with its own count and ns, up to the largest there is."""
    return [Duration(first + index, 2**64 - 1 - first - index) for index in range(count)]


ROWS = [
    ModelStatistics(
        "m",
        "3",
        1_795_194_857_596,
        9,
        5,
        InferStatistics(*durations(8)),
        {"0": ResponseStatistics(*durations(6, 20)), "1": ResponseStatistics()},
        [BatchStatistics(4, *durations(3, 30)), BatchStatistics(8, *durations(3, 40))],
        [MemoryUsage("GPU", 1, 2**40)],
    ),
    ModelStatistics("ü", "1", 0, 0, 0, InferStatistics(*[Duration()] * 8), {}, [], []),
]


def test_the_keys_are_tritons_in_its_order():
    document = json.loads(b"".join(encode_statistics(ROWS)))
    assert list(document) == ["model_stats"]
    first, second = document["model_stats"]
    assert list(first) == [
        "name", "version", "last_inference", "inference_count", "execution_count",
        "inference_stats", "response_stats", "batch_stats", "memory_usage",
    ]  # fmt: skip
    assert list(first["inference_stats"]) == INFER
    assert first["inference_stats"]["success"] == {"count": 1, "ns": 2**64 - 2}
    assert list(first["response_stats"]["0"]) == RESPONSE
    assert list(first["batch_stats"][0]) == ["batch_size", *BATCH]
    assert first["memory_usage"] == [{"type": "GPU", "id": 1, "byte_size": 2**40}]
    assert (second["response_stats"], second["batch_stats"], second["memory_usage"]) == ({}, [], [])


def test_no_models_are_an_empty_list():
    assert b"".join(encode_statistics([])) == b'{"model_stats":[]}'
    assert b"".join(encode_statistics_message([])) == b""


def test_each_row_is_asked_for_when_its_piece_is():
    asked = []

    def rows():
        for number in range(3 * GROUP + 1):
            asked.append(number)
            yield ROWS[number % 2]

    for encode in (encode_statistics, encode_statistics_message):
        asked.clear()
        counts = [len(asked) for piece in encode(rows()) if "ü".encode() in piece]
        assert counts == [GROUP, 2 * GROUP, 3 * GROUP]  # the last piece has the first row alone


def test_a_message_tells_the_same():
    first, second = pb.ModelStatisticsResponse.FromString(
        b"".join(encode_statistics_message(ROWS))
    ).model_stats
    assert (first.name, first.version) == ("m", "3")
    assert (first.last_inference, first.inference_count) == (1_795_194_857_596, 9)
    assert first.execution_count == 5
    assert [getattr(first.inference_stats, name).count for name in INFER] == [*range(1, 9)]
    assert [getattr(first.response_stats["0"], name).count for name in RESPONSE] == [*range(20, 26)]
    assert [row.batch_size for row in first.batch_stats] == [4, 8]
    assert [getattr(first.batch_stats[1], name).ns for name in BATCH] == [
        2**64 - 1 - 40 - index for index in range(3)
    ]
    assert (first.memory_usage[0].type, first.memory_usage[0].byte_size) == ("GPU", 2**40)
    assert (second.name, len(second.response_stats)) == ("ü", 0)


def test_statistics_are_read_back():
    assert decode_statistics(b"".join(encode_statistics(ROWS))) == ROWS
    assert decode_statistics_message(b"".join(encode_statistics_message(ROWS))) == ROWS


def test_a_request_names_model_and_version():
    sent = pb.ModelStatisticsRequest(name="m", version="3").SerializeToString()
    assert decode_statistics_request(sent) == ("m", "3")
    assert encode_statistics_request("m", "3") == sent
    assert decode_statistics_request(encode_statistics_request()) == ("", "")


def test_garbage_is_no_request():
    with pytest.raises(InvalidRequest, match="ModelStatisticsRequest"):
        decode_statistics_request(b"\xff")


@pytest.mark.parametrize(
    ("decode", "data"),
    [
        (decode_statistics, b"{"),
        (decode_statistics, b'{"model_stats":[{}]}'),
        (decode_statistics_message, b"\xff"),
    ],
)
def test_garbage_is_no_answer(decode, data):
    with pytest.raises(InferdError, match="the server's answer is malformed"):
        decode(data)
