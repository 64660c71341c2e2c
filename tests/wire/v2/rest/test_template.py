"""Requests that are only compared with one before: they mean what reading them would tell."""

import contextlib
import gc
import json
import os
import weakref

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferd.aio.inline import NotFast
from inferd.errors import InferdError, InvalidRequest, RegionNotFound
from inferd.shm.regions import Regions
from inferd.shm.system import SystemRegion
from inferd.tensor.dtype import DataType
from inferd.wire.v2.rest.codec import JsonRules, V2Rest
from inferd.wire.v2.rest.template import MOST_BYTES

TIMES = 3  # after so many requests that are alike the next one is only compared
NUMBERS = [d for d in DataType if d not in (DataType.BYTES, DataType.FP16, DataType.BF16)]


def codec():
    return V2Rest(JsonRules(half_floats=True, non_finite="tokens", max_json_bytes=2**26))


def text_of(document):
    return json.dumps(document, separators=(",", ":")).encode()


def numbers(name="x", values=(1, 2), datatype="INT32", **more):
    return {
        "name": name, "shape": [len(values)], "datatype": datatype, **more, "data": list(values),
    }  # fmt: skip


def binary(name="x", shape=(2,), datatype="INT32", size=8):
    parameters = {"binary_data_size": size}
    return {"name": name, "shape": shape, "datatype": datatype, "parameters": parameters}


def decode(reader, text, tail=b""):
    return reader.decode_infer_request("m", "3", memoryview(text + tail), len(text))


def outcome(reader, text, tail=b""):
    """What a request says, or what is said against it."""
    try:
        request = decode(reader, text, tail)
    except InferdError as error:
        return error.message
    except NotFast:
        return "not here"
    tensors = [(t.name, t.datatype, t.shape, bytes(t.view()), t.parameters) for t in request.inputs]
    found = request.asdict() | {"inputs": None, "batch_key": None}
    if request.spans is not None:
        found["outputs"] = [
            one.asdict() | {"place": extent_of(one.place)} for one in request.outputs
        ]
        found["spans"] = list(map(extent_of, request.spans))
    return repr(found), tensors


def extent_of(span):
    return span and span.extent


def acquainted(text, tail=b""):
    """A codec that has seen such a text a few times."""
    reader = codec()
    for _ in range(TIMES):
        outcome(reader, text, tail)
    return reader


def is_known(text, tail=b""):
    reader = acquainted(text, tail)
    first, second = decode(reader, text, tail), decode(reader, text, tail)
    return first.batch_key is not None and first.batch_key is second.batch_key


# --- what is remembered ---


@pytest.mark.parametrize("request_id", [{}, {"id": "a-1"}, {"id": ""}])
@pytest.mark.parametrize("datatype", NUMBERS)
def test_numbers_and_ids_may_change(datatype, request_id):
    values = [True, False] if datatype is DataType.BOOL else [0, 1]
    one = numbers("a", values, datatype.value)
    reader = acquainted(text_of(request_id | {"inputs": [one, one | {"name": "b"}]}))
    batch_key = decode(
        reader, text_of(request_id | {"inputs": [one, one | {"name": "b"}]})
    ).batch_key
    other = numbers("b", values[::-1], datatype.value)
    text = text_of(request_id | {"inputs": [one, other], "outputs": []})
    text = text.replace(b',"outputs":[]', b"").replace(b"a-1", b"b-22")
    request = decode(reader, text)
    assert request.batch_key is batch_key is not None
    assert request.id == request_id.get("id", "").replace("a-1", "b-22")
    assert [t.numpy().tolist() for t in request.inputs] == [values, values[::-1]]
    assert outcome(reader, text) == outcome(codec(), text)


def test_binary_data_are_views_into_the_body():
    text = text_of({"id": "7", "inputs": [binary("a"), binary("b")]})
    reader = acquainted(text, bytes(16))
    body = bytearray(text + np.arange(4, dtype="<i4").tobytes())
    request = reader.decode_infer_request("m", "", memoryview(body), len(text))
    assert request.batch_key is not None
    assert [t.numpy().tolist() for t in request.inputs] == [[0, 1], [2, 3]]
    body[len(text)] = 9
    assert request.inputs[0].numpy().tolist() == [9, 1]


def test_what_is_said_beside_the_inputs_is_each_requests_own():
    parameters = {"mine": 1, "sequence_id": 5, "sequence_start": True, "priority": 2}
    wanted = [{"name": "y", "parameters": {"binary_data": True, "classification": 2}}]
    text = text_of({"inputs": [numbers()], "outputs": wanted, "parameters": parameters})
    reader = acquainted(text)
    first, second = decode(reader, text), decode(reader, text)
    assert first.batch_key is second.batch_key is not None
    first.parameters["more"] = 1
    first.sequence.end = True
    assert outcome(reader, text) == outcome(codec(), text)
    assert second.parameters == {"mine": 1}
    assert not second.sequence.end


def test_a_text_that_comes_once_is_not_learned():
    reader = codec()
    text = text_of({"inputs": [numbers()]})
    assert decode(reader, text).batch_key is None
    assert decode(reader, text).batch_key is None  # now it is
    assert decode(reader, text).batch_key is not None


def test_texts_that_begin_alike_are_distinguished():
    texts = [
        text_of({"inputs": [numbers("a"), numbers("b", range(count))]}) for count in range(1, 4)
    ]
    reader = codec()
    for _ in range(5):
        for text in texts:
            assert outcome(reader, text) == outcome(codec(), text)
    assert len({id(decode(reader, text).batch_key) for text in texts}) == 3


def test_all_spellings_json_modules_write_are_known():
    document = {"id": "5", "inputs": [numbers()], "outputs": [{"name": "y"}]}
    assert is_known(text_of(document))
    assert is_known(json.dumps(document).encode())


@pytest.mark.parametrize(
    "document",
    [
        {"inputs": [numbers(values=["a", "b"], datatype="BYTES")]},
        {"inputs": [numbers(values=[1, 2], datatype="FP16")]},
        {"inputs": [numbers() | {"shape": [-1]}]},
        {"inputs": [numbers() | {"shape": [1, 2], "data": [[1, 2]]}]},
        {"inputs": [numbers(parameters={"mine": 1})]},
        {"inputs": [numbers(name="x" * 2000)]},
        {"inputs": [numbers(values=[1] * MOST_BYTES)]},
    ],
)
def test_what_is_unusual_is_read_each_time(document):
    assert not is_known(text_of(document))
    assert outcome(acquainted(text_of(document)), text_of(document)) == outcome(
        codec(), text_of(document)
    )


# --- shared memory ---

VALUES = np.arange(4, dtype=np.int32)


def at(offset, region="r", size=16):
    names = ("shared_memory_region", "shared_memory_offset", "shared_memory_byte_size")
    return dict(zip(names, (region, offset, size), strict=True))


def in_regions(given=None, wanted=None, **more):
    """The text of a request whose input and output lie in shared memory."""
    one = {"name": "x", "shape": [4], "datatype": "INT32", "parameters": given or at(16)}
    outputs = [{"name": "z"}, {"name": "y", "parameters": wanted or at(32)}]
    return text_of({**more, "inputs": [one], "outputs": outputs})


@pytest.fixture
def owned(shared):
    """The object of which `regions` has parts."""
    return shared(64)


@pytest.fixture
def regions(owned):
    """Regions with "r", 64 bytes of `owned`."""
    made = Regions(allowed=True)
    made.add(made.open_system("r", owned.key, 0, 64))
    yield made
    made.close()


def shared_codec(regions):
    return V2Rest(
        JsonRules(half_floats=True, non_finite="tokens", max_json_bytes=2**26), regions.span
    )


def acquainted_with(regions, text):
    reader = shared_codec(regions)
    for _ in range(TIMES):
        outcome(reader, text)
    return reader


@pytest.mark.parametrize("request_id", [{}, {"id": "a-1"}])
def test_what_lies_in_shared_memory_is_found_by_each_request(regions, request_id, owned):
    text = in_regions(**request_id)
    reader = acquainted_with(regions, text)
    owned.write(VALUES, 16)
    first, second = decode(reader, text), decode(reader, text.replace(b"a-1", b"b-22"))
    assert first.batch_key is second.batch_key is not None
    assert second.id == request_id.get("id", "").replace("a-1", "b-22")
    assert second.inputs[0].numpy().tolist() == VALUES.tolist()
    assert [one.place is not None for one in second.outputs] == [False, True]
    assert [span.extent[1] for span in second.spans] == [16, 32]
    assert first.outputs[1] is not second.outputs[1]


def test_each_place_is_known_by_itself(regions):
    texts = [in_regions(at(16 * one), at(16 * one + 16)) for one in range(3)]
    reader = shared_codec(regions)
    for text in texts * TIMES:
        decode(reader, text)
    for one, text in enumerate(texts):
        request = decode(reader, text)
        assert request.batch_key is not None
        assert [span.extent[1] for span in request.spans] == [16 * one, 16 * one + 16]


@pytest.mark.parametrize("kind", ["input", "output"])
def test_a_known_region_that_is_gone_is_complained_of_as_ever(regions, kind, owned):
    other = at(0, "s")
    text = in_regions(**({"given": other} if kind == "input" else {"wanted": other}))
    regions.add(regions.open_system("s", owned.key, 0, 64))
    reader = acquainted_with(regions, text)
    assert decode(reader, text).batch_key is not None
    regions.unregister(SystemRegion, "s")
    with pytest.raises(RegionNotFound, match="'s'"):
        decode(reader, text)
    regions.add(regions.open_system("s", owned.key, 0, 8))
    with pytest.raises(InvalidRequest, match="bytes 0 to 16 are not inside"):
        decode(reader, text)
    regions.unregister(SystemRegion, "s")
    regions.add(regions.open_system("s", owned.key, 0, 16))
    assert decode(reader, text).batch_key is not None


def test_an_object_that_shrank_is_noticed_by_known_requests(regions, owned):
    text = in_regions()
    reader = acquainted_with(regions, text)
    assert decode(reader, text).batch_key is not None
    os.truncate(f"/dev/shm{owned.key}", 32)
    with pytest.raises(InvalidRequest, match="has shrunk"):
        decode(reader, text)


def test_what_is_known_keeps_no_memory(regions, shared):
    more = shared(64)
    regions.add(regions.open_system("s", more.key, 0, 64))
    text = in_regions(at(0, "s"), at(32, "s"))
    reader = acquainted_with(regions, text)
    assert decode(reader, text).batch_key is not None
    mapping = weakref.ref(decode(reader, text).spans[0].view.obj)
    regions.unregister(SystemRegion, "s")
    gc.collect()
    assert mapping() is None


@pytest.mark.parametrize(
    "given",
    [
        at(-1), at("0"), at(True), at(0.5), at(0, 5), at(0, size=None), at(0, size=15),
        at(64), at(0) | {"mine": 1}, at(0) | {"binary_data_size": 16}, at(2**63), at(None), {},
    ],
)  # fmt: skip
def test_unusual_references_mean_what_reading_tells(regions, given):
    for text in (in_regions(given=given), in_regions(wanted=given)):
        reader = shared_codec(regions)
        outcomes = [outcome(reader, text) for _ in range(6)]
        assert outcomes == [outcome(shared_codec(regions), text)] * 6


# --- what must not be mistaken ---

TRICKS = [
    # another hole than the data of an input
    b'{"inputs":[{"name":"x","shape":[2],"datatype":"INT8","data":[1,2],"data":[3,4]}]}',
    b'{"inputs":[{"name":"x","shape":[2],"datatype":"INT8","d\\u0061ta":[1,2],"more":{"data":[3,4]}}]}',
    b'{"data":[7,8],"inputs":[{"name":"x","shape":[2],"datatype":"INT8","data":[1,2]}]}',
    b'{"data":[7,8],"inputs":[{"name":"x","shape":[2],"datatype":"INT8","d\\u0061ta":[1,2]}]}',
    b'{"inputs":[{"name":"x","shape":[2],"datatype":"INT8","x\\"data":[7,8],"data":[1,2]}]}',
    b'{"inputs":[{"name":"data","shape":[2],"datatype":"INT8","data":[1,2]}]}',
    b'{"inputs":[],"inputs":[{"name":"x","shape":[2],"datatype":"INT8","data":[1,2]}]}',
    b'{"inputs":[{"name":"x","shape":[1],"datatype":"INT8","data":[1]}],'
    b'"inputs":[{"name":"y","shape":[1],"datatype":"INT8","data":[2]}]}',
    # another id than the first
    b'{"id":"1","inputs":[{"name":"x","shape":[2],"datatype":"INT8","data":[1,2]}],"id":"2"}',
    b'{"id":"1","inputs":[{"name":"x","shape":[2],"datatype":"INT8","data":[1,2]}],"id":null}',
    b'{"id":"1","i\\u0064":"1","inputs":[{"name":"x","shape":[2],"datatype":"INT8","data":[1,2]}]}',
    b'{"id":"1","id":"1","inputs":[{"name":"x","shape":[2],"datatype":"INT8","data":[1,2]}]}',
    b'{"id":"1"}',
    b'{"id":"1","inputs":[]}',
]


@pytest.mark.parametrize("text", TRICKS)
def test_a_hole_that_only_looks_like_one_is_no_hole(text):
    reader = acquainted(text)
    for other in (
        text,
        text.replace(b"[1,2]", b"[5,6]"),
        text.replace(b"[7", b"[9"),
        text.replace(b"[3", b"[9"),
        text.replace(b'"id":"1"', b'"id":"9"', 1),
        text.replace(b'"id":"2"', b'"id":"9"'),
        text.replace(b'"data":[1', b'"data":[2'),
    ):
        assert outcome(reader, other) == outcome(codec(), other)


@pytest.mark.parametrize(
    "data",
    [
        *("[1]", "[1,2,3]", "[]", "[1,]", "[,1]", "[1 2]", "[ 1 , 2 ]", " [1,2]", "[1,2] "),
        *("[1,2", "1,2]", "[1]2]", "[1,2]]", "[[1,2]]", "[1,[2]]", "{}", "", '"AQI="'),
        *("[1.0,2]", "[1e2,2]", "[300,2]", "[9223372036854775808,1]", "[-0,1]", "[NaN,1]"),
        *("[true,2]", '["a",2]', "[null,2]"),
    ],
)
@pytest.mark.parametrize("datatype", ["INT8", "UINT64", "FP32", "FP64", "BOOL"])
def test_other_data_are_read_or_refused_as_ever(datatype, data):
    values = [True, False] if datatype == "BOOL" else [1, 2]
    known = text_of({"inputs": [numbers(values=values, datatype=datatype)]})
    text = known.replace(text_of(values), data.encode())
    assert outcome(acquainted(known), text) == outcome(codec(), text)


@pytest.mark.parametrize("more", [b" ", b"x", b"}", b",[1,2]"])
@pytest.mark.parametrize("one", [numbers(), binary(size=0, shape=[0])])
def test_what_follows_a_known_text_is_not_overlooked(one, more):
    text = text_of({"inputs": [one]})
    assert outcome(acquainted(text), text + more) == outcome(codec(), text + more)


@pytest.mark.parametrize("tail", [b"", bytes(15), bytes(17)])
def test_a_body_of_another_length_is_refused_as_ever(tail):
    text = text_of({"inputs": [binary("a"), binary("b")]})
    message = outcome(acquainted(text, bytes(16)), text, tail)
    assert message == outcome(codec(), text, tail)
    assert "bytes" in message


names = st.sampled_from(["x", "data", '"data"', '"data":[1]', 'a\\"data', "id", "ä", "\n", "]"])
small = st.integers(0, 3)


@st.composite
def inputs(draw):
    name, datatype = draw(names), draw(st.sampled_from(["INT32", "FP32", "UINT8", "BOOL"]))
    if draw(st.booleans()):
        sized = draw(small)
        size = sized * DataType(datatype).size_bytes
        return binary(name, [sized], datatype, size), bytes(size)
    element = st.booleans() if datatype == "BOOL" else st.integers(0, 9)
    return numbers(name, draw(st.lists(element, max_size=3)), datatype), b""


@st.composite
def requests(draw):
    """The text of a request and what follows it."""
    parts = draw(st.lists(inputs(), min_size=1, max_size=3))
    document = {"id": draw(names)} if draw(st.booleans()) else {}
    members = [("inputs", [part for part, _ in parts])]
    if draw(st.booleans()):
        members.append(("outputs", [{"name": draw(names)}]))
    if draw(st.booleans()):
        members.append(("parameters", {draw(names): draw(st.sampled_from([1, "data", True]))}))
    document |= dict(draw(st.permutations(members)))
    separators = draw(st.sampled_from([(",", ":"), (", ", ": ")]))
    text = json.dumps(document, separators=separators, ensure_ascii=draw(st.booleans())).encode()
    return text, b"".join(tail for _, tail in parts)


@pytest.mark.slow
@given(requests(), st.data())
def test_whatever_is_changed_in_a_known_text_it_means_what_reading_tells(request, data):
    text, tail = request
    reader = acquainted(text, tail)
    assert outcome(reader, text, tail) == outcome(codec(), text, tail)
    for _ in range(5):
        at = data.draw(st.integers(0, len(text) - 1))
        other = data.draw(st.sampled_from(b'0179,:[]{}" \\.e-x'))
        changed = bytearray(text)
        if data.draw(st.booleans()):
            changed[at] = other
        else:
            changed.insert(at, other)
        assert outcome(reader, bytes(changed), tail) == outcome(codec(), bytes(changed), tail)


def test_of_many_texts_only_some_are_remembered():
    reader = codec()
    for number in range(2000):
        text = text_of({"inputs": [binary(f"x{number}", (1,), "INT8", 1)]})
        for _ in range(TIMES):
            with contextlib.suppress(NotFast):
                decode(reader, text, b"1")
    assert reader._templates._alike.cache_info().currsize <= 512


def test_texts_with_and_without_an_id_take_turns():
    reader, texts = codec(), []
    for id_ in ("", "a", "", "b", "c", ""):
        head = {"id": id_} if id_ else {}
        texts += [
            (text_of({**head, "inputs": [numbers()]}), b""),
            (text_of({**head, "inputs": [binary()]}), b"12345678"),
        ]
    for text, tail in texts * TIMES:
        assert outcome(reader, text, tail) == outcome(codec(), text, tail)


@pytest.mark.parametrize("one", [numbers(), binary(size=0, shape=[0])])
def test_a_text_without_its_id_or_with_another_before_it_is_refused_as_ever(one):
    document = {"inputs": [one]}
    plain, named = text_of(document), text_of({"id": "a", **document})
    only_id = named[: named.index(b",")]
    for known, text in [(named, named.removeprefix(only_id)), (plain, only_id + plain)]:
        message = outcome(acquainted(known), text)
        assert message == outcome(codec(), text)
        assert "failed to parse the request JSON buffer" in message
