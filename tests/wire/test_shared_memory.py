"""References to shared memory in both codecs, over real regions."""

import contextlib
import json

import numpy as np
import pytest
from tritonclient.grpc import service_pb2 as pb

from inferd.aio.inline import INLINE_STRING_BYTES, NotFast
from inferd.core.request import InferResponse, Span, WantedOutput
from inferd.errors import InferdError, InvalidRequest, RegionNotFound, Unsupported
from inferd.shm.regions import Regions
from inferd.tensor.dtype import DataType
from inferd.tensor.strings import encode_strings
from inferd.tensor.tensor import Tensor
from inferd.wire import shared_memory as v2_shared_memory
from inferd.wire.shared_memory import read_input, take_spans
from inferd.wire.v2.grpc import codec as v2_grpc
from inferd.wire.v2.rest.codec import JsonRules, V2Rest

RULES = JsonRules(half_floats=True, non_finite="tokens", max_json_bytes=2**26)
VALUES = np.arange(4, dtype=np.int32)
ABSENT = object()
SIZE = 2 << 20


@pytest.fixture
def owned(shared):
    """The object of which `regions` has parts."""
    return shared(SIZE)


@pytest.fixture
def regions(owned):
    """Regions with "r", 2 MiB of `owned`, and "s", its first 64 bytes."""
    made = Regions(allowed=True)
    made.add(made.open_system("r", owned.key, 0, SIZE))
    made.add(made.open_system("s", owned.key, 0, 64))
    yield made
    made.close()


def at(offset=ABSENT, size=16, region="r"):
    """The parameters of a tensor in shared memory."""
    values = {"region": region, "offset": offset, "byte_size": size}
    return {f"shared_memory_{key}": value for key, value in values.items() if value is not ABSENT}


class Rest:
    """Requests as JSON."""

    def __init__(self, resolve):
        self._codec = V2Rest(RULES, resolve) if resolve else V2Rest(RULES)

    def decode(self, inputs, outputs=(), data=None, typed=None):
        document = {
            "inputs": [self._input(**one) for one in inputs],
            "outputs": [{"name": name, "parameters": parameters} for name, parameters in outputs],
        }
        if typed:
            document["inputs"].append(self._input(typed, (4,)) | {"data": VALUES.tolist()})
        if data:
            size = {"binary_data_size": VALUES.nbytes}
            document["inputs"].append(self._input(data, (4,), "INT32", size))
        head = json.dumps(document).encode()
        body = memoryview(head + (VALUES.tobytes() if data else b""))
        try:
            return self._codec.decode_infer_request("m", "", body, len(head))
        except NotFast:
            return self._codec.decode_slowly("m", "", body, len(head))

    def _input(self, name, shape=(4,), datatype="INT32", parameters=None):
        one = {"name": name, "shape": shape, "datatype": datatype}
        return one | ({"parameters": parameters} if parameters else {})


class Repeated(Rest):
    """Requests as JSON, each after others that say the same: it is only compared."""

    def decode(self, *args, **more):
        for _ in range(3):
            with contextlib.suppress(InferdError):
                super().decode(*args, **more)
        return super().decode(*args, **more)


class Grpc:
    """Requests as messages."""

    def __init__(self, resolve):
        self._resolve = {"resolve": resolve} if resolve else {}

    def decode(self, inputs, outputs=(), data=None, typed=None):
        message = pb.ModelInferRequest(model_name="m", id="i")
        for one in inputs:
            self._input(message, **one)
        if typed:
            self._input(message, typed).contents.int_contents.extend(VALUES.tolist())
        if data:
            self._input(message, data)
            message.raw_input_contents.append(VALUES.tobytes())
        for name, parameters in outputs:
            self._set(message.outputs.add(name=name), parameters)
        encoded = message.SerializeToString()
        try:
            return v2_grpc.decode_infer_request(encoded, on_loop=True, **self._resolve)
        except NotFast:
            return v2_grpc.decode_infer_request(encoded, **self._resolve)

    def _input(self, message, name, shape=(4,), datatype="INT32", parameters=None):
        one = message.inputs.add(name=name, datatype=datatype, shape=shape)
        self._set(one, parameters or {})
        return one

    def _set(self, one, parameters):
        kinds = {str: "string_param", bool: "bool_param", int: "int64_param"}
        for key, value in parameters.items():
            setattr(one.parameters[key], kinds.get(type(value), "double_param"), value)


@pytest.fixture(params=[Rest, Repeated, Grpc])
def codec(request, regions):
    return request.param(regions.span)


def input_at(*args, name="x", shape=(4,), datatype="INT32", **parameters):
    return {
        "name": name, "shape": shape, "datatype": datatype, "parameters": at(*args) | parameters
    }  # fmt: skip


# --- inputs ---


def test_an_input_is_a_view_of_its_region(codec, regions, owned):
    owned.write(VALUES, 32)
    for _ in range(2):  # the second time from what is remembered
        request = codec.decode([input_at(32)])
        [tensor] = request.inputs
        assert (tensor.name, tensor.datatype, tensor.shape) == ("x", DataType.INT32, (4,))
        assert tensor.numpy().tolist() == [0, 1, 2, 3]
        assert tensor.parameters is None
        assert len(request.spans) == 1
    owned.memory[32] = 9
    assert tensor.numpy().tolist() == [9, 1, 2, 3]


def test_an_absent_offset_is_0(codec, regions, owned):
    owned.write(VALUES)
    assert codec.decode([input_at()]).inputs[0].numpy().tolist() == [0, 1, 2, 3]


def test_other_parameters_of_an_input_are_retained(codec):
    assert codec.decode([input_at(0, p=1)]).inputs[0].parameters == {"p": 1}


@pytest.mark.parametrize("also", [{"data": "d"}, {"typed": "d"}, {}])
def test_inputs_in_shared_memory_stand_beside_others_in_their_order(codec, regions, also, owned):
    owned.write(VALUES + 5)
    inputs = [input_at(0, name="a"), input_at(0, name="b")]
    request = codec.decode(inputs, **also)
    assert [one.name for one in request.inputs] == ["a", "b", *also.values()]
    found = [one.numpy()[0] for one in request.inputs]
    assert found == [5, 5, *[0] * len(also)]


def test_a_request_without_shared_memory_has_no_spans(codec):
    assert codec.decode([], data="d").spans is None


def test_strings_are_copied_so_that_they_stay_as_they_were_checked(codec, regions, owned):
    data = encode_strings([b"a", b"bc"], "x")
    owned.memory[: len(data)] = bytes(data)
    strings = input_at(0, len(data), shape=(2,), datatype="BYTES")
    [tensor] = codec.decode([strings]).inputs
    owned.memory[0] = 255
    assert tensor.strings() == [b"a", b"bc"]
    with pytest.raises(InvalidRequest, match="'x'"):
        codec.decode([strings])


def test_long_strings_are_copied_in_a_thread(regions, owned):
    element = bytes(INLINE_STRING_BYTES)
    data = encode_strings([element], "x")
    owned.memory[: len(data)] = bytes(data)
    strings = input_at(0, len(data), shape=(1,), datatype="BYTES")
    message = pb.ModelInferRequest(model_name="m")
    Grpc(None)._input(message, **strings)
    encoded = message.SerializeToString()
    with pytest.raises(NotFast):
        v2_grpc.decode_infer_request(encoded, on_loop=True, resolve=regions.span)
    [tensor] = v2_grpc.decode_infer_request(encoded, resolve=regions.span).inputs
    assert tensor.strings() == [element]
    assert Rest(regions.span).decode([strings]).inputs[0].strings() == [element]


class Elsewhere(Span):
    """A span whose memory is out of reach."""

    def __init__(self, size):
        super().__init__(memoryview(bytearray(size)), ((1,), 0, size), None, is_copy=True)

    def fetch(self):
        self.view[:] = b"\1" * len(self.view)


@pytest.mark.parametrize("kind", [Rest, Repeated, Grpc])
def test_memory_out_of_reach_is_fetched(kind):
    codec = kind(lambda region, offset, size: Elsewhere(size))
    [tensor] = codec.decode([input_at(0)]).inputs
    assert tensor.data.tobytes() == b"\1" * 16
    count = INLINE_STRING_BYTES + 1
    [large] = codec.decode([input_at(0, count, shape=(count,), datatype="INT8")]).inputs
    assert large.numpy().all()


def test_what_is_to_be_copied_has_a_limit():
    size = 2**31 + 1
    large = Span(np.empty(size, np.uint8).data, ((1,), 0, size), None, is_copy=True)
    with pytest.raises(InvalidRequest, match="'x' has 2147483649 bytes of shared memory"):
        read_input(Tensor("x", DataType.INT8, (size,), b""), large, "m", on_loop=False)


@pytest.mark.parametrize(
    ("one", "text"),
    [
        (input_at(0, 15), "Expected 16, got 15 bytes of shared memory for INT32 \\[4\\]"),
        (input_at(0, 0), "Expected 16, got 0 bytes of shared memory"),
        (input_at(0, 16, shape=(2**62,)), "got 16 bytes of shared memory"),
        (input_at(0, 16, shape=(-1,)), "'x'.* \\[-1\\]"),
        (input_at(0, ABSENT), "'x' names shared memory region 'r' without shared_memory_byte_size"),
        (input_at(-1), "'x': shared_memory_offset must be a number of bytes"),
        (input_at(0, -1), "'x': shared_memory_byte_size must be a number of bytes"),
        (input_at(0, "16"), "'x': shared_memory_byte_size must be a number of bytes"),
        (input_at(0, 16.0), "'x': shared_memory_byte_size must be a number of bytes"),
        (input_at(True), "'x': shared_memory_offset must be a number of bytes"),
        (input_at(""), "'x': shared_memory_offset must be a number of bytes"),
        (input_at(0, 16, 7), "'x': shared_memory_region must be a region's name"),
        (input_at(SIZE - 15), f"bytes {SIZE - 15} to {SIZE + 1} are not inside"),
        (input_at(56, 16, "s"), "region: 's' has .* bytes 56 to 72 are not inside"),
        (input_at(2**63 - 1, 2**63 - 1), "are not inside"),
        (input_at(0, 3, shape=(1,), datatype="BYTES"), "'x'"),
    ],
)
def test_a_reference_that_cannot_be_is_refused(codec, one, text):
    with pytest.raises(InvalidRequest, match=text):
        codec.decode([one])


@pytest.mark.parametrize("region", ["nope", "", "R", "r\0", "../r"])
def test_an_unknown_region_is_not_found(codec, region):
    with pytest.raises(RegionNotFound):
        codec.decode([input_at(0, 16, region)])
    with pytest.raises(RegionNotFound):
        codec.decode([], [("y", at(0, 16, region))], data="d")


@pytest.mark.parametrize("kind", [Rest, Repeated, Grpc])
def test_a_codec_without_regions_refuses_all(kind):
    with pytest.raises(Unsupported):
        kind(None).decode([input_at(0)])


def test_an_input_has_its_data_in_one_place():
    message = pb.ModelInferRequest(model_name="m")
    one = Grpc(None)._input(message, **input_at(0))
    one.contents.int_contents.extend([1, 2, 3, 4])
    with pytest.raises(InvalidRequest, match="'x' has typed contents beside shared_memory_region"):
        v2_grpc.decode_infer_request(message.SerializeToString())
    message.raw_input_contents.append(b"")
    with pytest.raises(InvalidRequest, match="typed contents beside shared_memory_region"):
        v2_grpc.decode_infer_request(message.SerializeToString())


@pytest.mark.parametrize("name", ["shared_memory_byte_size", "shared_memory_offset"])
@pytest.mark.parametrize("typed", [True, False])
@pytest.mark.parametrize("kind", ["input", "output"])
def test_a_place_without_its_region_is_refused_over_grpc(name, typed, kind):
    message = pb.ModelInferRequest(model_name="m")
    one = message.inputs.add(name="x", datatype="INT32", shape=[4])
    if typed:
        one.contents.int_contents.extend([1, 2, 3, 4])
    else:
        message.raw_input_contents.append(VALUES.tobytes())
    asked = message.outputs.add(name="x")
    (one if kind == "input" else asked).parameters[name].int64_param = 0
    text = f"'{name}' can not be specified without 'shared_memory_region' parameter for tensor 'x'"
    with pytest.raises(InvalidRequest, match=text):
        v2_grpc.decode_infer_request(message.SerializeToString())


def test_empty_contents_beside_a_region_ask_for_no_typed_answer(regions):
    message = pb.ModelInferRequest(model_name="m")
    Grpc(None)._input(message, **input_at(0)).contents.SetInParent()
    encoded = message.SerializeToString()
    assert v2_grpc.decode_infer_request(encoded, resolve=regions.span).binary_output


def test_raw_contents_belong_to_the_other_inputs_alone(regions):
    message = pb.ModelInferRequest(model_name="m")
    Grpc(None)._input(message, **input_at(0))
    message.raw_input_contents.append(VALUES.tobytes())
    with pytest.raises(InvalidRequest, match="1 entries for 0 tensors"):
        v2_grpc.decode_infer_request(message.SerializeToString(), resolve=regions.span)


# --- outputs ---


def test_an_output_has_its_place(codec, regions, owned):
    request = codec.decode([], [("y", at(8)), ("z", {})], data="d")
    [placed, plain] = request.outputs
    placed.place.view[:4] = b"here"
    assert owned.memory[8:12] == b"here"
    assert len(placed.place.view) == 16
    assert plain.place is None
    assert request.spans == [placed.place]


def test_an_output_may_have_a_region_and_no_binary_data(codec):
    [output] = codec.decode([], [("y", at(0) | {"binary_data": False})], data="d").outputs
    assert output.place is not None


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        (
            at(0) | {"classification": 2},
            "Output can't set both 'shared_memory_region' and 'classification': 'y' does",
        ),
        (at(0, ABSENT), "'y' names shared memory region 'r' without shared_memory_byte_size"),
        (at(-1), "'y': shared_memory_offset"),
        (at(SIZE), "are not inside"),
    ],
)
def test_an_output_whose_place_cannot_be_is_refused(codec, parameters, text):
    with pytest.raises(InvalidRequest, match=text):
        codec.decode([], [("y", parameters)], data="d")


@pytest.mark.parametrize("parameters", [at(0, 2**70), at(2**70), at("0"), at(0, 1.5), at(True)])
def test_over_rest_numbers_of_bytes_are_whole_numbers(regions, parameters):
    with pytest.raises(InvalidRequest):
        Rest(regions.span).decode([], [("y", parameters)], data="d")


def test_over_rest_a_place_and_binary_data_are_refused(regions):
    with pytest.raises(
        InvalidRequest, match="Output can't set both 'shared_memory_region' and 'binary_data'"
    ):
        Rest(regions.span).decode([], [("y", at(0) | {"binary_data": True})], data="d")


def bytes_at(places):
    return [
        {
            "name": f"x{index}",
            "shape": (place["shared_memory_byte_size"],),
            "datatype": "INT8",
            "parameters": place,
        }
        for index, place in enumerate(places)
    ]


def are_views(request):
    views = [span.view for span in request.spans]
    shared = [tensor.data for tensor in request.inputs if tensor.name != "d"]
    return [any(data is view for view in views) for data in shared]


@pytest.mark.parametrize(
    ("inputs", "outputs", "views"),
    [
        ([at(0)], [at(0)], [False]),
        ([at(0)], [at(15)], [False]),
        ([at(15)], [at(0)], [False]),
        ([at(0, 64)], [at(16, 4)], [False]),
        ([at(16)], [at(0, 64)], [False]),
        ([at(0, 64), at(4, 4)], [at(32, 4)], [False, True]),
        ([at(0, 16, "s")], [at(0)], [False]),
        ([at(0), at(16), at(40, 8)], [at(32, 4), at(12, 8)], [False, False, True]),
        ([at(8, 0), at(24)], [at(0), at(24)], [True, False]),
    ],
)
def test_an_input_that_an_output_is_to_be_written_over_is_copied(codec, inputs, outputs, views):
    wanted = [(f"y{i}", place) for i, place in enumerate(outputs)]
    request = codec.decode(bytes_at(inputs), wanted, data="d")
    assert are_views(request) == views
    for tensor, span in zip(request.inputs[: len(inputs)], request.spans, strict=False):
        assert bytes(tensor.data) == bytes(span.view)


def test_a_large_input_is_copied_by_who_may_take_long(codec, regions):
    size = INLINE_STRING_BYTES + 4
    given = [at(0, size)]
    request = codec.decode(bytes_at(given), [("y0", at(0))], data="d")
    assert are_views(request) == [False]
    request.inputs = [tensor for tensor in request.inputs if tensor.name != "d"]
    span = request.spans[0]
    request.inputs[0].data = span.view
    with pytest.raises(NotFast):
        take_spans(request, request.spans, on_loop=True)
    assert request.inputs[0].data is span.view


def test_more_than_a_request_may_have_is_not_copied(codec, monkeypatch):
    monkeypatch.setattr(v2_shared_memory, "MAX_COPY_BYTES", 15)
    with pytest.raises(InvalidRequest, match="have 16 bytes of shared memory; at most 15 are tak"):
        codec.decode(bytes_at([at(0)]), [("y0", at(0))], data="d")


@pytest.mark.parametrize(
    ("inputs", "outputs", "is_fine"),
    [
        ([at(0)], [at(16)], True),
        ([at(16)], [at(0)], True),
        ([at(0), at(0), at(8)], [at(24)], True),
        ([], [at(0), at(8)], False),
        ([], [at(0), at(0)], False),
        ([], [at(0, 64), at(8, 8), at(64)], False),
        ([], [at(0), at(16), at(32)], True),
        ([], [at(8, 0), at(0)], True),
        ([at(0, 16, "s")], [at(16)], True),
        ([at(0, 64)], [at(0), at(15)], False),
    ],
)
def test_outputs_lie_apart_from_each_other(codec, inputs, outputs, is_fine):
    requested = bytes_at(inputs)
    wanted = [(f"y{i}", place) for i, place in enumerate(outputs)]
    if is_fine:
        request = codec.decode(requested, wanted, data="d")
        assert len(request.spans) == len(inputs) + len(outputs)
        assert are_views(request) == [True] * len(inputs)
        return
    with pytest.raises(InvalidRequest, match=r"'y[01]' is to be written to shared memory"):
        codec.decode(requested, wanted, data="d")


# --- answers ---


def answered(place, parameters=None):
    wanted = [WantedOutput("y", place=place), WantedOutput("z", binary=True), WantedOutput("w")]
    tensors = [Tensor(one.name, DataType.INT32, (4,), VALUES) for one in wanted]
    tensors[0].data, tensors[0].parameters = b"", parameters
    return wanted, InferResponse("m", "1", outputs=tensors)


@pytest.mark.parametrize("parameters", [None, {"p": 1}])
def test_over_rest_a_placed_output_is_a_name_a_datatype_and_a_shape(regions, parameters):
    request = Rest(regions.span).decode([input_at(64)])
    request.outputs, response = answered(regions.span("r", 0, 16), parameters)
    buffers, json_size = V2Rest(RULES).encode_infer_response(request, response)
    body = b"".join(buffers)
    outputs = json.loads(body[:json_size])["outputs"]
    also = {"parameters": parameters} if parameters else {}
    assert outputs[0] == {"name": "y", "datatype": "INT32", "shape": [4]} | also
    assert body[json_size:] == VALUES.tobytes()
    assert outputs[2]["data"] == [0, 1, 2, 3]


@pytest.mark.parametrize("mirror_typed", [False, True])
def test_over_grpc_a_placed_output_has_an_empty_entry(regions, mirror_typed):
    request = Grpc(regions.span).decode([], [("y", at(0))], typed="x")
    request.outputs, response = answered(regions.span("r", 0, 16))
    buffers = v2_grpc.V2Grpc(typed_answers=mirror_typed).encode(request, response)
    message = pb.ModelInferResponse.FromString(b"".join(buffers))
    assert list(message.raw_output_contents) == [b"", VALUES.tobytes(), VALUES.tobytes()]


def test_each_request_has_its_places_looked_up_for_itself(regions):
    codec = Rest(regions.span)
    for _ in range(5):
        request = codec.decode([], outputs=[("y", at())], typed="x")
        assert request.spans == [request.outputs[0].place]
    regions.close()
    with pytest.raises(RegionNotFound):
        codec.decode([], outputs=[("y", at())], typed="x")
