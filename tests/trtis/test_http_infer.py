"""POST /api/infer: raw and classified outputs, both generations of clients."""

import socket

import numpy as np
import pytest

TEN = np.array([0.5, -1, 9.25, 3, 9.25, np.nan, 0.1, 7, 1e-9, 2], np.float32)


def test_outputs_come_in_the_order_they_are_asked_for(http_client, pair):
    header, body, both = pair
    swapped = header.replace("OUTPUT0", "OUTPUTX").replace("OUTPUT1", "OUTPUT0")
    answer = http_client.infer("pair", swapped.replace("OUTPUTX", "OUTPUT1") + " id: 17", body)
    assert answer.code == 200
    assert answer.reason == "SUCCESS"
    assert answer.headers["content-type"] == "application/octet-stream"
    assert [one.name for one in answer.header.output] == ["OUTPUT1", "OUTPUT0"]
    raw, behind = answer.split()
    assert behind == answer.header
    assert list(raw) == ["OUTPUT1", "OUTPUT0"]
    assert raw["OUTPUT0"] + raw["OUTPUT1"] == both.tobytes()
    assert (behind.model_name, behind.model_version, behind.batch_size) == ("pair", 1, 1)
    assert behind.id == 17
    assert list(behind.output[0].raw.dims) == [16]
    assert behind.output[0].raw.batch_byte_size == 64


def test_the_same_header_in_binary(http_client, pair):
    header, body, _ = pair
    answer = http_client.infer("pair?format=binary", header + " id: 18446744073709551615", body)
    _, behind = answer.split(binary=True)
    assert behind == answer.header
    assert behind.id == 2**64 - 1


@pytest.mark.parametrize("form", ["text", "json", "Binary", ""])
def test_any_other_format_is_text(http_client, pair, form):
    header, body, _ = pair
    answer = http_client.infer(f"pair?x=1&format={form}", header, body)
    assert answer.split()[1] == answer.header


def test_only_what_is_asked_for_comes_back(http_client, pair):
    header, body, both = pair
    answer = http_client.infer("pair", header.replace('output { name: "OUTPUT0" }', ""), body)
    assert answer.split()[0] == {"OUTPUT1": both[1].tobytes()}
    none = http_client.infer("pair", header.partition("output")[0], body)
    assert none.code == 200
    assert none.split()[0] == {}


NO_BODY = (
    "unexpected size for input 'INPUT0', expecting 64 bytes for model 'pair': "
    "the request has no body"
)
NO_HEADER = "The request header should contain 'NV-InferRequest': it is missing"


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ("Content-Length: 0\r\nNV-InferRequest: {}\r\n", NO_BODY),
        ("NV-InferRequest: {}\r\n", NO_BODY),
        ("Transfer-Encoding: chunked\r\nNV-InferRequest: {}\r\n", NO_BODY),
        ("Expect: 100-continue\r\nContent-Length: 0\r\nNV-InferRequest: {}\r\n", NO_BODY),
        (
            "Inference-Header-Content-Length: 0\r\nContent-Length: 0\r\nNV-InferRequest: {}\r\n",
            NO_BODY,
        ),
        ("Content-Length: 0\r\n", NO_HEADER),
        ("", NO_HEADER),
        ("Inference-Header-Content-Length: 0\r\nContent-Length: 0\r\n", NO_HEADER),
    ],
)
def test_an_inference_without_a_body_is_refused_at_once(server, fields, says):
    header = 'batch_size: 1 input { name: "INPUT0" } input { name: "INPUT1" }'
    head = f"POST /api/infer/pair HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{fields}\r\n"
    end = "0\r\n\r\n" if "chunked" in fields else ""
    with socket.create_connection(("127.0.0.1", server.http_port), 10) as peer:
        peer.sendall((head.format(header) + end).encode())
        answer = b"".join(iter(lambda: peer.recv(65536), b"")).decode()
    assert answer.startswith("HTTP/1.1 400 ")
    assert "code: INVALID_ARG" in answer
    assert says in answer.replace("\\'", "'")


def test_a_batch_of_each_input_lies_together(http_client):
    values = np.arange(64, dtype=np.int32)
    header = (
        'batch_size: 2 input { name: "INPUT1" } input { name: "INPUT0" batch_byte_size: 128 } '
        'output { name: "OUTPUT0" } output { name: "OUTPUT1" }'
    )
    answer = http_client.infer("pair", header, values.tobytes())
    raw, behind = answer.split()
    assert raw["OUTPUT1"] == values[:32].tobytes()
    assert raw["OUTPUT0"] == values[32:].tobytes()
    assert list(behind.output[0].raw.dims) == [16]
    assert behind.output[0].raw.batch_byte_size == 128


def test_variable_dims_are_those_of_the_request(http_client):
    values = np.arange(12, dtype=np.float32)
    header = 'batch_size: 2 input { name: "INPUT0" dims: [3, 2] } output { name: "OUTPUT0" }'
    raw, behind = http_client.infer("free", header, values.tobytes()).split()
    assert raw == {"OUTPUT0": values.tobytes()}
    assert list(behind.output[0].raw.dims) == [3, 2]


def test_an_empty_tensor_has_no_bytes(http_client):
    header = 'batch_size: 1 input { name: "INPUT0" dims: [0, 2] } output { name: "OUTPUT0" }'
    raw, behind = http_client.infer("free", header).split()
    assert raw == {"OUTPUT0": b""}
    assert list(behind.output[0].raw.dims) == [0, 2]


def test_a_model_without_batching_has_batches_of_one(http_client):
    values = np.arange(4, dtype=np.float32)
    header = 'batch_size: 1 input { name: "INPUT0" } output { name: "OUTPUT0" }'
    raw, behind = http_client.infer("flat", header, values.tobytes()).split()
    assert raw == {"OUTPUT0": values.tobytes()}
    assert list(behind.output[0].raw.dims) == [4]


def test_strings_have_their_lengths_before_them(http_client, strings):
    body = strings("", "ab", "é", "x" * 1000)
    header = (
        f'batch_size: 2 input {{ name: "INPUT0" dims: 2 batch_byte_size: {len(body)} }} '
        'output { name: "OUTPUT0" }'
    )
    raw, behind = http_client.infer("words", header, body).split()
    assert raw == {"OUTPUT0": body}
    assert behind.output[0].raw.batch_byte_size == len(body)


@pytest.mark.parametrize(
    ("path", "version"), [("some", 3), ("some/1", 1), ("some/3", 3), ("some/03", 3), ("last", 2)]
)
def test_the_latest_version_or_the_one_in_the_path(http_client, path, version):
    header = 'batch_size: 1 input { name: "INPUT0" } output { name: "OUTPUT0" }'
    answer = http_client.infer(path, header, b"\1\0\0\0")
    assert answer.header.model_version == version


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize(("model", "count", "dims"), [("shaped", 4, [4]), ("scalar", 1, [1])])
def test_a_reshaped_tensor_has_the_dims_of_the_configuration(
    http_client, model, count, dims, batch
):
    values = np.arange(batch * count, dtype=np.float32)
    for said in (" ".join(f"dims: {dim}" for dim in dims), ""):
        header = (
            f'batch_size: {batch} input {{ name: "INPUT0" {said} }} output {{ name: "OUTPUT0" }}'
        )
        raw, behind = http_client.infer(model, header, values.tobytes()).split()
        assert raw == {"OUTPUT0": values.tobytes()}
        assert list(behind.output[0].raw.dims) == dims
    header = f'batch_size: {batch} input {{ name: "INPUT0" dims: [2, 2] }}'
    assert http_client.infer(model, header, values.tobytes()).reason == "INVALID_ARG"


# --- classification ---


def test_classes_have_index_value_and_label(http_client):
    header = 'batch_size: 1 input { name: "INPUT0" } output { name: "OUTPUT0" cls { count: 3 } }'
    answer = http_client.infer("ten", header, TEN.tobytes())
    raw, behind = answer.split()
    assert raw == {}
    assert behind == answer.header
    [classes] = behind.output[0].batch_classes
    assert [(one.idx, one.value, one.label) for one in classes.cls] == [
        (2, 9.25, "cat"),
        (4, 9.25, ""),
        (7, 7.0, ""),
    ]


def test_an_ensemble_has_the_labels_of_its_step(http_client):
    header = 'batch_size: 1 input { name: "IN" } output { name: "OUT" cls { count: 1 } }'
    _, behind = http_client.infer("whole", header, TEN.tobytes()).split()
    [one] = behind.output[0].batch_classes[0].cls
    assert (one.idx, one.label) == (2, "cat")


def test_classes_keep_their_values_to_the_last_bit(http_client):
    header = 'batch_size: 1 input { name: "INPUT0" } output { name: "OUTPUT0" cls { count: 10 } }'
    for query in ("", "?format=binary"):
        answer = http_client.infer(f"ten{query}", header, TEN.tobytes())
        _, behind = answer.split(binary=bool(query))
        [classes] = behind.output[0].batch_classes
        found = np.empty(10, np.float32)
        for one in classes.cls:
            found[one.idx] = one.value
        assert found.tobytes() == TEN.tobytes()
        assert classes.cls[9].idx == 5  # the NaN


def test_each_item_of_a_batch_has_its_classes(http_client):
    body = np.stack([TEN, TEN[::-1]]).tobytes()
    header = 'batch_size: 2 input { name: "INPUT0" } output { name: "OUTPUT0" cls { count: 1 } }'
    _, behind = http_client.infer("ten", header, body).split()
    assert [[one.idx for one in each.cls] for each in behind.output[0].batch_classes] == [[2], [5]]


@pytest.mark.parametrize("count", [10, 11, 2**32 - 1])
def test_there_are_no_more_classes_than_elements(http_client, count):
    header = (
        f'batch_size: 1 input {{ name: "INPUT0" }} '
        f'output {{ name: "OUTPUT0" cls {{ count: {count} }} }}'
    )
    _, behind = http_client.infer("ten", header, TEN.tobytes()).split()
    assert len(behind.output[0].batch_classes[0].cls) == 10


def test_no_class_at_all_means_raw(http_client):
    header = 'batch_size: 1 input { name: "INPUT0" } output { name: "OUTPUT0" cls { count: 0 } }'
    raw, _ = http_client.infer("ten", header, TEN.tobytes()).split()
    assert raw == {"OUTPUT0": TEN.tobytes()}


@pytest.mark.parametrize(("value", "told"), [(1e300, np.inf), (-1e300, -np.inf), (-0.0, -0.0)])
def test_a_double_becomes_a_float(http_client, value, told):
    header = 'batch_size: 1 input { name: "INPUT0" } output { name: "OUTPUT0" cls { count: 1 } }'
    body = np.full(3, value).tobytes()
    _, behind = http_client.infer("doubles", header, body).split()
    [one] = behind.output[0].batch_classes[0].cls
    assert np.float32(one.value).tobytes() == np.float32(told).tobytes()


def test_headers_are_ascii_whatever_models_and_labels_are_called(http_client):
    header = 'batch_size: 1 input { name: "INPUT0" } output { name: "OUTPUT0" cls { count: 3 } }'
    answer = http_client.infer("gr%C3%B6%C3%9Fe", header, np.float32([1, 3, 2]).tobytes())
    assert answer.header.model_name == "größe"
    assert answer.split()[1] == answer.header
    [classes] = answer.header.output[0].batch_classes
    assert [one.label for one in classes.cls] == ["bée", "cat", "ant"]


def test_a_header_full_of_classes_leaves_them_to_the_body(http_client):
    body = np.tile(TEN, 8).tobytes()
    outputs = 'output { name: "OUTPUT0" cls { count: 10 } }'
    header = f'batch_size: 8 input {{ name: "INPUT0" }} {outputs}'
    answer = http_client.infer("ten", header, body)
    assert len(answer.header.output[0].batch_classes) == 8
    assert len(answer.headers["nv-inferresponse"]) < 32 << 10


# --- clients from before 0.11 ---

OLD = (
    'batch_size: 2 input { name: "INPUT0" byte_size: 64 } input { name: "INPUT1" byte_size: 64 } '
    'output { name: "OUTPUT1" byte_size: 64 } output { name: "OUTPUT0" byte_size: 64 }'
)


@pytest.mark.parametrize("query", ["", "?format=binary"])
def test_an_old_client_is_answered_in_its_words(http_client, messages, query):
    both = np.arange(64, dtype=np.int32)
    answer = http_client.infer(f"pair{query}", OLD, both.tobytes())
    assert answer.code == 200
    assert "nv-inferresponse" not in answer.headers
    assert answer.body[:256] == both[32:].tobytes() + both[:32].tobytes()
    tail = answer.body[256:]
    if query:  # the old Raw has its byte_size where the new one has its dims
        outputs = messages.read("InferResponseHeader", tail).output
        assert [list(one.raw.dims) for one in outputs] == [[64], [64]]
    else:
        assert tail.count(b"    byte_size: 64\n") == 2
        assert b"dims" not in tail
        assert b"batch_byte_size" not in tail


def test_an_old_client_gets_classes(http_client, messages):
    header = (
        'batch_size: 1 input { name: "INPUT0" byte_size: 40 } '
        'output { name: "OUTPUT0" byte_size: 40 cls { count: 2 } }'
    )
    answer = http_client.infer("ten", header, TEN.tobytes())
    told = messages.read("InferResponseHeader", answer.body.decode())
    assert [one.idx for one in told.output[0].batch_classes[0].cls] == [2, 4]


@pytest.mark.parametrize(
    ("old", "new", "names"),
    [
        ('"INPUT0" byte_size: 64', '"INPUT0" byte_size: 60', ["INPUT0", "120", "128"]),
        ('"OUTPUT1" byte_size: 64', '"OUTPUT1" byte_size: 60', ["OUTPUT1", "60", "64"]),
        ('"OUTPUT0" byte_size: 64', '"OUTPUT0" byte_size: 4 cls { count: 1 }', ["4", "64"]),
    ],
)
def test_an_old_client_s_wrong_size_is_told_with_the_right_one(http_client, old, new, names):
    assert old in OLD
    answer = http_client.infer("pair", OLD.replace(old, new), b"\0" * 256)
    assert (answer.code, answer.reason) == (400, "INVALID_ARG")
    assert all(name in answer.status.msg for name in names)
    assert "nv-inferresponse" not in answer.headers


def test_an_old_client_s_size_of_what_varies_is_looked_at_when_it_is_there(http_client):
    header = (
        'batch_size: 1 input { name: "INPUT0" byte_size: 11 } '
        'output { name: "OUTPUT0" byte_size: 12 }'
    )
    answer = http_client.infer("words", header, b"\2\0\0\0ab\1\0\0\0c")
    assert answer.reason == "INVALID_ARG"
    assert "12 bytes" in answer.status.msg
    assert "11" in answer.status.msg
