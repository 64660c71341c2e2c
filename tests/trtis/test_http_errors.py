"""What is wrong with a request, told in NV-Status: the rows of the old API's errors, one by one."""

import re
import socket

import numpy as np
import pytest

ONE = 'batch_size: 1 input { name: "INPUT0" } output { name: "OUTPUT0" }'
TEXT = 'batch_size: 1 input { name: "INPUT0" batch_byte_size: %d } output { name: "OUTPUT0" }'


def refused(answer, reason, *words):
    """Check a refusal: 400, an empty body, the reason, and what its text names."""
    assert (answer.code, answer.reason) == (400, reason), answer.status
    assert answer.body == b""
    for word in words:
        assert re.search(rf"(?<![\w']){word}(?!\w)", answer.status.msg), answer.status.msg


# --- the header NV-InferRequest itself ---


def test_no_header(http_client):
    answer = http_client.post("/api/infer/pair", b"\0" * 128)
    assert (answer.code, answer.reason) == (400, "INVALID_ARG")
    assert answer.body.decode() == answer.status.msg
    assert "NV-InferRequest" in answer.status.msg
    assert "nv-inferresponse" not in answer.headers


@pytest.mark.parametrize(
    "text",
    [
        "",
        "batch_size: 1",
        "batch_size 1",
        "nothing: 1",
        "batch_size: 1 batch_size: 1",
        "batch_size: -1",
        "batch_size: 4294967296",
        "id: 1.5",
        'input { name: "INPUT0"',
        "input { " * 500,
        "input { input { input { } } }",
        "flags: FLAG_SEQUENCE_START",
        'input { name: "\\q" }',
        "[some.extension]: 1",
        '{"batch_size": 1}',
        "\\",
    ],
)
def test_a_header_that_cannot_be_read_or_says_too_little(http_client, text):
    refused(http_client.infer("pair", text, b"\0" * 128), "INVALID_ARG")


def test_a_header_twice(http_client, pair):
    header, body, _ = pair
    refused(http_client.infer("pair", f"{header}, {header}", body), "INVALID_ARG", "batch_size")


def test_a_header_that_is_no_utf8(http_client):
    answer = http_client.infer("pair", b'input { name: "\xff" }', b"")
    refused(answer, "INVALID_ARG", "UTF-8")


@pytest.mark.parametrize("size", [20_000, 60_000])
def test_a_long_header_is_taken(http_client, pair, size):
    header, body, both = pair
    answer = http_client.infer("pair", header + " " * size + "id: 3", body)
    assert answer.split()[0]["OUTPUT0"] == both[0].tobytes()
    assert answer.header.id == 3


@pytest.mark.parametrize("size", [70_000, 1 << 20])
def test_a_longer_one_is_not(connect, server, pair, size):
    header, body, _ = pair
    connection = connect(server)
    try:
        answer = connection.infer("pair", header + " " * size + "id: 3", body)
    except ConnectionError:  # it did not read what it had been told
        pass
    else:
        assert answer.code in (400, 431)
    assert connect(server).infer("pair", header, body).code == 200


def raw_request(lines, body=b"\0" * 16):
    head = ["POST /api/infer/flat HTTP/1.1", f"Content-Length: {len(body)}", *lines, "", ""]
    return "\r\n".join(head).encode() + body


def exchange(port, data):
    """Send bytes and return the head of the answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connected:
        connected.sendall(data)
        came = b""
        while b"\r\n\r\n" not in came:
            more = connected.recv(65536)
            assert more, came
            came += more
    return came.partition(b"\r\n\r\n")[0].decode("ascii")


def of_size(size):
    """A request whose header block has `size` bytes."""
    least = raw_request([f"NV-InferRequest: {ONE}  id: 3"])
    header = f"NV-InferRequest: {ONE} {' ' * (size - len(least) + 16)} id: 3"
    return raw_request([header])


def test_a_block_of_64_kib_is_taken_and_one_byte_more_is_not(server):
    assert of_size(1 << 16).index(b"\r\n\r\n") + 4 == 1 << 16
    good = exchange(server.http_port, of_size(1 << 16))
    assert good.startswith("HTTP/1.1 200 ") and "id: 3" in good
    bad = exchange(server.http_port, of_size((1 << 16) + 1))
    assert bad.startswith("HTTP/1.1 431 ") and "NV-Status: code: INVALID_ARG" in bad


def test_who_sends_a_header_of_a_megabyte_is_told_all_the_same(server):
    answer = exchange(server.http_port, of_size(1 << 20))
    assert answer.startswith("HTTP/1.1 431 ") and "NV-Status: code: INVALID_ARG" in answer


def test_two_lines_of_the_header_are_one_header_of_both(server):
    first, output, rest = ONE.partition(" output")
    halves = [f"NV-InferRequest: {first}", f"NV-InferRequest:{output}{rest}"]
    answer = exchange(server.http_port, raw_request(halves))
    assert answer.startswith("HTTP/1.1 200 ") and "code: SUCCESS" in answer
    answer = exchange(server.http_port, raw_request([f"NV-InferRequest: {ONE}"] * 2))
    assert answer.startswith("HTTP/1.1 400 ") and "NV-Status: code: INVALID_ARG" in answer


# --- which model ---


@pytest.mark.parametrize(
    "path", ["none", "pair/2", "pair/99999999999999999999", "some/2", "pair/0"]
)
def test_an_unknown_model_or_version(http_client, path):
    refused(http_client.infer(path, ONE), "UNAVAILABLE", f"'{path.partition('/')[0]}'")


@pytest.mark.parametrize("path", ["pair/-1", "pair/latest", "pair/1.0", "pair/%C2%B2"])
def test_a_version_that_is_no_number(http_client, path):
    refused(http_client.infer(path, ONE), "INVALID_ARG")


def test_an_error_echoes_the_id_and_nothing_else(http_client):
    answer = http_client.infer("none", f"{ONE} id: 77")
    assert answer.headers["nv-inferresponse"] == "id: 77"
    assert answer.headers["content-type"] == "application/octet-stream"
    assert http_client.infer("none", ONE).headers["nv-inferresponse"] == ""


# --- batch size, inputs, outputs ---


@pytest.mark.parametrize(
    ("model", "size", "words"),
    [
        ("pair", 0, ["batch-size must be >= 1 for ", "is 0"]),
        ("pair", 9, ["batch-size must be <= 8 for ", "is 9"]),
        ("flat", 2, ["batch-size must be <= 0 for ", "takes batch_size 1", "is 2"]),
        ("flat", 0, ["batch-size must be >= 1 for ", "is 0"]),
        ("sequence", 2, ["must specify batch-size 1 due to", "is 2"]),
    ],
)
def test_a_batch_size_the_model_does_not_take(http_client, model, size, words):
    header = ONE.replace("batch_size: 1", f"batch_size: {size}")
    refused(http_client.infer(model, header, b"\0" * 64), "INVALID_ARG", f"'{model}'", *words)


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ('input { name: "INPUT0" }', ["1 inputs", "2"]),
        ('input { name: "INPUT0" } ' * 3, ["3 inputs", "2"]),
        ('input { name: "INPUT0" } ' * 2, ["'INPUT0'"]),
        ('input { name: "INPUT0" } input { name: "OTHER" }', ["'OTHER'"]),
        ('input { name: "INPUT0" } input { }', ["''"]),
    ],
)
def test_inputs_that_are_not_those_of_the_model(http_client, inputs, words):
    answer = http_client.infer("pair", f"batch_size: 1 {inputs}", b"\0" * 192)
    refused(answer, "INVALID_ARG", "'pair'", *words)


@pytest.mark.parametrize(
    ("outputs", "word"),
    [
        ('output { name: "OTHER" }', "'OTHER'"),
        ('output { name: "OUTPUT0" } ' * 2, "'OUTPUT0'"),
        ('output { name: "OUTPUT0" } output { name: "OUTPUT0" cls { count: 1 } }', "'OUTPUT0'"),
    ],
)
def test_outputs_that_are_not_those_of_the_model(http_client, outputs, word):
    answer = http_client.infer("flat", f'batch_size: 1 input {{ name: "INPUT0" }} {outputs}', b"")
    refused(answer, "INVALID_ARG", word)


# --- dims and sizes ---


@pytest.mark.parametrize(
    ("model", "dims", "words"),
    [
        ("pair", "dims: 4 dims: 4", [r"\[4,4\]", r"\[16\]"]),
        ("pair", "dims: 1 dims: 16", [r"\[1,16\]", r"\[16\]"]),
        ("free", "dims: 3 dims: 3", [r"\[3,3\]", r"\[-1,2\]"]),
        ("free", "dims: -1 dims: 2", [r"\[-1,2\]"]),
        ("free", "dims: 0x7fffffffffffffff dims: 2", ["no array"]),
        ("free", "dims: 2 " * 500, []),
        ("free", "", ["'free'", "variable"]),
    ],
)
def test_dims_the_model_does_not_take(http_client, model, dims, words):
    inputs = f'input {{ name: "INPUT0" {dims} }} input {{ name: "INPUT1" }}'
    if model == "free":
        inputs = inputs.partition(" input")[0]
    refused(http_client.infer(model, f"batch_size: 1 {inputs}", b""), "INVALID_ARG", *words)


def test_a_size_that_is_not_that_of_the_tensor(http_client, pair):
    header, body, _ = pair
    answer = http_client.infer("pair", header.replace("64", "60", 1), body)
    refused(answer, "INVALID_ARG", "'INPUT0'", "60", "64")


def test_a_body_that_is_too_short_or_too_long(http_client, pair):
    header, body, _ = pair
    refused(http_client.infer("pair", header, body[:-3]), "INVALID_ARG", "'INPUT1'", "3")
    refused(http_client.infer("pair", header, b""), "INVALID_ARG", "'INPUT0'", "64")
    refused(http_client.infer("pair", header, body + b"12345"), "INVALID_ARG", "5")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"\1\0\0\0a", ["'INPUT0'", "string elements"]),
        (b"\1\0\0\0a" * 3, ["'INPUT0'", "string elements", "3"]),
        (b"\1\0\0\0a\xff\0\0\0b", ["'INPUT0'", "255", "1"]),
        (b"\1\0\0\0a\2\0", ["'INPUT0'"]),
        (b"", ["'INPUT0'", "string elements"]),
    ],
)
def test_strings_that_are_cut_short_or_of_another_number(http_client, body, words):
    refused(http_client.infer("words", TEXT % len(body), body), "INVALID_ARG", *words)


def test_strings_whose_size_is_not_said_have_none(http_client, strings):
    body = strings("a", "b")
    refused(http_client.infer("words", ONE, body), "INVALID_ARG")


@pytest.mark.parametrize("model", ["halves", "flags", "words"])
def test_classes_of_what_has_no_order(http_client, strings, model):
    body = {"halves": b"\0" * 8, "flags": b"\0" * 4, "words": strings("a", "b")}[model]
    header = (TEXT % len(body)).replace('"OUTPUT0"', '"OUTPUT0" cls { count: 1 }')
    refused(http_client.infer(model, header, body), "INVALID_ARG", "'OUTPUT0'")


# --- shared memory ---


def test_an_unknown_region(http_client):
    header = ONE.replace('"INPUT0"', '"INPUT0" shared_memory { name: "none" byte_size: 16 }')
    refused(http_client.infer("flat", header), "NOT_FOUND", "'none'")
    header = ONE.replace('"OUTPUT0"', '"OUTPUT0" shared_memory { name: "none" byte_size: 16 }')
    refused(http_client.infer("flat", header, b"\0" * 16), "NOT_FOUND", "'none'")


@pytest.fixture
def region(http_client, shared):
    """A registered region "r" of a page, and the object."""
    given = shared()
    path = f"/api/sharedmemorycontrol/register/r/{given.key}/0/4096"
    assert http_client.post(path).code == 200
    yield given
    assert http_client.post("/api/sharedmemorycontrol/unregister/r").code == 200


def in_region(offset, size):
    return f'shared_memory {{ name: "r" offset: {offset} byte_size: {size} }}'


def test_an_inference_in_shared_memory(http_client, region):
    values = np.arange(4, dtype=np.float32)
    region.write(values)
    header = (
        f'batch_size: 1 input {{ name: "INPUT0" {in_region(0, 16)} }} '
        f'output {{ name: "OUTPUT0" {in_region(64, 100)} }}'
    )
    answer = http_client.infer("flat", header)
    assert answer.code == 200
    assert region.read(np.float32, 4, 64).tolist() == values.tolist()
    assert answer.header.output[0].raw.batch_byte_size == 16
    assert answer.body == answer.body.lstrip(b"\0")
    assert b"model_name" in answer.body


def test_strings_in_shared_memory_tell_their_size(http_client, region, strings):
    body = strings("some", "strings")
    header = (
        f'batch_size: 1 input {{ name: "INPUT0" batch_byte_size: {len(body)} }} '
        f'output {{ name: "OUTPUT0" {in_region(0, 4096)} }}'
    )
    answer = http_client.infer("words", header, body)
    assert answer.header.output[0].raw.batch_byte_size == len(body)
    assert region.read(np.uint8, len(body)).tobytes() == body


def test_shared_memory_of_the_wrong_size(http_client, region):
    header = ONE.replace('"INPUT0"', f'"INPUT0" {in_region(0, 12)}')
    refused(http_client.infer("flat", header), "INVALID_ARG", "'INPUT0'", "12", "16")
    header = ONE.replace('"INPUT0"', f'"INPUT0" {in_region(4090, 16)}')
    refused(http_client.infer("flat", header), "INVALID_ARG", "'r'", "4096")
    header = ONE.replace('"OUTPUT0"', f'"OUTPUT0" {in_region(0, 12)}')
    refused(http_client.infer("flat", header, b"\0" * 16), "INTERNAL", "'OUTPUT0'", "12", "16")


def test_classes_are_not_put_in_shared_memory(http_client, region):
    header = ONE.replace('"OUTPUT0"', f'"OUTPUT0" cls {{ count: 1 }} {in_region(0, 64)}')
    refused(http_client.infer("flat", header, b"\0" * 16), "INVALID_ARG", "'OUTPUT0'")


# --- the rest ---


def test_a_model_that_answers_any_number_of_times(http_client):
    header = 'batch_size: 1 input { name: "IN" dims: 1 } input { name: "DELAY" dims: 1 } '
    answer = http_client.infer("repeat", header + 'input { name: "WAIT" dims: 1 }', b"\0" * 12)
    refused(answer, "UNSUPPORTED")


def test_a_compressed_body(http_client, pair):
    header, body, _ = pair
    answer = http_client.infer("pair", header, body, {"Content-Encoding": "gzip"})
    refused(answer, "INVALID_ARG", "compressed")
    plain = http_client.infer("pair", header, body, {"Content-Encoding": "identity"})
    assert plain.code == 200


def test_request_numbers_count_up_whatever_becomes_of_them(http_client, pair):
    header, body, _ = pair
    answers = [
        http_client.infer("pair", header, body),
        http_client.infer("none", header, body),
        http_client.get("/api/health/live"),
        http_client.get("/api/nothing"),
        http_client.infer("pair", header, body),
    ]
    numbers = [answer.status.request_id for answer in answers]
    assert numbers == list(range(numbers[0], numbers[0] + 5))
    assert {answer.status.server_id for answer in answers} == {"inference:0"}
