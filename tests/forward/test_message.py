import msgspec
import numpy as np
import pytest
from fields import with_fields

from inferd.core.request import InferRequest, InferResponse, Sequence, WantedOutput
from inferd.errors import BackendFailed, InvalidRequest, Overloaded
from inferd.forward.message import (
    ALIGN,
    MOST_KNOWN,
    MOST_KNOWN_BYTES,
    Requests,
    decode_answer,
    encode_answer,
    encode_end,
    encode_request,
)
from inferd.tensor.dtype import DataType
from inferd.tensor.strings import encode_strings
from inferd.tensor.tensor import Tensor

TENSORS = [
    Tensor("a", DataType.FP32, (2, 3), np.arange(6, dtype=np.float32).reshape(2, 3)),
    Tensor("b", DataType.BYTES, (2,), encode_strings([b"x", b""], "b"), {"p": True}),
    Tensor("c", DataType.BF16, (0, 7), b""),
    Tensor("d", DataType.UINT8, (17,), bytes(range(17))),
    Tensor("e", DataType.BOOL, (), np.array(True)),
]
FORM = b"12345678"


def decode_request(head, data):
    return Requests().decode(head, data)


def bits(tensors):
    return [(t.name, t.datatype, t.shape, bytes(t.view()), t.parameters) for t in tensors]


def received(head, parts):
    """Return head and data as the line hands them over."""
    return memoryview(bytearray(head)), memoryview(bytearray(b"".join(parts)))


def test_a_request_arrives_with_all_that_its_scheduler_and_model_look_at():
    request = with_fields(
        InferRequest(
            "m",
            "",
            "an id",
            TENSORS,
            [WantedOutput("x", True, 3), WantedOutput("y")],
            {"a": 1, "b": -(2**63), "c": 2**64 - 1, "d": 0.5, "e": False, "f": "ü"},
            batch_size=2,
        ),
        priority=2,
        timeout_us=5,
        sequence=Sequence("5", True, False),
        empty_final=True,
        arrived_ns=12,
        callers=("one", "two"),
        takes_errors=True,
        batch_key="not passed on",
        has_top_k=True,
        copied_bytes=7,
    )
    found, form = decode_request(*received(*encode_request(request, "3", FORM)))
    assert form == FORM
    assert bits(found.inputs) == bits(TENSORS)
    wanted = request.asdict() | {
        "version": "3",
        "inputs": found.inputs,
        "outputs": [WantedOutput("x"), WantedOutput("y")],
        "batch_key": found.batch_key,
        "has_top_k": False,
        "copied_bytes": 0,
    }
    assert found.asdict() == wanted


@pytest.mark.parametrize("id", [5, "5", 2**64 - 1, "", 0])
def test_ids_of_sequences_keep_their_type(id):
    request = with_fields(InferRequest("m"), sequence=Sequence(id, False, True))
    found, _ = decode_request(*received(*encode_request(request, "1", FORM)))
    assert found.sequence == request.sequence
    assert type(found.sequence.id) is type(id)


def test_tensors_are_aligned_views_of_what_was_received():
    head, data = received(*encode_request(InferRequest("m", inputs=TENSORS), "1", FORM))
    found, _ = decode_request(head, data)
    base = np.frombuffer(data, np.uint8).ctypes.data
    for tensor in found.inputs:
        if tensor.size_bytes:
            at = np.frombuffer(tensor.data, np.uint8).ctypes.data
            assert 0 <= at - base < len(data)
            assert (at - base) % ALIGN == 0


def test_large_tensors_are_not_copied():
    array = np.zeros(1 << 16)
    _, parts = encode_request(InferRequest("m", inputs=[tensor_of(array)]), "1", FORM)
    assert any(np.shares_memory(array, np.frombuffer(part, np.uint8)) for part in parts)


def tensor_of(array):
    return Tensor.from_numpy("x", array, DataType.FP64)


def test_an_answer_brings_the_times_of_its_run():
    ran = with_fields(
        InferRequest("m", "3"),
        queued_ns=1,
        started_ns=2,
        computing_ns=3,
        computed_ns=4,
        ended_ns=5,
        answered_ns=6,
        cpu_ns=7,
        shared=True,
        ran_again=True,
    )
    response = InferResponse("m", "3", "an id", TENSORS, {"p": 1.5}, final=False)
    origin = with_fields(InferRequest("m", ""), queued_ns=100)
    found, error = decode_answer(origin, *received(*encode_answer(ran, response)))
    assert error is None
    assert bits(found.outputs) == bits(TENSORS)
    assert (found.id, found.parameters, found.final) == ("an id", {"p": 1.5}, False)
    ran.version, ran.queued_ns = "", 100
    assert origin == ran


@pytest.mark.parametrize(
    ("times", "is_queued"),
    [({}, False), ({"queued_ns": 9}, True), ({"started_ns": 9}, True)],
)
def test_what_was_refused_was_in_no_queue(times, is_queued):
    end = encode_end(with_fields(InferRequest("m"), **times), Overloaded("full"))
    origin = with_fields(InferRequest("m"), queued_ns=5)
    decode_answer(origin, memoryview(end), memoryview(b""))
    assert origin.queued_ns == (5 if is_queued else 0)


def test_an_answer_may_be_an_error_and_so_may_the_end():
    request = with_fields(InferRequest("m"), started_ns=2)
    response = InferResponse("m", "3", error=BackendFailed("one of several"), final=False)
    found, error = decode_answer(request, *received(*encode_answer(request, response)))
    assert (type(found.error), found.error.message) == (BackendFailed, "one of several")
    assert error is found.error
    end = encode_end(request, InvalidRequest("no"))
    assert (
        type(decode_answer(InferRequest("m"), memoryview(end), memoryview(b""))[1])
        is InvalidRequest
    )
    end = encode_end(request, None)
    assert decode_answer(InferRequest("m"), memoryview(end), memoryview(b""))[1] is None


@pytest.mark.parametrize("parameters", [{"x": "\ud800"}, {"x": 2**64}])
def test_what_no_message_can_say_is_refused_and_nothing_is_sent(parameters):
    with pytest.raises(InvalidRequest, match="cannot be passed on within the server"):
        encode_request(InferRequest("m", parameters=parameters), "1", FORM)
    response = InferResponse("m", "1", parameters=parameters)
    with pytest.raises(InvalidRequest, match="cannot be passed on within the server"):
        encode_answer(InferRequest("m"), response)


def test_heads_and_data_that_do_not_fit_are_no_message():
    head, data = received(*encode_request(InferRequest("m", inputs=TENSORS), "1", FORM))
    for wrong in (data[:-1], memoryview(bytes(data) + bytes(16)), memoryview(b"")):
        with pytest.raises(ValueError, match="bytes in"):
            decode_request(head, wrong)
    other = msgspec.msgpack.encode(["m", "1", FORM, [[["x", "INT7", [1], 0, None]], []]])
    with pytest.raises(ValueError, match="datatype 'INT7'"):
        decode_request(memoryview(other), memoryview(b""))
    negative = msgspec.msgpack.encode(["m", "1", FORM, [[["x", "INT8", [1], -16, None]], []]])
    with pytest.raises(ValueError, match="-16 bytes"):
        decode_request(memoryview(negative), memoryview(b""))
    for wrong in (head[:-1], memoryview(b""), memoryview(b"\xc1"), memoryview(b"\x91\x01")):
        with pytest.raises(msgspec.MsgspecError):
            decode_request(wrong, data)


def test_requests_are_alike_if_their_tensors_version_and_form_are():
    requests = Requests()

    def key(version="1", form=FORM, **fields):
        given = {"inputs": TENSORS[:1], "id": "a"} | fields
        encoded = encode_request(with_fields(InferRequest("m"), **given), version, form)
        return requests.decode(*received(*encoded))[0].batch_key

    others = [
        key(version="2"),
        key(form=b"another."),
        key(inputs=TENSORS[:2]),
        key(inputs=TENSORS[1:2]),
        key(outputs=[WantedOutput("y")]),
    ]
    assert key() == key(id="b", parameters={"a": 1}, priority=1)
    assert len({key(), *others}) == 6


def test_what_is_remembered_of_requests_is_bounded():
    requests = Requests()
    for number in range(2 * MOST_KNOWN):
        tensor = Tensor("x", DataType.UINT8, (number,), bytes(number))
        encoded = encode_request(InferRequest("m", inputs=[tensor]), "1", FORM)
        found, _ = requests.decode(*received(*encoded))
        assert found.inputs[0].shape == (number,)
    assert len(requests._known) == MOST_KNOWN
    long = Tensor("x" * MOST_KNOWN_BYTES, DataType.UINT8, (1,), b"1")
    requests.decode(*received(*encode_request(InferRequest("m", inputs=[long]), "1", FORM)))
    assert not any(b"xx" in one for one in requests._known)
