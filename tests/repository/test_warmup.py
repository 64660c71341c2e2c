import numpy as np
import pytest

from inferd.config.model import ModelConfig, ModelInput, Warmup, WarmupInput
from inferd.errors import InvalidConfig
from inferd.repository import warmup
from inferd.repository.warmup import MAX_BATCH, warmup_samples
from inferd.tensor.dtype import DataType

FP32 = DataType.FP32


def config_of(*samples, max_batch_size=4, datatype=FP32, dims=(2,)):
    return ModelConfig(
        "m",
        max_batch_size=max_batch_size,
        input=(ModelInput("A", datatype, dims), ModelInput("O", FP32, (1,), optional=True)),
        model_warmup=samples,
    )


def sample(batch_size=1, count=0, **fields):
    given = WarmupInput(**({"datatype": FP32, "dims": (2,)} | fields))
    return Warmup("w", batch_size, {"A": given}, count)


def only_tensor(tmp_path, max_batch_size=4, **fields):
    declared = {"datatype": fields.get("datatype", FP32), "dims": fields.get("dims", (2,))}
    config = config_of(sample(**fields), max_batch_size=max_batch_size, **declared)
    [one] = warmup_samples(tmp_path, config)
    [request] = one.requests
    [tensor] = request.inputs
    return tensor


def complaint(tmp_path, *samples, **declared):
    with pytest.raises(InvalidConfig) as caught:
        warmup_samples(tmp_path, config_of(*samples, **declared))
    assert str(tmp_path) not in caught.value.message
    return caught.value.message


@pytest.mark.parametrize(("count", "times"), [(0, 1), (1, 1), (3, 3)])
def test_a_batch_is_single_requests_that_run_together_so_many_times(tmp_path, count, times):
    [one] = warmup_samples(tmp_path, config_of(sample(3, count, zero_data=True)))
    assert (one.name, one.count, len(one.requests)) == ("w", times, 3)
    assert [tensor.shape for tensor in one.requests[0].inputs] == [(1, 2)]


def test_inputs_come_in_the_order_of_the_configuration_then_those_of_schedulers(tmp_path):
    given = WarmupInput(datatype=FP32, dims=(1,), zero_data=True)
    inputs = dict.fromkeys(("READY", "O", "END"), given)
    inputs["A"] = WarmupInput(datatype=FP32, dims=(2,), zero_data=True)
    [one] = warmup_samples(tmp_path, config_of(Warmup("w", 1, inputs)))
    assert [tensor.name for tensor in one.requests[0].inputs] == ["A", "O", "END", "READY"]


def test_a_sample_without_a_batch_size_means_nothing(tmp_path):
    assert warmup_samples(tmp_path, config_of(sample(0))) == []


def test_a_model_without_batching_gets_no_batch_dim(tmp_path):
    assert only_tensor(tmp_path, max_batch_size=0, zero_data=True).shape == (2,)


@pytest.mark.parametrize("datatype", DataType)
@pytest.mark.parametrize("kind", ["zero_data", "random_data"])
def test_every_datatype_can_be_zeros_or_random(tmp_path, datatype, kind):
    tensor = only_tensor(tmp_path, datatype=datatype, dims=(50,), **{kind: True})
    array = tensor.numpy()
    assert array.shape == (1, 50)
    if datatype is DataType.BYTES:
        assert set(array.ravel()) == {b""}
    else:
        assert array.any() == (kind == "random_data")
        assert ((array >= 0) & (array < 100)).all()
        assert len(tensor.view()) == 50 * datatype.size_bytes


def test_random_numbers_are_the_same_each_time(tmp_path):
    first, second = (only_tensor(tmp_path, random_data=True).numpy() for _ in range(2))
    assert (first == second).all()


def test_a_file_holds_the_bytes_of_the_input(tmp_path):
    (tmp_path / "warmup").mkdir()
    (tmp_path / "warmup" / "a").write_bytes(np.array([1, 2, 3], np.float32).tobytes())
    tensor = only_tensor(tmp_path, input_data_file="a")
    assert tensor.numpy().tolist() == [[1, 2]]


def test_a_file_holds_the_strings_of_the_input(tmp_path):
    (tmp_path / "warmup").mkdir()
    (tmp_path / "warmup" / "a").write_bytes(b"\2\0\0\0ab\0\0\0\0")
    tensor = only_tensor(tmp_path, datatype=DataType.BYTES, input_data_file="a")
    assert tensor.numpy().tolist() == [[b"ab", b""]]


@pytest.mark.parametrize(
    ("one", "text"),
    [
        (sample(), "input 'A' has none of zero_data, random_data and input_data_file"),
        (sample(zero_data=True, datatype=None), "input 'A' has no data_type"),
        (
            sample(zero_data=True, dims=(2, -1)),
            "input 'A' has dims [2, -1], expected none that varies",
        ),
        (sample(input_data_file="no"), "input 'A': input_data_file names 'no', and there is no su"),
        (
            sample(input_data_file="a"),
            "input 'A': input_data_file 'a' has 3 bytes, the input needs 8",
        ),
        (
            sample(zero_data=True, datatype=DataType.INT32),
            "input 'A' has data_type INT32, the model's is FP32",
        ),
        (sample(zero_data=True, dims=(3,)), "input 'A' has dims [3], the model's are [2]"),
        (sample(zero_data=True, dims=(1, 2)), "input 'A' has dims [1, 2], the model's are [2]"),
        (Warmup("w", 1, {"O": WarmupInput(FP32, (1,), zero_data=True)}), "has no input 'A', which"),
        (sample(MAX_BATCH + 1, zero_data=True), f"batch_size {MAX_BATCH + 1}, expected at most"),
    ],
)
def test_a_sample_that_cannot_be_made_is_refused_by_name(tmp_path, one, text):
    (tmp_path / "warmup").mkdir()
    (tmp_path / "warmup" / "a").write_bytes(b"abc")
    found = complaint(tmp_path, one)
    assert found.startswith("model 'm', model_warmup 'w'")
    assert text in found


@pytest.mark.parametrize(
    ("content", "dims", "strings"),
    [
        (b"a cat", (1,), [b"a cat"]),
        (b"a", (1,), [b"a"]),
        ("zwölf\n".encode(), (1,), ["zwölf".encode()]),
        (b"two\r\nlines\r\n", (1,), [b"two\r\nlines"]),
        (b"\n\n", (1,), [b"\n"]),
        (b"\xef\xbb\xbfmarked\n", (1,), [b"marked"]),
        (b"one\ntwo", (2,), [b"one", b"two"]),
        (b"one\r\n\r\n", (2, 1), [b"one", b""]),
        (b"\x03\0\0\0one\x04\0\0\0two\n", (2,), [b"one", b"two\n"]),
    ],
)
def test_a_file_of_strings_may_be_plain_text(tmp_path, content, dims, strings):
    (tmp_path / "warmup").mkdir()
    (tmp_path / "warmup" / "a").write_bytes(content)
    tensor = only_tensor(tmp_path, datatype=DataType.BYTES, dims=dims, input_data_file="a")
    assert tensor.strings() == strings
    assert tensor.shape == (1, *dims)


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"", "does not hold 2 strings: "),
        (b"one", "is plain text of 1 line(s), the input needs 2"),
        (b"one\ntwo\n\n", "is plain text of 3 line(s), the input needs 2"),
        (b"\xff\n\xfe", "does not hold 2 strings: "),
        (b"\x03\0\0\0one", "does not hold 2 strings: "),
    ],
)
def test_a_file_of_other_strings_says_what_to_write(tmp_path, content, found):
    (tmp_path / "warmup").mkdir()
    (tmp_path / "warmup" / "a").write_bytes(content)
    one = sample(input_data_file="a", datatype=DataType.BYTES)
    text = complaint(tmp_path, one, datatype=DataType.BYTES)
    assert f"input 'A': input_data_file 'a' {found}" in text
    assert text.endswith(
        "; write plain UTF-8 text, a line for each string (all of it if there is one), or before "
        "each string its length in bytes as 4 bytes, little-endian"
    )


def test_a_file_of_strings_that_is_too_large_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(warmup, "MAX_TEXT_BYTES", 3)
    (tmp_path / "warmup").mkdir()
    for content, is_sound in (b"abc", True), (b"abcd", False):
        (tmp_path / "warmup" / "a").write_bytes(content)
        fields = {"datatype": DataType.BYTES, "dims": (1,)}
        if is_sound:
            assert only_tensor(tmp_path, input_data_file="a", **fields).strings() == [b"abc"]
        else:
            text = complaint(tmp_path, sample(input_data_file="a", **fields), **fields)
            assert text.endswith("input 'A': input_data_file 'a' is larger than 3 bytes")


def test_dims_that_vary_take_any(tmp_path):
    config = config_of(sample(zero_data=True, dims=(3, 2)), dims=(-1, 2))
    [one] = warmup_samples(tmp_path, config)
    assert one.requests[0].inputs[0].shape == (1, 3, 2)
