"""Is a ModelConfig sound?"""

import re

import pytest

from inferd.config.checks import (
    check_config,
    check_instances,
    check_io,
    config_complaints,
    instance_complaints,
    wiring_complaints,
)
from inferd.config.model import (
    BatchInput,
    BatchOutput,
    Control,
    ControlInput,
    DirectStrategy,
    DynamicBatching,
    EnsembleScheduling,
    EnsembleStep,
    InitialState,
    InstanceGroup,
    ModelConfig,
    ModelInput,
    ModelOutput,
    OldestStrategy,
    Optimization,
    QueuePolicy,
    SequenceBatching,
    SequenceState,
    Warmup,
)
from inferd.config.names import is_inside
from inferd.config.proto import MODEL_CONFIG, config_pool
from inferd.config.rules.tensors import io_complaints
from inferd.errors import InvalidConfig
from inferd.tensor.dtype import DataType

START, READY, CORRID = (
    "CONTROL_SEQUENCE_START",
    "CONTROL_SEQUENCE_READY",
    "CONTROL_SEQUENCE_CORRID",
)
STEP = EnsembleStep("a", -1, {"x": "X"}, {"y": "Y"})
X, Y = ModelInput("X", DataType.FP32, (1,)), ModelOutput("Y", DataType.FP32, (1,))


def config(**said):
    return ModelConfig("m", **said)


def dynamic(max_batch_size=8, **said):
    return config(max_batch_size=max_batch_size, dynamic_batching=DynamicBatching(**said))


def sequence(*controls, **said):
    batching = SequenceBatching(control_input=controls, **said)
    return config(max_batch_size=8, sequence_batching=batching)


def control(name="c", kind=START, **said):
    return ControlInput(name, (Control(kind, **said),))


def state(name="i", *, datatype=DataType.FP32, dims=(1,), initial=()):
    return SequenceState(name, "o", datatype, dims, initial)


def initial(name="first", *, datatype=DataType.FP32, dims=(1,), zero_data=True, data_file=None):
    return InitialState(name, datatype, dims, zero_data, data_file)


def ensemble(*steps, **said):
    said = {"platform": "ensemble", "input": (X,), "output": (Y,)} | said
    return config(ensemble_scheduling=EnsembleScheduling(steps), **said)


def grouped(*groups, **said):
    return config(instance_group=groups, **said)


POLICY = QueuePolicy("DELAY", 5)
OVERRIDE = QueuePolicy("DELAY", 5, allow_timeout_override=True)

SOUND = [
    config(),
    dynamic(max_queue_delay_microseconds=3_600_000_000),
    config(platform="onnx_onnxv1"),
    config(platform="onnxruntime_onnx", backend="onnxruntime"),
    config(platform="foo", backend="python"),
    config(platform="foo", backend="mine"),
    config(backend="mine"),
    dynamic(max_batch_size=0),
    dynamic(preferred_batch_size=(1, 8)),
    dynamic(priority_levels=2, default_priority_level=2, priority_queue_policy={1: POLICY}),
    dynamic(priority_queue_policy={9: POLICY}),
    dynamic(preserve_ordering=True, priority_levels=1, default_priority_level=1),
    dynamic(preserve_ordering=True, default_queue_policy=QueuePolicy("DELAY")),
    dynamic(
        preserve_ordering=True,
        default_queue_policy=QueuePolicy("DELAY", allow_timeout_override=True),
    ),
    dynamic(preserve_ordering=True, default_queue_policy=QueuePolicy("REJECT", 5)),
    dynamic(default_queue_policy=POLICY),
    config(response_cache=True),
    config(decoupled=True),
    sequence(),
    sequence(
        control("s", START, int32_false_true=(0, 1)),
        control("r", READY, fp32_false_true=(0.0, 1.0)),
        control("e", "CONTROL_SEQUENCE_END", bool_false_true=(False, True)),
        control("id", CORRID, datatype=DataType.BYTES),
    ),
    sequence(oldest=OldestStrategy(preferred_batch_size=(4,))),
    sequence(direct=DirectStrategy(minimum_slot_utilization=1.0)),
    ensemble(STEP),
    ensemble(STEP, backend="ensemble"),
    grouped(InstanceGroup(kind="KIND_GPU", gpus=(0,))),
    grouped(InstanceGroup(profile=("0",)), backend="tensorrt"),
    config(default_model_filename="sub/model.onnx", model_operations=("ops/a.so",)),
]


@pytest.mark.parametrize("sound", SOUND)
def test_a_sound_config_passes(sound):
    check_config(sound)
    check_io(sound)


UNSOUND = {
    "dynamic_batching: max_queue_delay_microseconds is 9223372036854775808, at most 36": dynamic(
        max_queue_delay_microseconds=2**63
    ),
    "sequence_batching: oldest: max_queue_delay_microseconds is 3600000001": sequence(
        oldest=OldestStrategy(max_queue_delay_microseconds=3_600_000_001)
    ),
    "sequence_batching: direct: max_queue_delay_microseconds is 3600000001": sequence(
        direct=DirectStrategy(max_queue_delay_microseconds=3_600_000_001)
    ),
    "max_batch_size is -1, expected 0 or more": config(max_batch_size=-1),
    "platform 'foo' is unknown, known are: caffe2_netdef, catboost_cbm, ensemble, ": config(
        platform="foo"
    ),
    "platform 'python' is unknown: that is a backend, write backend 'python'": config(
        platform="python"
    ),
    "platform 'custom' is unknown: libraries in C++ of the old server's do not run": config(
        platform="custom"
    ),
    "platform 'libtorch' is unknown, write platform 'pytorch_libtorch'": config(
        platform="libtorch"
    ),
    "platform 'onnx_onnxv1' does not go with backend 'pytorch', which runs pytorch_": config(
        platform="onnx_onnxv1", backend="pytorch"
    ),
    "sequence_batching cannot be given beside dynamic_batching": config(
        dynamic_batching=DynamicBatching(), sequence_batching=SequenceBatching()
    ),
    "dynamic_batching: preferred_batch_size 0 is not between 1 and max_batch_size 8": dynamic(
        preferred_batch_size=(0,)
    ),
    "dynamic_batching: preferred_batch_size 9 is not between 1 and max_batch_size 8": dynamic(
        preferred_batch_size=(8, 9)
    ),
    "dynamic_batching: default_priority_level is 0, expected 1 to 2": dynamic(priority_levels=2),
    "dynamic_batching: default_priority_level is 3, expected 1 to 2": dynamic(
        priority_levels=2, default_priority_level=3
    ),
    "dynamic_batching: priority_queue_policy has level 3, expected 1 to 2": dynamic(
        priority_levels=2, default_priority_level=1, priority_queue_policy={3: POLICY}
    ),
    "dynamic_batching: preserve_ordering allows only one of the priority_levels": dynamic(
        preserve_ordering=True, priority_levels=2, default_priority_level=1
    ),
    "dynamic_batching: preserve_ordering does not go with timeout_action DELAY": dynamic(
        preserve_ordering=True, default_queue_policy=POLICY
    ),
    "dynamic_batching: preserve_ordering does not go with timeout_action": dynamic(
        preserve_ordering=True,
        priority_levels=1,
        default_priority_level=1,
        priority_queue_policy={1: OVERRIDE},
    ),
    "response_cache does not go with sequence_batching": config(
        response_cache=True, sequence_batching=SequenceBatching()
    ),
    "response_cache does not go with a decoupled model_transaction_policy": config(
        response_cache=True, decoupled=True
    ),
    "sequence_batching: a control_input has no name": sequence(
        control("", int32_false_true=(0, 1))
    ),
    "sequence_batching: 2 control tensors have the kind CONTROL_SEQUENCE_START": sequence(
        control("a", int32_false_true=(0, 1)), control("b", int32_false_true=(0, 1))
    ),
    "sequence_batching: control 'a' has 2 kinds, expected 1": sequence(
        control("a", int32_false_true=(0, 1)), control("a", READY, int32_false_true=(0, 1))
    ),
    "sequence_batching: control 'b' has 2 kinds, expected 1": sequence(
        ControlInput("b", (Control(START), Control(READY)))
    ),
    "sequence_batching: control 'c' of kind CONTROL_SEQUENCE_START needs exactly one of "
    "int32_false_true, fp32_false_true, bool_false_true, it has none": sequence(control()),
    "sequence_batching: control 'c' of kind CONTROL_SEQUENCE_START needs exactly one of "
    "int32_false_true, fp32_false_true, bool_false_true, it has int32_false_true and bool": (
        sequence(control(int32_false_true=(0, 1), bool_false_true=(False, True)))
    ),
    "sequence_batching: control 'c' of kind CONTROL_SEQUENCE_START: int32_false_true has 1 "
    "entries, expected 2": sequence(control(int32_false_true=(0,))),
    "sequence_batching: control 'c' of kind CONTROL_SEQUENCE_CORRID cannot have fp32_false": (
        sequence(control(kind=CORRID, datatype=DataType.UINT64, fp32_false_true=(0.0, 1.0)))
    ),
    "sequence_batching: control 'c' of kind CONTROL_SEQUENCE_CORRID has data_type TYPE_FP32, "
    "expected one of TYPE_UINT64, TYPE_INT64, TYPE_UINT32, TYPE_INT32, TYPE_STRING": sequence(
        control(kind=CORRID, datatype=DataType.FP32)
    ),
    "sequence_batching: control 'c' of kind CONTROL_SEQUENCE_CORRID has data_type TYPE_INVALID": (
        sequence(control(kind=CORRID))
    ),
    "sequence_batching: oldest: preferred_batch_size 9 is not between 1 and max_batch_size 8": (
        sequence(oldest=OldestStrategy(preferred_batch_size=(9,)))
    ),
    "sequence_batching: direct: minimum_slot_utilization is 1.5, expected 0 to 1": sequence(
        direct=DirectStrategy(minimum_slot_utilization=1.5)
    ),
    "sequence_batching: oldest: max_candidate_sequences is -1, not 0 or more": sequence(
        oldest=OldestStrategy(-1)
    ),
    "sequence_batching: 'c' names 2 inputs, controls or states, not 1": sequence(
        control(int32_false_true=(0, 1)), state=(state("c"),)
    ),
    "sequence_batching: 2 states have the output_name 'o', expected 1": sequence(
        state=(state("a"), state("b"))
    ),
    "sequence_batching: state '' needs an input_name and an output_name": sequence(
        state=(state(""),)
    ),
    "sequence_batching: state 'i' has no data_type": sequence(state=(state(datatype=None),)),
    "sequence_batching: state 'i' has dims [0], expected positive numbers, or -1": sequence(
        state=(state(dims=(0,)),)
    ),
    "sequence_batching: state 'i' has 2 entries initial_state, expected 1": sequence(
        state=(state(initial=(initial(), initial())),)
    ),
    "sequence_batching: state 'i': initial_state has no name": sequence(
        state=(state(initial=(initial(""),)),)
    ),
    "sequence_batching: state 'i': initial_state has data_type TYPE_INT8, the state": sequence(
        state=(state(initial=(initial(datatype=DataType.INT8),)),)
    ),
    "sequence_batching: state 'i' has 64 dims, expected at most 63": sequence(
        state=(state(dims=(1,) * 64),)
    ),
    "sequence_batching: state 'i': initial_state has 64 dims, expected at most 63": sequence(
        state=(state(initial=(initial(dims=(1,) * 64),)),)
    ),
    "sequence_batching: state 'i': initial_state has dims [2], the state has [1]": sequence(
        state=(state(initial=(initial(dims=(2,)),)),)
    ),
    "sequence_batching: state 'i': initial_state has dims [-1], the state has [-1]": sequence(
        state=(state(dims=(-1,), initial=(initial(dims=(-1,)),)),)
    ),
    "sequence_batching: state 'i': initial_state needs zero_data or a data_file": sequence(
        state=(state(initial=(initial(zero_data=None),)),)
    ),
    "sequence_batching: state 'i': initial_state: data_file '../x' leads out": sequence(
        state=(state(initial=(initial(zero_data=None, data_file="../x"),)),)
    ),
    "sequence_batching: direct: minimum_slot_utilization is -0.5": sequence(
        direct=DirectStrategy(minimum_slot_utilization=-0.5)
    ),
    "ensemble_scheduling needs platform 'ensemble', which is not given": ensemble(
        STEP, platform=""
    ),
    "ensemble_scheduling needs platform 'ensemble', not 'x'": ensemble(STEP, platform="x"),
    "an ensemble has no backend, the configuration names 'python'": ensemble(
        STEP, backend="python"
    ),
    "an ensemble needs at least one step in ensemble_scheduling": config(platform="ensemble"),
    "an ensemble needs at least one step": ensemble(),
    "ensemble_scheduling: step 1 has no model_name": ensemble(
        STEP, EnsembleStep("", -1, {"x": "X"}, {"y": "Y"})
    ),
    "ensemble_scheduling: step 0 has no input_map": ensemble(EnsembleStep("a", -1, {}, {"y": "Y"})),
    "ensemble_scheduling: step 0 has no output_map": ensemble(
        EnsembleStep("a", -1, {"x": "X"}, {})
    ),
    "an ensemble cannot have instance_group": ensemble(STEP, instance_group=(InstanceGroup(),)),
    "an ensemble cannot have model_warmup": ensemble(STEP, model_warmup=(Warmup(),)),
    "an ensemble cannot have optimization": ensemble(STEP, optimization=Optimization(1)),
    "an ensemble cannot have optimization: its": ensemble(STEP, given=frozenset({"optimization"})),
    "nobody reads step 0 (model 'a') output 'y' → tensor 'Y'": ensemble(
        STEP, EnsembleStep("b", -1, {"x": "X"}, {"y": "Z"}), output=()
    ),
    "instance_group asks for 2049 instances, expected at most 1024": grouped(
        InstanceGroup(count=1024, gpus=(0, 1), kind="KIND_GPU"), InstanceGroup(count=1)
    ),
    "default_model_filename '../x' leads out of the version folder": config(
        default_model_filename="../x"
    ),
    "model_operations: op_library_filename '/x.so' leads out of the model's folder": config(
        model_operations=("/x.so",)
    ),
}


@pytest.mark.parametrize(("complaint", "unsound"), UNSOUND.items())
def test_an_unsound_config_is_refused_with_model_file_and_field(complaint, unsound):
    with pytest.raises(InvalidConfig, match="^model 'm', some file: " + re.escape(complaint)):
        check_config(unsound, "some file")


ILL_PLACED = {
    "instance_group 'g' has kind KIND_CPU but lists gpus [0]": grouped(
        InstanceGroup("g", kind="KIND_CPU", gpus=(0,))
    ),
    "instance_group '1' has kind KIND_MODEL but lists gpus [0]": grouped(
        InstanceGroup(), InstanceGroup(kind="KIND_MODEL", gpus=(0,))
    ),
    "instance_group '0' has a profile, which only TensorRT models can have": grouped(
        InstanceGroup(profile=("0",)), backend="onnxruntime"
    ),
    "instance_group '0' lists gpu -1, expected 0 or more": grouped(
        InstanceGroup(kind="KIND_GPU", gpus=(-1,))
    ),
}


@pytest.mark.parametrize(("complaint", "unsound"), ILL_PLACED.items())
@pytest.mark.parametrize("check", [check_io, check_instances])
def test_where_instances_cannot_run_is_reported_with_the_inputs_and_outputs(
    complaint, unsound, check
):
    check_config(unsound)
    with pytest.raises(InvalidConfig, match="^model 'm', config.pbtxt: " + re.escape(complaint)):
        check(unsound)


F32 = DataType.FP32


def given(dims=(1,), name="x", max_batch_size=0, backend="", **said):
    tensor = ModelInput(name, F32, dims, **said)
    return config(input=(tensor,), max_batch_size=max_batch_size, backend=backend)


def made(dims=(1,), name="y", max_batch_size=0, **said):
    return config(output=(ModelOutput(name, F32, dims, **said),), max_batch_size=max_batch_size)


def described(**said):
    said = {"target_name": ("t",), "datatype": DataType.INT32, "source_input": ("x",)} | said
    return config(input=(ModelInput("x", F32, (1,)),), batch_input=(BatchInput(**said),))


def scattered(**said):
    said = {"target_name": ("y",), "source_input": ("x",)} | said
    return config(
        input=(ModelInput("x", F32, (1,)),),
        output=(ModelOutput("y", F32, (1,)),),
        batch_output=(BatchOutput(**said),),
    )


SOUND_IO = [
    given((-1, 3)),
    given((3, 4, 5), format="FORMAT_NHWC"),
    given((2, 4, -1, 6), reshape=(8, -1, 1, 6)),
    given((-1,), reshape=(1, -1)),
    given((1,), reshape=(), max_batch_size=1),
    given((1,), is_shape_tensor=True, backend="tensorrt"),
    made((1,), reshape=(), max_batch_size=1, label_filename="labels/a.txt"),
    config(input=(ModelInput("x", F32, (1,)), ModelInput("x", F32, (1,)))),
    described(),
    described(datatype=F32),
    scattered(),
]


@pytest.mark.parametrize("sound", SOUND_IO)
def test_sound_inputs_and_outputs_pass(sound):
    check_io(sound)


UNSOUND_IO = {
    "an input has no name": given(name=""),
    "an output has no name": made(name=""),
    "input 'x' has no dims": given(()),
    "output 'y' has no dims": made(()),
    "input 'x' has dim 0, expected 1 or more, or -1 for one that varies": given((3, 0)),
    "input 'x' has 64 dims, expected at most 63": given((1,) * 64),
    "input 'x': reshape has 64 dims, expected at most 63": given((1,), reshape=(1,) * 64),
    "output 'y' has dim -2": made((-2,)),
    "input 'x' has dim 0, expected": given((1,), reshape=(0,)),
    "input 'x': is_shape_tensor is for TensorRT models only": given(is_shape_tensor=True),
    "output 'y': is_shape_tensor is for TensorRT models only": made(is_shape_tensor=True),
    "input 'x' has FORMAT_NCHW, which needs 3 dims, not 1": given(format="FORMAT_NCHW"),
    "output 'y': label_filename '../l' leads out of the model's folder": made(
        label_filename="../l"
    ),
    "input 'x' has an empty reshape, which needs a max_batch_size above 0": given((1,), reshape=()),
    "input 'x': dims [2] and reshape [3] differ in size": given((2,), reshape=(3,)),
    "input 'x': dims [2, -1] and reshape [-1, 2] differ in size": given((2, -1), reshape=(-1, 2)),
    "output 'y': dims [-1] and reshape [-1, -1] differ in size": made((-1,), reshape=(-1, -1)),
    "input 'x': dims [2] and reshape [] differ in size": given((2,), reshape=(), max_batch_size=1),
    "batch_input of kind BATCH_ELEMENT_COUNT has data_type TYPE_BOOL, expected TYPE_INT32 or": (
        described(datatype=DataType.BOOL)
    ),
    "batch_input of kind BATCH_ELEMENT_COUNT has data_type TYPE_INVALID": described(datatype=None),
    "batch_input of kind BATCH_ELEMENT_COUNT has 2 of source_input, expected 1": described(
        source_input=("x", "x")
    ),
    "batch_input of kind BATCH_ELEMENT_COUNT: source_input 'z' is no input": described(
        source_input=("z",)
    ),
    "batch_output of kind BATCH_SCATTER_WITH_INPUT_SHAPE has 0 of source_input": scattered(
        source_input=()
    ),
    "batch_output of kind BATCH_SCATTER_WITH_INPUT_SHAPE: source_input 'z' is no input": scattered(
        source_input=("z",)
    ),
    "batch_output of kind BATCH_SCATTER_WITH_INPUT_SHAPE: target_name 'z' is no output": scattered(
        target_name=("z",)
    ),
}


@pytest.mark.parametrize(("complaint", "unsound"), UNSOUND_IO.items())
def test_unsound_inputs_and_outputs_are_refused(complaint, unsound):
    with pytest.raises(InvalidConfig, match="^model 'm', config.pbtxt: " + re.escape(complaint)):
        check_io(unsound)


@pytest.mark.parametrize("path", ["", "a", "a/b.onnx", "a..b", "..."])
def test_a_path_below_is_inside(path):
    assert is_inside(path)


@pytest.mark.parametrize(
    "path", ["..", "../a", "a/../../b", "/a", "a\\..\\b", "C:\\a", "C:a", "\\a"]
)
def test_a_path_that_leads_out_is_not_inside(path):
    assert not is_inside(path)


def is_field(path, message):
    """Tell whether `path` leads to a field of a message, through numbers and keys of maps."""
    way = list(path)
    while way:
        field = message.fields_by_name.get(way.pop(0))
        if field is None:
            return False
        message = field.message_type
        if message is not None and message.GetOptions().map_entry:
            del way[:1]
            message = message.fields_by_name["value"].message_type
        elif way and isinstance(way[0], int):
            del way[0]
    return True


@pytest.mark.parametrize("unsound", [*UNSOUND.values(), *ILL_PLACED.values(), *UNSOUND_IO.values()])
def test_each_complaint_is_about_a_field_of_the_configuration(unsound):
    complaints = [
        *config_complaints(unsound),
        *instance_complaints(unsound),
        *io_complaints(unsound),
    ]
    assert complaints
    for complaint in complaints:
        top = config_pool().FindMessageTypeByName(MODEL_CONFIG)
        assert complaint.path, complaint.text
        assert is_field(complaint.path, top), complaint


def complaints(*links, takes=("X",), gives=("Y",)):
    """Return what is wrong with an ensemble whose steps read and write one tensor each."""
    steps = [EnsembleStep("m", -1, {"I": reads}, {"O": writes}) for reads, writes in links]
    config = ModelConfig(
        "e",
        input=tuple(ModelInput(name, DataType.FP32, (1,)) for name in takes),
        output=tuple(ModelOutput(name, DataType.FP32, (1,)) for name in gives),
    )
    return [one.text for one in wiring_complaints(config, steps)]


@pytest.mark.parametrize(
    "links", [[("X", "Y")], [("t", "Y"), ("X", "t")], [("X", "t"), ("t", "Y"), ("t", "Z")]]
)
def test_what_is_written_once_and_read_is_sound(links):
    assert complaints(*links, gives=("Y", "Z")[: len(links) - 1 or 1]) == []


@pytest.mark.parametrize(
    ("text", "links"),
    [
        (
            "tensor 'Y' is written twice: by step 0 (model 'm') output 'O' and by "
            "step 1 (model 'm') output 'O'",
            [("X", "Y"), ("X", "Y")],
        ),
        (
            "tensor 'X' is written twice: by the ensemble's input 'X' and by step 0 (model 'm') "
            "output 'O'",
            [("X", "X"), ("X", "Y")],
        ),
        ("no step writes tensor 't' → step 1 (model 'm') input 'I'", [("X", "Y"), ("t", "X")]),
        ("no step writes tensor 'Y' → the ensemble's output 'Y'", [("X", "t"), ("t", "X")]),
        ("nobody reads step 1 (model 'm') output 'O' → tensor 't'", [("X", "Y"), ("X", "t")]),
    ],
)
def test_what_is_not_tied_together_is_reported_with_its_way(text, links):
    assert text in complaints(*links)


def test_an_input_nobody_reads_is_reported():
    reported = complaints(("X", "Y"), takes=("X", "W"))
    assert reported == ["nobody reads the ensemble's input 'W' → tensor 'W'"]


def test_an_ensemble_without_steps_leaves_its_tensors_untied():
    config = ModelConfig("e", output=(ModelOutput("Y", DataType.FP32, (1,)),))
    reported = [one.text for one in wiring_complaints(config, ())]
    assert reported == ["no step writes tensor 'Y' → the ensemble's output 'Y'"]
