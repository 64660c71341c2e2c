"""ModelInfer's messages, built and read with another implementation's classes."""

import tracemalloc

import numpy as np
import pytest
from fields import with_fields
from hypothesis import given, settings
from hypothesis import strategies as st
from tritonclient.grpc import service_pb2 as pb
from v2_grpc_messages import FOUR, decoded, item, message, refusal

from inferd.aio.inline import INLINE_STRINGS, INLINE_TYPED_BYTES, NotFast
from inferd.core.request import InferRequest, InferResponse, Sequence, WantedOutput
from inferd.errors import Code, InferdError, InvalidRequest
from inferd.tensor.dtype import DataType
from inferd.tensor.strings import encode_strings
from inferd.tensor.tensor import Tensor
from inferd.wire.v2.grpc.codec import (
    V2Grpc,
    decode_infer_request,
    decode_infer_response,
    encode_infer_request,
)


def sample(datatype, name="T", count=3):
    if datatype is DataType.BYTES:
        data = encode_strings([b"a", b"", b"\xff\x00"][:count], name)
    else:
        data = (np.arange(count * datatype.size_bytes) % 2).astype(np.uint8).tobytes()
    return Tensor(name, datatype, (count,), data)


# --- what takes long ---


def test_many_strings_are_left_to_a_thread():
    count = INLINE_STRINGS + 1
    made = message(item("T", "BYTES", (count,)), raw=[bytes(4 * count)]).SerializeToString()
    with pytest.raises(NotFast):
        decode_infer_request(made, on_loop=True)
    assert decode_infer_request(made).inputs[0].strings() == [b""] * count


def test_long_typed_contents_are_left_to_a_thread():
    count = INLINE_TYPED_BYTES // 4 + 1
    made = message(item("T", "FP32", (count,), fp32_contents=[1.5] * count)).SerializeToString()
    with pytest.raises(NotFast):
        decode_infer_request(made, on_loop=True)
    assert (decode_infer_request(made).inputs[0].numpy() == 1.5).all()


def test_a_long_description_of_raw_contents_is_left_to_a_thread():
    made = message(item("T" * INLINE_TYPED_BYTES), raw=[FOUR]).SerializeToString()
    with pytest.raises(NotFast):
        decode_infer_request(made, on_loop=True)
    assert decode_infer_request(made).inputs[0].numpy().tolist() == [[1, 2, 3, 4]]


def test_long_raw_contents_are_read_at_once():
    made = message(item("T", "UINT8", (10**6,)), raw=[bytes(10**6)]).SerializeToString()
    assert decode_infer_request(made, on_loop=True).inputs[0].size_bytes == 10**6


def test_very_many_fields_are_left_to_a_thread_and_refused_there():
    made = message(item(), raw=[FOUR]).SerializeToString() + b"\x3a\x00" * 100_000
    with pytest.raises(NotFast):
        decode_infer_request(made, on_loop=True)
    with pytest.raises(InvalidRequest, match="more than 65536 fields"):
        decode_infer_request(made)


def test_a_request_of_thousands_of_inputs_is_read():
    items = [item(f"I{number}") for number in range(10_000)]
    request = decode_infer_request(message(*items, raw=[FOUR] * 10_000).SerializeToString())
    assert len(request.inputs) == 10_000
    assert request.inputs[9999].numpy().tolist() == [[1, 2, 3, 4]]


# --- raw requests ---


def test_a_raw_request_is_read_with_its_names_and_bytes():
    request = decoded(item(), item("INPUT1"), raw=[FOUR, FOUR], id="42", model_version="3")
    assert (request.model, request.version, request.id) == ("m", "3", "42")
    assert [t.name for t in request.inputs] == ["INPUT0", "INPUT1"]
    assert request.inputs[0].numpy().tolist() == [[1, 2, 3, 4]]
    assert request.outputs == [] and request.binary_output


@pytest.mark.parametrize("datatype", DataType)
def test_every_datatype_is_read_raw(datatype):
    tensor = sample(datatype)
    request = decoded(item("T", datatype.value, (3,)), raw=[bytes(tensor.data)])
    assert request.inputs[0].datatype is datatype
    assert bytes(request.inputs[0].data) == bytes(tensor.data)


def test_string_is_read_as_bytes():
    assert (
        decoded(item("T", "STRING", (1,)), raw=[b"\1\0\0\0a"]).inputs[0].datatype.value == "BYTES"
    )
    assert decoded(item("T", "STRING", (1,), bytes_contents=[b"a"])).inputs[0].strings() == [b"a"]


def test_large_raw_inputs_are_views_into_the_message():
    values = np.arange(10_000, dtype="<f4")
    data = message(
        item("A", shape=(10_000,)), item("B", shape=(1,)), raw=[values.tobytes(), FOUR[:4]], id="x"
    ).SerializeToString()
    request = decode_infer_request(data)
    assert np.array_equal(request.inputs[0].numpy(), values)
    assert request.inputs[0].data.obj is data
    assert (request.id, bytes(request.inputs[1].data)) == ("x", FOUR[:4])


def test_requests_alike_but_for_data_and_id_do_not_share_what_can_change():
    output = wanted(classification=pb.InferParameter(int64_param=2))
    tensor = item()
    tensor.parameters["k"].int64_param = 1
    parameters = {
        "p": pb.InferParameter(int64_param=1),
        "sequence_id": pb.InferParameter(int64_param=1),
    }
    more = {"outputs": [output], "parameters": parameters}
    first = decoded(tensor, raw=[FOUR], id="a", **more)
    expected = decoded(tensor, raw=[bytes(16)], id="b", **more)
    first.parameters["p"] = first.inputs[0].parameters["k"] = 9
    first.outputs[0].name = first.inputs[0].name = first.model = "changed"
    first.sequence.end = True
    first.inputs.clear()
    second = decoded(tensor, raw=[bytes(16)], id="b", **more)
    assert second == expected
    assert (second.id, bytes(second.inputs[0].data)) == ("b", bytes(16))


def test_a_message_says_the_same_however_often_its_like_has_come():
    for number in range(100):
        request_id, data = f"{number:03}", number.to_bytes(16, "big")
        request = decoded(item("known"), raw=[data], id=request_id)
        assert (request.id, request.inputs[0].name) == (request_id, "known")
        assert bytes(request.inputs[0].data) == data
    assert refusal(item("known", "FP64"), raw=[bytes(16)], id="100")
    assert decoded(item("knowm"), raw=[bytes(16)], id="100").inputs[0].name == "knowm"


def test_the_contents_of_a_known_message_are_checked():
    strings = [bytes(encode_strings([word], "T")) for word in (b"abcd", b"efgh")]
    for _ in range(3):
        for data in strings:
            assert decoded(item("S", "BYTES", (1,)), raw=[data]).inputs[0].strings()
    assert "S" in refusal(item("S", "BYTES", (1,)), raw=[b"\0" * 8])
    data = message(item(), raw=[FOUR]).SerializeToString()
    for _ in range(3):
        assert decode_infer_request(data + b"\x1a\x02id").id == "id"
    with pytest.raises(InvalidRequest, match="UTF-8"):
        decode_infer_request(data + b"\x1a\x02\xff\xff")


def test_nothing_is_remembered_of_a_message_with_more_raw_contents_than_inputs():
    data = message(item("many"), raw=[b""] * 1000).SerializeToString()
    tracemalloc.start()
    try:
        for _ in range(3):
            with pytest.raises(InvalidRequest, match="1000 entries"):
                decode_infer_request(data)
        retained_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert retained_bytes < 30_000  # a layout would have a thousand places


def test_an_id_that_is_not_utf8_is_invalid():
    data = message(item(), raw=[FOUR]).SerializeToString()
    with pytest.raises(InvalidRequest, match="UTF-8"):
        decode_infer_request(data + b"\x1a\x01\xff")


def test_more_parameters_than_are_remembered_are_read():
    parameters = {"p": pb.InferParameter(string_param="x" * 2000)}
    request = decoded(item(), raw=[FOUR], parameters=parameters)
    assert request.parameters == {"p": "x" * 2000}


def test_a_large_typed_request_is_read_too():
    values = list(range(10_000))
    request = decoded(item("A", "INT64", (10_000,), int64_contents=values))
    assert request.inputs[0].numpy().tolist() == values


def test_a_large_message_with_unknown_fields_is_read_by_the_parser():
    extra = b"\xa0\x06\x01"  # field 100, a varint
    data = message(item(shape=(10_000,)), raw=[bytes(40_000)]).SerializeToString()
    assert decode_infer_request(extra + data).inputs[0].size_bytes == 40_000


def test_a_large_message_cut_short_is_invalid():
    data = message(item(shape=(10_000,)), raw=[bytes(40_000)]).SerializeToString()
    with pytest.raises(InvalidRequest, match="cannot be read"):
        decode_infer_request(data[:-1])
    with pytest.raises(InvalidRequest, match="cannot be read"):
        decode_infer_request(data + b"\x3a\xff\xff\xff\xff\xff")


def test_garbage_is_invalid():
    with pytest.raises(InvalidRequest, match=r"inference\.ModelInferRequest"):
        decode_infer_request(b"\xff\xff\xff")


def test_an_id_that_is_not_utf8_is_invalid_though_another_one_counts():
    wrong = b"\x1a\x01\xff" + message(item(), raw=[FOUR], id="x").SerializeToString()
    with pytest.raises(InvalidRequest, match="cannot be read"):
        decode_infer_request(wrong)


def test_text_that_is_not_utf8_is_invalid():
    with pytest.raises(InvalidRequest, match="cannot be read"):
        decode_infer_request(b"\x0a\x01\xff")


def test_an_empty_message_is_a_request_without_inputs():
    assert decode_infer_request(b"").inputs == []


# --- typed requests ---


def test_a_typed_request_wants_a_typed_answer():
    request = decoded(item(fp32_contents=[1, 2, 3, 4]))
    assert request.inputs[0].numpy().tolist() == [[1, 2, 3, 4]]
    assert not request.binary_output


def test_a_raw_request_whose_contents_are_there_but_empty_wants_a_raw_answer():
    one = item()
    one.contents.SetInParent()
    made = message(one, raw=[FOUR]).SerializeToString()
    for _ in range(4):  # the later ones are only compared
        assert decode_infer_request(made).binary_output


# --- wanted outputs ---


def wanted(**parameters):
    return pb.ModelInferRequest.InferRequestedOutputTensor(name="OUT", parameters=parameters)


def test_wanted_outputs_are_read_in_order():
    outputs = [pb.ModelInferRequest.InferRequestedOutputTensor(name=name) for name in "BA"]
    assert decoded(outputs=outputs).outputs == [WantedOutput("B"), WantedOutput("A")]


def test_classification_is_the_top_k_of_an_output():
    output = wanted(classification=pb.InferParameter(int64_param=2))
    assert decoded(outputs=[output]).outputs == [WantedOutput("OUT", top_k=2)]


@pytest.mark.parametrize(
    "value",
    [{"int64_param": 0}, {"int64_param": -1}, {"string_param": "2"}, {"uint64_param": 2}, {}],
)
def test_other_classifications_are_invalid(value):
    output = wanted(classification=pb.InferParameter(**value))
    assert "'classification'" in refusal(outputs=[output])


def test_binary_data_and_unknown_parameters_of_an_output_are_ignored():
    output = wanted(binary_data=pb.InferParameter(bool_param=False), other=pb.InferParameter())
    assert decoded(outputs=[output]).outputs == [WantedOutput("OUT")]


def test_parameters_of_an_input_are_retained():
    given_one = item()
    given_one.parameters["k"].int64_param = 5
    given_one.parameters["unset"].SetInParent()
    assert decoded(given_one, raw=[FOUR]).inputs[0].parameters == {"k": 5}


# --- answers ---


def answered(response, request=None, **options):
    buffers = V2Grpc(**options).encode(request or InferRequest("m"), response)
    return pb.ModelInferResponse.FromString(b"".join(buffers))


@pytest.mark.parametrize("datatype", DataType)
def test_every_datatype_is_answered_raw(datatype):
    tensor = sample(datatype)
    answer = answered(InferResponse("m", "1", outputs=[tensor]))
    assert (answer.model_name, answer.model_version, answer.id) == ("m", "1", "")
    [output] = answer.outputs
    assert (output.name, output.datatype, list(output.shape)) == ("T", datatype.value, [3])
    assert not output.HasField("contents")
    assert list(answer.raw_output_contents) == [bytes(tensor.data)]


def test_the_id_of_the_request_is_echoed():
    assert answered(InferResponse("m", "1"), InferRequest("m", id="näh")).id == "näh"


def test_empty_outputs_have_their_raw_entry():
    outputs = [
        Tensor("A", DataType.FP32, (0,), np.empty(0, "<f4")),
        Tensor("B", DataType.FP32, (1, 1), np.ones((1, 1), "<f4")),
    ]
    answer = answered(InferResponse("m", "1", outputs=outputs))
    assert list(answer.raw_output_contents) == [b"", np.ones(1, "<f4").tobytes()]


def test_large_output_data_are_not_copied():
    array = np.zeros(4000, "<f4")
    tensor = Tensor("A", DataType.FP32, (4000,), array)
    buffers = V2Grpc().encode(InferRequest("m"), InferResponse("m", "1", outputs=[tensor]))
    assert any(isinstance(b, memoryview) and b.obj is array for b in buffers)


def test_response_and_output_parameters_are_sent():
    tensor = Tensor("A", DataType.INT8, (1,), b"\1", {"scale": 0.5})
    parameters = {"b": True, "i": -5, "s": "x", "d": 1.5, "u": 2**64 - 1}
    answer = answered(InferResponse("m", "1", outputs=[tensor], parameters=parameters))
    kinds = {
        name: choice.WhichOneof("parameter_choice") for name, choice in answer.parameters.items()
    }
    assert kinds == {
        "b": "bool_param",
        "i": "int64_param",
        "s": "string_param",
        "d": "double_param",
        "u": "uint64_param",
    }
    assert answer.outputs[0].parameters["scale"].double_param == 0.5
    assert answer.raw_output_contents[0] == b"\1"


RAW_ONLY = (DataType.FP16, DataType.BF16)


@pytest.mark.parametrize("datatype", [d for d in DataType if d not in RAW_ONLY])
def test_a_typed_request_is_answered_typed_by_option(datatype):
    tensor = sample(datatype)
    typed = InferRequest("m", binary_output=False)
    response = InferResponse("m", "1", outputs=[tensor, sample(DataType.FP32, "U", 0)])
    answer = answered(response, typed, typed_answers=True)
    assert list(answer.raw_output_contents) == []
    assert all(output.HasField("contents") for output in answer.outputs)
    back = decode_infer_response(answer.SerializeToString())
    assert bytes(memoryview(back.outputs[0].data)) == bytes(tensor.data)
    assert not answered(response, typed).outputs[0].HasField("contents")


def test_a_raw_request_is_answered_raw_whatever_the_option():
    raw = InferRequest("m", binary_output=True)
    answer = answered(
        InferResponse("m", "1", outputs=[sample(DataType.FP32)]), raw, typed_answers=True
    )
    assert len(answer.raw_output_contents) == 1


@pytest.mark.parametrize("half", RAW_ONLY)
def test_a_half_makes_the_whole_answer_raw(half):
    response = InferResponse("m", "1", outputs=[sample(DataType.FP32), sample(half)])
    answer = answered(response, InferRequest("m", binary_output=False), typed_answers=True)
    assert len(answer.raw_output_contents) == 2


def test_an_answer_no_message_can_hold_is_refused():
    tensors = [Tensor("T", DataType.INT8, (2**20,), bytes(2**20))] * 2048
    with pytest.raises(InvalidRequest, match="2147483647"):
        V2Grpc().encode(InferRequest("m"), InferResponse("m", "1", outputs=tensors))


# --- the client's side ---


def test_a_request_survives_the_way_to_the_server():
    request = with_fields(
        InferRequest(
            "m",
            "2",
            "id",
            [sample(datatype, datatype.value) for datatype in DataType],
            [WantedOutput("A"), WantedOutput("B", top_k=3)],
            {"a": 1, "b": True, "c": "x", "d": 0.25},
            binary_output=True,
        ),
        priority=2,
        timeout_us=5,
        sequence=Sequence("s", start=True),
        empty_final=True,
    )
    decoded = decode_infer_request(b"".join(encode_infer_request(request)))
    request.batch_key = decoded.batch_key
    assert decoded == request


def test_the_reserved_parameters_travel_as_triton_expects_them():
    request = with_fields(
        InferRequest("m"), priority=2, timeout_us=5, sequence=Sequence(7, end=True)
    )
    sent = pb.ModelInferRequest.FromString(b"".join(encode_infer_request(request)))
    assert sent.parameters["priority"].uint64_param == 2
    assert sent.parameters["timeout"].int64_param == 5
    assert sent.parameters["sequence_id"].int64_param == 7
    assert sent.parameters["sequence_end"].bool_param


def test_an_integer_of_more_than_64_bits_cannot_be_sent():
    with pytest.raises(InvalidRequest, match="'big'"):
        encode_infer_request(InferRequest("m", parameters={"big": 2**64}))


def test_an_answer_survives_the_way_to_the_client():
    response = InferResponse(
        "m", "1", "x", [sample(datatype, datatype.value) for datatype in DataType], {"p": 1}
    )
    data = b"".join(V2Grpc().encode(InferRequest("m", id="x"), response))
    back = decode_infer_response(data)
    for tensor in response.outputs:
        tensor.data = bytes(tensor.data)
    assert back == response


def test_a_parameter_marks_the_last_answer():
    answer = pb.ModelInferResponse(model_name="m")
    answer.parameters["triton_final_response"].bool_param = False
    assert not decode_infer_response(answer.SerializeToString()).final
    assert decode_infer_response(b"").final


@pytest.mark.parametrize("final", [True, False])
@pytest.mark.parametrize("claim", [True, False, "no"])
def test_a_model_does_not_decide_which_answer_of_a_stream_is_the_last(claim, final):
    given = {"triton_final_response": claim, "p": 1}
    response = InferResponse("m", "1", "x", [sample(DataType.FP32)], given, final)
    data = b"".join(V2Grpc().encode_stream(InferRequest("m", id="x"), response))
    answer = pb.ModelStreamInferResponse.FromString(data).infer_response
    reported = answer.parameters["triton_final_response"]
    assert (reported.WhichOneof("parameter_choice"), reported.bool_param) == ("bool_param", final)
    assert answer.parameters["p"].int64_param == 1 and len(answer.raw_output_contents) == 1


@pytest.mark.parametrize(
    "answer",
    [
        b"\xff",
        pb.ModelInferResponse(raw_output_contents=[b""]).SerializeToString(),
        pb.ModelInferResponse(outputs=[{"name": "A", "datatype": "X"}]).SerializeToString(),
    ],
)
def test_a_malformed_answer_is_the_servers_fault(answer):
    with pytest.raises(InferdError, match="answer is malformed") as caught:
        decode_infer_response(answer)
    assert caught.value.code is Code.INTERNAL


# --- whatever comes ---


SEEDS = [
    message(item(), item("INPUT1"), raw=[FOUR, FOUR], id="42").SerializeToString(),
    message(
        item(fp32_contents=[1, 2, 3, 4]),
        item("S", "BYTES", (2,), bytes_contents=[b"a", b"b"]),
        outputs=[wanted(classification=pb.InferParameter(int64_param=1))],
        parameters={"priority": pb.InferParameter(uint64_param=1), "x": pb.InferParameter()},
    ).SerializeToString(),
    message(item(shape=(5000,)), raw=[bytes(20_000)]).SerializeToString(),
]


def only_inferd_errors(data):
    for decode in (decode_infer_request, decode_infer_response):
        try:
            found = decode(data)
        except InferdError:
            continue
        for tensor in found.inputs if isinstance(found, InferRequest) else found.outputs:
            assert tensor.numpy().shape == tensor.shape


@given(st.binary(max_size=300))
def test_random_bytes_raise_nothing_but_our_errors(data):
    only_inferd_errors(data)


@pytest.mark.slow
@settings(max_examples=300)
@given(st.data())
def test_damaged_messages_raise_nothing_but_our_errors(data):
    damaged = bytearray(data.draw(st.sampled_from(SEEDS)))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, min(len(damaged) - 1, 200)))
        damaged[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    only_inferd_errors(bytes(damaged))


@settings(max_examples=300)
@given(st.data())
def test_a_damaged_message_means_the_same_as_to_another_parser(data):
    damaged = bytearray(SEEDS[0])
    at = data.draw(st.integers(0, len(damaged) - 1))
    damaged[at] = data.draw(st.integers(0, 255))
    try:
        request = decode_infer_request(bytes(damaged))
    except InferdError:
        return
    theirs = pb.ModelInferRequest.FromString(bytes(damaged))
    assert (request.model, request.version, request.id) == (
        theirs.model_name,
        theirs.model_version,
        theirs.id,
    )
    assert [t.name for t in request.inputs] == [t.name for t in theirs.inputs]
    assert [bytes(t.data) for t in request.inputs] == list(theirs.raw_input_contents)
