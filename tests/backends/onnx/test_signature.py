from dataclasses import replace

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from inferd.backends.onnx.signature import DATATYPES, read_signature
from inferd.config.model import (
    BatchInput,
    BatchOutput,
    ControlInput,
    DynamicBatching,
    ModelConfig,
    ModelInput,
    ModelOutput,
    SequenceBatching,
    SequenceState,
)
from inferd.core.signature import check_config, complete_config
from inferd.errors import InvalidConfig
from inferd.tensor.dtype import DataType

FP32 = DataType.FP32


def signature_of(files, scalars=None):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        str(files.file), options, providers=["CPUExecutionProvider"]
    )
    return read_signature(session, scalars=scalars)


@pytest.mark.parametrize("name", [b"SUM", b"DIFF"])
def test_a_name_that_is_no_text_is_told(add_sub, name):
    content = add_sub.file.read_bytes()
    add_sub.file.write_bytes(content.replace(name, b"\xff" + name[1:]))
    with pytest.raises(InvalidConfig, match="a name that is no UTF-8"):
        signature_of(add_sub)


@pytest.fixture
def add_sub_signature(add_sub):
    return signature_of(add_sub)


ADD_SUB = ModelConfig(
    "m",
    max_batch_size=8,
    input=(ModelInput("A", FP32, (4,)), ModelInput("B", FP32, (4,))),
    output=(ModelOutput("SUM", FP32, (4,)), ModelOutput("DIFF", FP32, (4,))),
)


def with_input(tensor):
    return replace(ADD_SUB, input=(tensor, ADD_SUB.input[1]))


def test_every_datatype_has_its_onnx_type():
    assert set(DATATYPES.values()) == set(DataType)


def test_a_model_whose_first_dims_are_variable_batches_up_to_the_default(add_sub_signature):
    completed = complete_config(ModelConfig("m"), add_sub_signature, 4)
    assert completed == replace(ADD_SUB, max_batch_size=4, dynamic_batching=DynamicBatching())


def test_a_batch_of_one_and_a_sequence_scheduler_get_no_dynamic_batching(add_sub_signature):
    one = complete_config(ModelConfig("m", max_batch_size=1), add_sub_signature, 4)
    assert one.dynamic_batching is None
    config = ModelConfig("m", sequence_batching=SequenceBatching())
    assert complete_config(config, add_sub_signature, 4).dynamic_batching is None


@pytest.mark.parametrize(
    ("inputs", "output", "joins"),
    [
        (["n", "n"], "n", True),
        (["n", "n"], "found", False),
        ([None, None], "found", False),
        (["n", "n"], None, True),
        (["unk__12", "unk__13"], "unk__14", True),
        (["A_dynamic_axes_1", "B_dynamic_axes_1"], "Addy_dim_0", True),
    ],
)
def test_rows_that_have_a_name_of_their_own_are_never_joined(add_sub, inputs, output, joins):
    model = onnx.load(add_sub.file)
    names = dict(zip("AB", inputs, strict=True)) | {"SUM": output, "DIFF": output}
    for tensor in (*model.graph.input, *model.graph.output):
        dim = tensor.type.tensor_type.shape.dim[0]
        dim.Clear()
        if names[tensor.name] is not None:
            dim.dim_param = names[tensor.name]
    onnx.save(model, add_sub.file)
    completed = complete_config(ModelConfig("m"), signature_of(add_sub), 4)
    assert completed.max_batch_size == 4
    assert completed.dynamic_batching == (DynamicBatching() if joins else None)


def test_dynamic_batching_stays_as_it_was_given(add_sub_signature):
    config = ModelConfig("m", dynamic_batching=DynamicBatching(max_queue_delay_microseconds=9))
    completed = complete_config(config, add_sub_signature, 4)
    assert completed.dynamic_batching is config.dynamic_batching


SEQUENCE = SequenceBatching(
    control_input=(ControlInput("A"),), state=(SequenceState("OLD", "DIFF", FP32, (4,)),)
)


def test_what_a_scheduler_fills_in_or_takes_is_no_input_or_output(add_sub_signature):
    config = ModelConfig("m", sequence_batching=SEQUENCE)
    completed = complete_config(config, add_sub_signature, 4)
    assert [tensor.name for tensor in completed.input] == ["B"]
    assert [tensor.name for tensor in completed.output] == ["SUM"]
    check_config(completed, add_sub_signature)


def test_a_batch_input_is_no_input_of_requests(add_sub_signature):
    config = replace(
        ADD_SUB, input=ADD_SUB.input[1:], batch_input=(BatchInput(target_name=("A",)),)
    )
    assert complete_config(config, add_sub_signature, 4) is config
    check_config(config, add_sub_signature)


def test_the_shape_of_a_ragged_input_is_the_schedulers_matter(add_sub_signature):
    ragged = ModelInput("A", FP32, (-1,), allow_ragged_batch=True)
    check_config(with_input(ragged), add_sub_signature)


def test_the_shape_of_a_scattered_output_is_the_schedulers_matter(add_sub_signature):
    [first, *others] = ADD_SUB.output
    longer = replace(ADD_SUB, output=(replace(first, dims=(-1, -1)), *others))
    with pytest.raises(InvalidConfig):
        check_config(longer, add_sub_signature)
    scattered = BatchOutput(target_name=(first.name,), source_input=("A",))
    check_config(replace(longer, batch_output=(scattered,)), add_sub_signature)


def test_a_given_max_batch_size_stays(add_sub_signature):
    completed = complete_config(ModelConfig("m", max_batch_size=32), add_sub_signature, 4)
    assert completed.max_batch_size == 32


def test_a_max_batch_size_of_0_that_was_written_stays(add_sub_signature):
    completed = complete_config(ModelConfig("m", is_unbatched=True), add_sub_signature, 4)
    assert completed.max_batch_size == 0
    assert completed.dynamic_batching is None
    assert {tensor.dims[0] for tensor in (*completed.input, *completed.output)} == {-1}


def test_a_complete_configuration_is_left_alone(add_sub_signature):
    config = replace(ADD_SUB, max_batch_size=0)
    assert complete_config(config, add_sub_signature, 4) is config


def test_given_inputs_with_the_batch_dim_keep_a_model_from_batching(add_sub_signature):
    given = (ModelInput("A", FP32, (-1, 4)), ModelInput("B", FP32, (-1, 4)))
    completed = complete_config(ModelConfig("m", input=given), add_sub_signature, 4)
    assert completed.max_batch_size == 0
    assert completed.output[0] == ModelOutput("SUM", FP32, (-1, 4))
    check_config(completed, add_sub_signature)


def test_given_inputs_without_the_batch_dim_let_it_batch(add_sub_signature):
    completed = complete_config(ModelConfig("m", input=ADD_SUB.input), add_sub_signature, 4)
    assert completed == replace(ADD_SUB, max_batch_size=4, dynamic_batching=DynamicBatching())


def test_a_fixed_first_dim_means_no_batching(identity):
    signature = signature_of(identity(TensorProto.INT64, [2, "n"]))
    completed = complete_config(ModelConfig("m"), signature, 4)
    assert completed.max_batch_size == 0
    assert completed.input == (ModelInput("X", DataType.INT64, (2, -1)),)
    assert completed.output == (ModelOutput("Y", DataType.INT64, (2, -1)),)


def test_max_batch_size_for_a_model_that_cannot_batch_is_refused(identity):
    signature = signature_of(identity(TensorProto.FLOAT, [2, 3]))
    with pytest.raises(
        InvalidConfig,
        match=r"'m' cannot batch, but max_batch_size is 8: .* 'X' .* as FP32 \[2, 3\]",
    ):
        complete_config(ModelConfig("m", max_batch_size=8), signature, 4)


def test_a_tensor_with_only_a_batch_dim_has_dims_1_reshaped_to_none(identity):
    signature = signature_of(identity(TensorProto.STRING, [None]))
    completed = complete_config(ModelConfig("m"), signature, 4)
    assert completed.input == (ModelInput("X", DataType.BYTES, (1,), reshape=()),)
    assert completed.output == (ModelOutput("Y", DataType.BYTES, (1,), reshape=()),)
    check_config(completed, signature)


def test_a_scalar_has_dims_1_and_no_reshape(identity):
    signature = signature_of(identity(TensorProto.FLOAT, []))
    completed = complete_config(ModelConfig("m"), signature, 4)
    assert completed.input == (ModelInput("X", FP32, (1,)),)
    assert completed.max_batch_size == 0
    check_config(completed, signature)


def test_a_tensor_of_unknown_rank_is_no_scalar(identity):
    signature = signature_of(identity(TensorProto.FLOAT, None), scalars=frozenset())
    completed = complete_config(ModelConfig("m"), signature, 4)
    assert (completed.input[0].dims, completed.input[0].is_unranked) == ((-1,), True)
    assert (completed.output[0].dims, completed.output[0].is_declared) == ((-1,), True)
    assert completed.max_batch_size == 0
    assert signature.scalars(completed) == {"Y"}  # which its answers may be
    batching = complete_config(ModelConfig("m", max_batch_size=2), signature, 4)
    assert batching.max_batch_size == 2
    check_config(batching, signature)


def test_only_outputs_that_the_file_declares_are_marked(add_sub_signature):
    completed = complete_config(ModelConfig("m"), add_sub_signature, 4)
    assert [output.is_declared for output in completed.output] == [True, True]
    written = replace(ADD_SUB, input=())
    completed = complete_config(written, add_sub_signature, 4)
    assert [output.is_declared for output in completed.output] == [False, False]


@pytest.mark.parametrize(
    ("declared", "dims", "is_repaired"),
    [
        (["n", 5], (-1,), True),
        ([1, 5], (5,), True),  # the batch of one that it was exported with
        ([1, 5], (-1,), True),
        ([4, 5], (5,), False),
        (["n", 5], (7,), False),
        (["n", 5], (-1, -1), False),
        (["n", 5], (), False),
    ],
)
def test_a_variable_dim_repairs_an_output_that_is_declared_too_narrowly(
    make_model, declared, dims, is_repaired
):
    files = make_model(
        [("X", TensorProto.FLOAT, ["n", "m"])],
        [("Y", TensorProto.FLOAT, declared)],
        [helper.make_node("Identity", ["X"], ["Y"])],
    )
    config = ModelConfig(
        "m",
        max_batch_size=8,
        input=(ModelInput("X", FP32, (-1,)),),
        output=(ModelOutput("Y", FP32, dims),),
    )
    if is_repaired:
        check_config(config, signature_of(files))
    else:
        with pytest.raises(InvalidConfig, match="output 'Y': the file has shape"):
            check_config(config, signature_of(files))


def test_an_input_is_what_the_file_says(identity):
    signature = signature_of(identity(TensorProto.FLOAT, ["n", 4]))
    config = ModelConfig(
        "m",
        max_batch_size=8,
        input=(ModelInput("X", FP32, (-1,)),),
        output=(ModelOutput("Y", FP32, (-1,)),),
    )
    with pytest.raises(InvalidConfig, match="input 'X': the file has shape"):
        check_config(config, signature)


def test_any_dims_do_for_a_tensor_of_unknown_rank(identity):
    signature = signature_of(identity(TensorProto.FLOAT, None))
    config = ModelConfig(
        "m",
        max_batch_size=2,
        input=(ModelInput("X", FP32, (3, -1)),),
        output=(ModelOutput("Y", FP32, (3, -1)),),
    )
    check_config(config, signature)


def test_inputs_with_a_value_in_the_file_are_not_filled_in(make_model):
    signature = signature_of(defaulted(make_model))
    completed = complete_config(ModelConfig("m"), signature, 4)
    assert [tensor.name for tensor in completed.input] == ["X"]


def defaulted(make_model):
    return make_model(
        [("X", TensorProto.FLOAT, [2]), ("W", TensorProto.FLOAT, [2])],
        [("Y", TensorProto.FLOAT, [2])],
        [helper.make_node("Add", ["X", "W"], ["Y"])],
        {"W": np.array([10, 20], np.float32)},
    )


@pytest.mark.parametrize("optional", [True, False])
def test_an_input_with_a_value_in_the_file_may_be_configured(make_model, optional):
    signature = signature_of(defaulted(make_model))
    config = ModelConfig(
        "m",
        input=(ModelInput("X", FP32, (2,)), ModelInput("W", FP32, (2,), optional=optional)),
        output=(ModelOutput("Y", FP32, (2,)),),
    )
    check_config(config, signature)


def sequence_output(make_model):
    files = make_model(
        [("X", TensorProto.FLOAT, ["n"])], [], [helper.make_node("SequenceConstruct", ["X"], ["S"])]
    )
    sequence = helper.make_tensor_sequence_value_info("S", TensorProto.FLOAT, None)
    graph = helper.make_graph(
        [
            helper.make_node("SequenceConstruct", ["X"], ["S"]),
            helper.make_node("Identity", ["X"], ["Y"]),
        ],
        "graph",
        [helper.make_tensor_value_info("X", TensorProto.FLOAT, ["n"])],
        [sequence, helper.make_tensor_value_info("Y", TensorProto.FLOAT, ["n"])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    files.file.write_bytes(model.SerializeToString())
    return files


def test_a_sequence_output_is_refused_by_name(make_model):
    signature = signature_of(sequence_output(make_model))
    with pytest.raises(InvalidConfig, match=r"'S' is of type seq\(tensor\(float\)\) in the file"):
        complete_config(ModelConfig("m"), signature, 4)


def test_a_sequence_output_may_be_left_out_of_the_configuration(make_model):
    signature = signature_of(sequence_output(make_model))
    config = ModelConfig("m", output=(ModelOutput("Y", FP32, (-1,)),))
    completed = complete_config(config, signature, 4)
    check_config(completed, signature)
    assert [tensor.name for tensor in completed.input] == ["X"]


def test_a_sequence_output_in_the_configuration_is_refused(make_model):
    signature = signature_of(sequence_output(make_model))
    config = ModelConfig(
        "m", input=(ModelInput("X", FP32, (-1,)),), output=(ModelOutput("S", FP32, (-1,)),)
    )
    with pytest.raises(InvalidConfig, match=r"seq\(tensor\(float\)\)"):
        check_config(config, signature)


def test_a_configuration_that_agrees_is_fine(add_sub_signature):
    check_config(ADD_SUB, add_sub_signature)
    check_config(replace(ADD_SUB, output=ADD_SUB.output[1:]), add_sub_signature)


@pytest.mark.parametrize(
    ("tensor", "complaint"),
    [
        (ModelInput("a", FP32, (4,)), "has input 'a', the file has only 'A', 'B'"),
        (
            ModelInput("A", DataType.INT32, (4,)),
            "input 'A': the file has FP32, the configuration says INT32",
        ),
        (
            ModelInput("A", FP32, (5,)),
            r"file has shape \[-1, 4\], .* says \[-1, 5\], the first",
        ),
        (ModelInput("A", FP32, (-1,)), r"file has shape \[-1, 4\], .* says \[-1, -1\]"),
        (ModelInput("A", FP32, (-1, 4)), r"file has shape \[-1, 4\], .* says \[-1, -1, 4\]"),
        (ModelInput("A", FP32, (4,), reshape=(2, 2)), r"says \[-1, 2, 2\]"),
        (ModelInput("A", FP32, (4,), optional=True), "calls input 'A' optional, but the file"),
    ],
)
def test_an_input_that_differs_from_the_file_is_refused(add_sub_signature, tensor, complaint):
    with pytest.raises(InvalidConfig, match=complaint):
        check_config(with_input(tensor), add_sub_signature)


def test_an_input_that_is_reshaped_to_what_the_file_has_is_fine(add_sub_signature):
    check_config(with_input(ModelInput("A", FP32, (2, 2), reshape=(4,))), add_sub_signature)


def test_a_missing_input_is_refused(add_sub_signature):
    config = replace(ADD_SUB, input=ADD_SUB.input[:1])
    with pytest.raises(InvalidConfig, match="needs input 'B', the configuration has only 'A'"):
        check_config(config, add_sub_signature)


def test_an_output_that_differs_from_the_file_is_refused(add_sub_signature):
    config = replace(ADD_SUB, output=(ModelOutput("MUL", FP32, (4,)),))
    with pytest.raises(InvalidConfig, match="has output 'MUL', the file has only 'SUM', 'DIFF'"):
        check_config(config, add_sub_signature)
    config = replace(ADD_SUB, max_batch_size=0)
    with pytest.raises(InvalidConfig, match=r"shape \[-1, 4\], the configuration says \[4\]$"):
        check_config(config, add_sub_signature)
    config = replace(ADD_SUB, output=(ModelOutput("SUM", FP32, (3,)),))
    with pytest.raises(InvalidConfig, match=r"output 'SUM': the file has shape \[-1, 4\]"):
        check_config(config, add_sub_signature)


def test_a_batch_dim_the_file_has_fixed_is_refused(identity):
    signature = signature_of(identity(TensorProto.FLOAT, [1, 4]))
    config = ModelConfig(
        "m",
        max_batch_size=1,
        input=(ModelInput("X", FP32, (4,)),),
        output=(ModelOutput("Y", FP32, (4,)),),
    )
    with pytest.raises(
        InvalidConfig, match=r"\[1, 4\].* says \[-1, 4\].* batch dim of max_batch_size 1"
    ):
        check_config(config, signature)
