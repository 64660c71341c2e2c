"""The tensors of ModelInferRequests: raw and typed, and what no tensor is."""

import pytest
from v2_grpc_messages import FOUR, decoded, item, message, refusal

from inferd.wire.v2.grpc.codec import decode_infer_request


@pytest.mark.parametrize("raw", [[FOUR], [FOUR, FOUR, FOUR]])
def test_raw_entries_must_be_as_many_as_inputs(raw):
    text = refusal(item(), item("INPUT1"), raw=raw)
    assert f"{len(raw)} entries for 2 tensors" in text
    assert ("'INPUT1' for model 'm' in request: raw contents" in text) is (len(raw) == 1)


def test_empty_contents_may_stand_beside_raw_ones():
    inputs = [item(), item("INPUT1")]
    for one in inputs:
        one.contents.SetInParent()
    requested = message(*inputs, raw=[FOUR, FOUR]).SerializeToString()
    for _ in range(3):  # read whole, then compared with what was read before
        request = decode_infer_request(requested)
        assert [bytes(one.data) for one in request.inputs] == [FOUR, FOUR]
        assert request.binary_output  # it is answered raw, too


@pytest.mark.parametrize("with_contents", [0, 1])
def test_raw_and_typed_contents_do_not_mix(with_contents):
    inputs = [item(), item("INPUT1")]
    inputs[with_contents].contents.fp32_contents.extend([1, 2, 3, 4])
    assert f"INPUT{with_contents}" in refusal(*inputs, raw=[FOUR, FOUR])


def test_an_input_without_data_is_invalid():
    assert "INPUT0" in refusal(item())


def test_raw_data_of_the_wrong_size_are_invalid():
    assert "Expected 16, got 8 bytes of raw contents" in refusal(item(), raw=[FOUR[:8]])


@pytest.mark.parametrize("datatype", ["", "FLOAT", "fp32"])
def test_an_unknown_datatype_is_invalid(datatype):
    assert f"'{datatype}'" in refusal(item(datatype=datatype), raw=[FOUR])


@pytest.mark.parametrize("shape", [(-1,), (-1, 4), (2, -(2**63))])
def test_a_negative_dim_is_invalid(shape):
    assert "metadata" in refusal(item(shape=shape), raw=[FOUR])
    assert "metadata" in refusal(item(shape=shape, fp32_contents=[1, 2, 3, 4]))


def test_dims_whose_product_wraps_are_invalid():
    size = 2**32 * 2**32 * 4
    assert str(size) in refusal(item(shape=(2**32, 2**32)), raw=[b""])
    assert str(2**64) in refusal(item(shape=(2**32, 2**32), fp32_contents=[1]))


def test_more_dims_than_an_array_can_have_are_invalid():
    assert "33 dims" in refusal(item(shape=[1] * 33), raw=[FOUR[:4]])


def test_an_empty_shape_no_array_can_have_is_invalid():
    assert "no array" in refusal(item(shape=(0, 2**62)), raw=[b""])


def test_zero_elements_need_no_bytes():
    assert decoded(item(shape=(0,)), raw=[b""]).inputs[0].numpy().shape == (0,)
    assert decoded(item(shape=(0, 4))).inputs[0].numpy().shape == (0, 4)
    assert decoded(item("T", "FP16", (0,))).inputs[0].size_bytes == 0


@pytest.mark.parametrize("data", [b"\5\0\0\0a", b"\1\0\0\0aa", b"\1\0", b"", b"\1\0\0\0a" * 2])
def test_badly_prefixed_strings_are_invalid(data):
    assert "'T'" in refusal(item("T", "BYTES", (1,)), raw=[data])


def test_a_scalar_is_one_element():
    assert decoded(item(shape=()), raw=[FOUR[:4]]).inputs[0].shape == ()
