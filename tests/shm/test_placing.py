import asyncio
import os

import numpy as np
import pytest
from fields import with_fields

from inferd.core.request import InferRequest, InferResponse, Span, WantedOutput
from inferd.errors import InvalidRequest, RegionFailed
from inferd.shm.placing import INLINE_BYTES, MAX_COPIED_BYTES, place_outputs
from inferd.shm.regions import Regions
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor

VALUES = np.arange(4, dtype=np.int32)


@pytest.fixture
def owned(shared):
    """The object of which `regions` has parts."""
    return shared(4096)


@pytest.fixture
def regions(owned):
    """Regions with one, "r", of the object `owned`."""
    made = Regions(allowed=True)
    made.add(made.open_system("r", owned.key, 0, 4096))
    yield made
    made.close()


def tensor(name, data=VALUES):
    return Tensor(name, DataType.INT32, (4,), data, {"p": 1})


def placed(spans, wanted, outputs):
    request = with_fields(InferRequest("m", outputs=wanted), spans=spans)
    response = InferResponse("m", "1", outputs=outputs)
    asyncio.run(place_outputs(request, response))
    return response.outputs


def test_an_output_goes_to_its_place_and_leaves_the_response(regions, owned):
    place = regions.span("r", 16, 20)
    owned.memory[32:36] = b"kept"
    [output] = placed([place], [WantedOutput("Y", place=place)], [tensor("Y")])
    assert output == Tensor("Y", DataType.INT32, (4,), b"", {"p": 1})
    assert owned.read(np.int32, 4, 16).tolist() == [0, 1, 2, 3]
    assert owned.memory[32:36] == b"kept"
    assert owned.memory[:16] == bytes(16)


def test_what_the_model_wrote_there_itself_is_not_copied(regions, owned):
    place = regions.span("r", 0, 16)
    array = np.frombuffer(place.view, np.int32)
    array[:] = 9
    [output] = placed([place], [WantedOutput("Y", place=place)], [tensor("Y", array)])
    assert output.data == b""
    assert owned.read(np.int32, 4).tolist() == [9] * 4


def test_nothing_is_written_when_one_output_does_not_fit(regions, owned):
    places = [regions.span("r", 0, 16), regions.span("r", 16, 15)]
    wanted = [WantedOutput(n, place=p) for n, p in zip("AB", places, strict=True)]
    with pytest.raises(RegionFailed, match=r"output 'B' \(15 bytes\) should be at least 16 bytes"):
        placed(places, wanted, [tensor("A"), tensor("B")])
    assert owned.memory[:32] == bytes(32)


def test_an_output_that_is_sent_is_no_view_of_shared_memory(regions, owned):
    """Or a client that reads slowly would read what it, or another one, writes there next."""
    span = regions.span("r", 0, 16)
    owned.write(VALUES)
    mine, copied = placed([span], [], [tensor("A"), tensor("B", span.view[:16])])
    assert mine.data is VALUES
    owned.memory[:16] = b"x" * 16
    assert bytes(copied.data) == VALUES.tobytes()
    assert copied.parameters == {"p": 1}


@pytest.mark.parametrize("size", [MAX_COPIED_BYTES + 1, 1 << 40])
def test_more_than_any_answer_has_is_not_copied_to_be_sent(shared, size):
    owned, regions = shared(16), Regions(allowed=True)
    os.truncate(owned.path, size)  # a hole takes no memory
    regions.add(regions.open_system("r", owned.key, 0, size))
    span = regions.span("r", 0, size)
    all_of_it = Tensor("Y", DataType.INT8, (size,), span.view)
    with pytest.raises(InvalidRequest, match=f"'Y' lies in shared memory and has {size} bytes"):
        placed([span], [], [all_of_it])
    del span, all_of_it
    regions.close()


def test_empty_outputs_have_a_place_too(regions):
    place = regions.span("r", 0, 0)
    empty = Tensor("Y", DataType.INT32, (0,), np.empty(0, np.int32))
    [output] = placed([place], [WantedOutput("Y", place=place)], [empty])
    assert output.data == b""


def test_strings_are_placed_with_their_lengths(regions, owned):
    place = regions.span("r", 0, 64)
    strings = Tensor.from_numpy("Y", np.array([b"a", b"bc"], np.object_), DataType.BYTES)
    placed([place], [WantedOutput("Y", place=place)], [strings])
    assert owned.memory[:11] == b"\1\0\0\0a\2\0\0\0bc"


@pytest.mark.parametrize("what", ["input", "output"])
def test_memory_that_goes_away_meanwhile_fails_the_request(regions, what, owned):
    span = regions.span("r", 0, 16)
    owned.resize(0)
    place, data = (None, span.view) if what == "input" else (span, VALUES)
    with pytest.raises(InvalidRequest, match="'r' shrank"):
        placed([span], [WantedOutput("Y", place=place)], [tensor("Y", data)])


def test_much_is_copied_off_the_event_loop(shared):
    size = INLINE_BYTES + 4
    owned, regions = shared(size), Regions(allowed=True)
    regions.add(regions.open_system("r", owned.key, 0, size))
    place = regions.span("r", 0, size)
    much = Tensor("Y", DataType.INT32, (size // 4,), np.arange(size // 4, dtype=np.int32))
    placed([place], [WantedOutput("Y", place=place)], [much])
    assert owned.read(np.int32, 2, size - 8).tolist() == [size // 4 - 2, size // 4 - 1]
    regions.close()


def test_a_place_where_the_data_are_already_is_not_written_to():
    place = Span(memoryview(VALUES.tobytes()), ((1,), 0, VALUES.nbytes), None)
    there = np.frombuffer(place.view, np.int32)
    [output] = placed([place], [WantedOutput("Y", place=place)], [tensor("Y", there)])
    assert output.data == b""
    with pytest.raises(TypeError, match="read-only"):
        placed([place], [WantedOutput("Y", place=place)], [tensor("Y", there.copy())])


class Elsewhere(Span):
    """A span whose memory is out of reach: `view` is a copy, `flushed` what was written back."""

    def __init__(self):
        super().__init__(memoryview(bytearray(32)), ((1,), 0, 32), None, is_copy=True)
        self.flushed = None

    def flush(self, size_bytes):
        self.flushed = bytes(self.view[:size_bytes])


def test_a_place_out_of_reach_gets_what_was_written_and_no_more():
    place = Elsewhere()
    placed([place], [WantedOutput("Y", place=place)], [tensor("Y")])
    assert place.flushed == VALUES.tobytes()
