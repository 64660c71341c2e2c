import gc
import time
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from inferd.backends.onnx.backend import OnnxBackend
from inferd.backends.onnx.bound import FIRST_RUNS
from inferd.backends.onnx.instance import OnnxInstance
from inferd.config.model import (
    ControlInput,
    ModelConfig,
    ModelInput,
    ModelOutput,
    SequenceBatching,
    SequenceState,
)
from inferd.core.interfaces import Placement
from inferd.core.request import InferRequest, InferResponse, WantedOutput
from inferd.errors import BackendFailed, InvalidConfig, InvalidRequest
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor

FP32 = DataType.FP32
KINDS = {
    DataType.BOOL: TensorProto.BOOL,
    DataType.UINT8: TensorProto.UINT8,
    DataType.UINT16: TensorProto.UINT16,
    DataType.UINT32: TensorProto.UINT32,
    DataType.UINT64: TensorProto.UINT64,
    DataType.INT8: TensorProto.INT8,
    DataType.INT16: TensorProto.INT16,
    DataType.INT32: TensorProto.INT32,
    DataType.INT64: TensorProto.INT64,
    DataType.FP16: TensorProto.FLOAT16,
    DataType.FP32: TensorProto.FLOAT,
    DataType.FP64: TensorProto.DOUBLE,
    DataType.BYTES: TensorProto.STRING,
    DataType.BF16: TensorProto.BFLOAT16,
}


def opened(files, config=None):
    backend = OnnxBackend()
    completed = backend.complete(files, config or ModelConfig("m"))
    return backend.open(files, completed, Placement("m_0"))


def floats(name, values, shape=None):
    array = np.array(values, np.float32)
    return Tensor(name, FP32, shape or array.shape, array.tobytes())


def texts(name, values, shape=None):
    array = np.array(values, object).reshape(shape or (len(values),))
    return Tensor.from_numpy(name, array, DataType.BYTES)


def asked(*inputs, outputs=()):
    return InferRequest(
        "m", id="7", inputs=list(inputs), outputs=[WantedOutput(name) for name in outputs]
    )


def answer(instance, *inputs, outputs=()):
    [response] = instance.execute([asked(*inputs, outputs=outputs)])
    return response


A = floats("A", [[1, 2, 3, 4]])
B = floats("B", [[1, 1, 1, 1]])


@pytest.mark.parametrize("reshape", [None, (2, 2)])
def test_a_request_knows_when_onnx_runtime_began_and_was_done(make_model, reshape):
    value = ("A", TensorProto.FLOAT, [2, 2] if reshape else [4])
    files = make_model([value], [("Y", *value[1:])], [helper.make_node("Neg", ["A"], ["Y"])])
    config = ModelConfig(
        "m",
        input=(ModelInput("A", FP32, (4,), reshape=reshape),),
        output=(ModelOutput("Y", FP32, (4,), reshape=reshape),),
    )
    request = asked(floats("A", [1, 2, 3, 4]))
    began_ns = time.perf_counter_ns()
    [response] = opened(files, config).execute([request])
    assert response.outputs[0].numpy().tolist() == [-1, -2, -3, -4]
    ended_ns = time.perf_counter_ns()
    assert began_ns <= request.computing_ns <= request.computed_ns <= ended_ns


def test_an_answer_has_every_output(add_sub):
    response = answer(opened(add_sub), A, B)
    assert (response.model, response.version, response.id) == ("m", "1", "7")
    assert [(t.name, t.datatype, t.shape) for t in response.outputs] == [
        ("SUM", FP32, (1, 4)),
        ("DIFF", FP32, (1, 4)),
    ]
    assert [tensor.numpy().tolist() for tensor in response.outputs] == [
        [[2, 3, 4, 5]],
        [[0, 1, 2, 3]],
    ]


@pytest.mark.parametrize("outputs", [("SUM",), ("DIFF",)])
def test_only_wanted_outputs_are_computed(add_sub, outputs):
    response = answer(opened(add_sub), A, B, outputs=outputs)
    assert tuple(tensor.name for tensor in response.outputs) == outputs


def test_all_outputs_may_be_wanted_by_name(add_sub):
    response = answer(opened(add_sub), A, B, outputs=("SUM", "DIFF"))
    assert [tensor.name for tensor in response.outputs] == ["SUM", "DIFF"]


def test_requests_are_answered_one_by_one_in_order(add_sub):
    bad = asked(floats("A", [[1, 2, 3]]), B)
    answers = opened(add_sub).execute([asked(A, B), bad, asked(floats("A", [[9, 9, 9, 9]]), B)])
    assert answers[0].outputs[1].numpy().tolist() == [[0, 1, 2, 3]]
    assert isinstance(answers[1], InvalidRequest)
    assert answers[2].outputs[1].numpy().tolist() == [[8, 8, 8, 8]]


@pytest.mark.parametrize(
    "wrap", [bytes, bytearray, memoryview, lambda data: memoryview(b"x" + data)[1:]]
)
def test_any_buffer_at_any_address_is_read(add_sub, wrap):
    tensor = Tensor("A", FP32, (1, 4), wrap(A.data))
    assert answer(opened(add_sub), tensor, B).outputs[0].numpy().tolist() == [[2, 3, 4, 5]]


@pytest.mark.parametrize("datatype", [one for one in DataType if one is not DataType.BYTES])
@pytest.mark.parametrize("shape", [(2, 3), (0, 3)])
def test_every_datatype_survives_bit_for_bit(identity, datatype, shape):
    instance = opened(identity(KINDS[datatype], ["n", 3]))
    patterns = bytes([0, 1] * 24) if datatype is DataType.BOOL else bytes(range(0, 240, 5))
    data = patterns[: shape[0] * 3 * datatype.size_bytes]
    [output] = answer(instance, Tensor("X", datatype, shape, data)).outputs
    assert (output.name, output.datatype, output.shape) == ("Y", datatype, shape)
    assert output.view().tobytes() == data


def test_strings_come_back_as_they_were(identity):
    instance = opened(identity(TensorProto.STRING, ["n", 2]))
    values = ["", "a", "nul\0inside", "grüße 🐢"]
    [output] = answer(instance, texts("X", values, (2, 2))).outputs
    assert output.shape == (2, 2)
    assert [element.decode() for element in output.strings()] == values


def test_only_wanted_string_outputs_are_computed(make_model):
    files = make_model(
        [("X", TensorProto.STRING, [1])],
        [("Y", TensorProto.STRING, [1]), ("Z", TensorProto.STRING, [1])],
        [helper.make_node("Identity", ["X"], ["Y"]), helper.make_node("Identity", ["X"], ["Z"])],
    )
    response = answer(opened(files), texts("X", ["one"]), outputs=("Z",))
    assert [(tensor.name, tensor.strings()) for tensor in response.outputs] == [("Z", [b"one"])]


@pytest.mark.parametrize("kind", [TensorProto.FLOAT, TensorProto.STRING])
def test_controls_go_in_and_states_come_out_when_a_scheduler_says_so(make_model, kind):
    files = make_model(
        [("X", kind, ["n", 1]), ("READY", TensorProto.INT32, ["n", 1])],
        [("Y", kind, ["n", 1]), ("STATE", TensorProto.INT32, ["n", 1])],
        [
            helper.make_node("Identity", ["X"], ["Y"]),
            helper.make_node("Neg", ["READY"], ["STATE"]),
        ],
    )
    sequence = SequenceBatching(
        control_input=(ControlInput("READY"),), state=(SequenceState("", "STATE"),)
    )
    instance = opened(files, ModelConfig("m", sequence_batching=sequence))
    x = floats("X", [[1]]) if kind == TensorProto.FLOAT else texts("X", ["one"], (1, 1))
    ready = Tensor("READY", DataType.INT32, (1, 1), np.array([7], np.int32))
    assert [tensor.name for tensor in answer(instance, x, ready).outputs] == ["Y"]
    response = answer(instance, x, ready, outputs=("Y", "STATE"))
    assert [tensor.name for tensor in response.outputs] == ["Y", "STATE"]
    assert response.outputs[1].numpy().tolist() == [[-7]]


def test_no_strings_at_all_come_back_as_none(identity):
    instance = opened(identity(TensorProto.STRING, ["n", 2]))
    [output] = answer(instance, Tensor("X", DataType.BYTES, (0, 2), b"")).outputs
    assert (output.shape, output.strings()) == ((0, 2), [])


def test_a_string_that_is_not_utf8_is_the_clients_fault(identity):
    instance = opened(identity(TensorProto.STRING, ["n", 2]))
    error = answer(instance, texts("X", [b"ok", b"ok\xff"], (1, 2)))
    assert isinstance(error, InvalidRequest)
    assert error.message.startswith("input 'X': element 1 is not UTF-8 (at its byte 2)")


BITS = np.array([0x3F80, 0xC000, 0x7F80], np.uint16)  # 1, -2, infinity


def cast(make_model, *, kind=TensorProto.FLOAT, beside=TensorProto.STRING):
    """Make a model with Y = X cast from BF16 to `kind`, and T = S of type `beside`."""
    return make_model(
        [("X", TensorProto.BFLOAT16, ["n", 1]), ("S", beside, ["n", 1])],
        [("Y", kind, ["n", 1]), ("T", beside, ["n", 1])],
        [
            helper.make_node("Cast", ["X"], ["Y"], to=kind),
            helper.make_node("Identity", ["S"], ["T"]),
        ],
    )


def test_bf16_goes_in_beside_strings(make_model):
    brain = Tensor("X", DataType.BF16, (3, 1), BITS.tobytes())
    response = answer(opened(cast(make_model)), brain, texts("S", ["a", "b", "c"], (3, 1)))
    assert response.outputs[0].numpy().ravel().tolist() == [1, -2, float("inf")]
    assert response.outputs[1].strings() == [b"a", b"b", b"c"]


def test_bf16_comes_out_beside_numbers(make_model):
    files = cast(make_model, kind=TensorProto.BFLOAT16, beside=TensorProto.FLOAT)
    brain = Tensor("X", DataType.BF16, (3, 1), BITS.tobytes())
    response = answer(opened(files), brain, floats("S", [[1], [2], [3]]))
    assert response.outputs[0].numpy().ravel().tolist() == BITS.tolist()
    assert response.outputs[1].numpy().ravel().tolist() == [1, 2, 3]


def test_bf16_outputs_beside_string_inputs_are_refused_at_load(make_model):
    with pytest.raises(InvalidConfig, match="no BF16 outputs for BYTES inputs"):
        opened(cast(make_model, kind=TensorProto.BFLOAT16))


def test_a_bf16_scalar_has_one_element(identity):
    instance = opened(identity(TensorProto.BFLOAT16, []))
    [output] = answer(instance, Tensor("X", DataType.BF16, (1,), b"\x80\x3f")).outputs
    assert (output.shape, output.view().tobytes()) == ((1,), b"\x80\x3f")


def test_a_string_scalar_has_one_element(identity):
    [output] = answer(opened(identity(TensorProto.STRING, [])), texts("X", ["one"])).outputs
    assert (output.shape, output.strings()) == ((1,), [b"one"])


@pytest.mark.parametrize("shape", [(1,), ()])
def test_a_scalar_model_takes_shape_1_and_no_dims_and_gives_shape_1(identity, shape):
    [output] = answer(opened(identity(TensorProto.FLOAT, [])), floats("X", [5], shape)).outputs
    assert (output.shape, output.numpy().tolist()) == ((1,), [5])


def test_an_open_rank_with_one_dim_is_kept_by_a_reshape(identity):
    config = ModelConfig(
        "m",
        input=(ModelInput("X", FP32, (1,), reshape=(1,)),),
        output=(ModelOutput("Y", FP32, (1,)),),
    )
    [output] = answer(opened(identity(TensorProto.FLOAT, None), config), floats("X", [5])).outputs
    assert output.shape == (1,)


def test_a_model_with_only_a_batch_dim_is_reshaped_both_ways(identity):
    instance = opened(identity(TensorProto.FLOAT, ["n"]))
    [output] = answer(instance, floats("X", [[1], [2], [3]])).outputs
    assert (output.shape, output.numpy().tolist()) == ((3, 1), [[1], [2], [3]])


def test_a_reshape_carries_variable_dims_over(make_model):
    files = make_model(
        [("X", TensorProto.FLOAT, ["n", "a", "b"])],
        [("Y", TensorProto.FLOAT, ["n", "b", "a"]), ("SHAPE", TensorProto.INT64, [3])],
        [
            helper.make_node("Transpose", ["X"], ["Y"], perm=[0, 2, 1]),
            helper.make_node("Shape", ["X"], ["SHAPE"]),
        ],
    )
    config = ModelConfig(
        "m",
        max_batch_size=4,
        input=(ModelInput("X", FP32, (-1, 1, -1), reshape=(-1, -1)),),
        output=(ModelOutput("Y", FP32, (1, -1, -1), reshape=(-1, -1)),),
    )
    [output] = answer(opened(files, config), floats("X", np.zeros((2, 3, 1, 5)))).outputs
    assert output.shape == (2, 1, 5, 3)


def test_an_output_that_cannot_be_reshaped_is_the_models_fault(make_model):
    files = make_model(
        [("X", TensorProto.FLOAT, ["a", "b"])],
        [("Y", TensorProto.FLOAT, ["c", "d"])],
        [helper.make_node("Identity", ["X"], ["Y"])],
    )
    config = ModelConfig(
        "m",
        input=(ModelInput("X", FP32, (-1, -1)),),
        output=(ModelOutput("Y", FP32, (6,), reshape=(-1, -1)),),
    )
    error = answer(opened(files, config), floats("X", np.zeros((2, 2))))
    assert isinstance(error, BackendFailed)


def test_an_input_left_out_has_the_value_in_the_file(make_model):
    files = make_model(
        [("X", TensorProto.FLOAT, [2]), ("W", TensorProto.FLOAT, [2])],
        [("Y", TensorProto.FLOAT, [2])],
        [helper.make_node("Add", ["X", "W"], ["Y"])],
        {"W": np.array([10, 20], np.float32)},
    )
    config = ModelConfig(
        "m",
        input=(ModelInput("X", FP32, (2,)), ModelInput("W", FP32, (2,), optional=True)),
        output=(ModelOutput("Y", FP32, (2,)),),
    )
    instance = opened(files, config)
    x = floats("X", [1, 2])
    assert answer(instance, x).outputs[0].numpy().tolist() == [11, 22]
    assert answer(instance, x, floats("W", [5, 5])).outputs[0].numpy().tolist() == [6, 7]


def test_a_shape_the_model_refuses_is_the_clients_fault_and_names_the_input(add_sub):
    error = answer(opened(add_sub), floats("A", [[1, 2, 3]]), B)
    assert isinstance(error, InvalidRequest)
    assert error.message.startswith("model 'm': Got invalid dimensions for input: A for")
    assert "\n" not in error.message
    assert "INVALID_ARGUMENT" in str(error.__cause__)


def test_what_fails_within_the_model_is_its_own_fault(make_model, capfd):
    files = make_model(
        [("X", TensorProto.FLOAT, ["a"]), ("W", TensorProto.FLOAT, ["b"])],
        [("Y", TensorProto.FLOAT, ["c"])],
        [helper.make_node("Add", ["X", "W"], ["Y"])],
    )
    config = ModelConfig(
        "m",
        input=(ModelInput("X", FP32, (-1,)), ModelInput("W", FP32, (-1,))),
        output=(ModelOutput("Y", FP32, (-1,)),),
    )
    error = answer(opened(files, config), floats("X", [1, 2]), floats("W", [1, 2, 3]))
    assert isinstance(error, BackendFailed)
    assert "while running Add node" in error.message
    assert "/onnxruntime" not in error.message
    assert error.__cause__ is not None
    assert capfd.readouterr() == ("", "")


def test_an_unknown_category_is_the_clients_fault(make_model):
    node = helper.make_node(
        "OneHotEncoder", ["X"], ["Y"], domain="ai.onnx.ml", cats_int64s=[1, 2], zeros=0
    )
    files = make_model(
        [("X", TensorProto.INT64, ["a"])], [("Y", TensorProto.FLOAT, ["a", 2])], [node]
    )
    model = onnx.load(files.file)
    model.opset_import.add(domain="ai.onnx.ml", version=3)
    onnx.save(model, files.file)
    config = ModelConfig(
        "m",
        input=(ModelInput("X", DataType.INT64, (-1,)),),
        output=(ModelOutput("Y", FP32, (-1, 2)),),
    )
    instance = opened(files, config)

    def encoded(category):
        return answer(instance, Tensor.from_numpy("X", np.array([category]), DataType.INT64))

    assert encoded(2).outputs[0].numpy().tolist() == [[0, 1]]
    error = encoded(7)
    assert isinstance(error, InvalidRequest)
    assert "Unknown Category" in error.message


def test_one_session_runs_in_several_threads(add_sub):
    instance = opened(add_sub)

    def sums(value):
        requests = [asked(floats("A", [[value] * 4]), B)] * 50
        return {response.outputs[0].numpy()[0, 0] for response in instance.execute(requests)}

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(sums, range(8))) == [{value + 1} for value in range(8)]


@pytest.mark.slow
def test_a_closed_instance_lets_its_session_go(add_sub):
    instance = opened(add_sub)
    session = weakref.ref(instance._loaded.session)
    instance.close()
    gc.collect()
    assert session() is None


class PublicSession:
    """A session without the private call under `run`, as another release might have."""

    def __init__(self, session):
        self.run = session.run
        self.run_with_iobinding = session.run_with_iobinding
        self.io_binding = session.io_binding
        self.get_providers = session.get_providers
        self.get_inputs = session.get_inputs
        self.get_outputs = session.get_outputs
        self.get_overridable_initializers = session.get_overridable_initializers


def test_the_public_calls_are_used_where_the_private_ones_are_gone(add_sub):
    backend = OnnxBackend()
    config = backend.complete(add_sub, ModelConfig("m"))
    private = backend.open(add_sub, config, Placement("m_0"))
    loaded = private._loaded
    loaded.session = PublicSession(loaded.session)
    instance = OnnxInstance(loaded, config, 3)
    request = asked(A, B)
    request.batch_key = object()
    for _ in range(3 * FIRST_RUNS):
        [response] = instance.execute([request])
        assert isinstance(response, InferResponse)
        assert response.version == "3"
        assert response.outputs[0].numpy().tolist() == [[2, 3, 4, 5]]


def test_an_instance_promises_to_end(add_sub):
    assert opened(add_sub).traits.is_bounded
