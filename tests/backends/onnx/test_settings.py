import logging

import numpy as np
import onnxruntime as ort
import pytest

from inferd.backends.onnx.settings import Threads, onnxruntime, providers, run_options
from inferd.backends.onnx.settings import session_options as session_options_with
from inferd.config.model import Accelerator, ModelConfig, Optimization
from inferd.core.interfaces import Placement
from inferd.errors import InvalidConfig

CPU = Placement("m_0")
GPU = Placement("m_0", gpu=True, device_id=1)
CPU_BUILD = ["CPUExecutionProvider"]
GPU_BUILD = ["TensorrtExecutionProvider", "CUDAExecutionProvider", "CPUExecutionProvider"]
OPENVINO_BUILD = ["OpenVINOExecutionProvider", "CPUExecutionProvider"]
LAST = ("CPUExecutionProvider", {})


def session_options(config):
    return session_options_with(config, Threads())


def configured(**parameters):
    return ModelConfig("m", parameters=parameters)


def accelerated(device, name, **parameters):
    accelerators = {f"{device}_execution_accelerator": (Accelerator(name, parameters),)}
    return ModelConfig("m", optimization=Optimization(**accelerators))


def test_the_package_is_onnxruntime():
    assert onnxruntime() is ort


def test_a_session_has_one_thread_and_never_spins():
    options = session_options(ModelConfig("m"))
    assert (options.intra_op_num_threads, options.inter_op_num_threads) == (1, 1)
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"
    assert options.get_session_config_entry("session.inter_op.allow_spinning") == "0"
    assert options.execution_mode == ort.ExecutionMode.ORT_SEQUENTIAL
    assert options.enable_cpu_mem_arena
    assert options.enable_mem_pattern


def test_thread_counts_are_taken_zero_being_the_default_of_onnx_runtime():
    options = session_options(configured(intra_op_thread_count="3", inter_op_thread_count="0"))
    assert (options.intra_op_num_threads, options.inter_op_num_threads) == (3, 0)


def test_execution_mode_and_memory_settings_are_taken():
    options = session_options(
        configured(execution_mode="1", enable_mem_arena="0", enable_mem_pattern="False")
    )
    assert options.execution_mode == ort.ExecutionMode.ORT_PARALLEL
    assert not options.enable_cpu_mem_arena
    assert not options.enable_mem_pattern


def test_session_entries_are_passed_on():
    entries = {"session.intra_op.allow_spinning": "1", "session.disable_prepacking": "1"}
    options = session_options(configured(**entries))
    assert {key: options.get_session_config_entry(key) for key in entries} == entries


def test_unknown_parameters_mean_nothing():
    session_options(configured(whatever="9", FORCE_CPU_ONLY_INPUT_TENSORS="no"))


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        (-1, ort.GraphOptimizationLevel.ORT_ENABLE_BASIC),
        (0, ort.GraphOptimizationLevel.ORT_ENABLE_ALL),
        (1, ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED),
        (2, ort.GraphOptimizationLevel.ORT_DISABLE_ALL),
    ],
)
def test_graph_levels_are_those_of_triton(level, expected):
    config = ModelConfig("m", optimization=Optimization(graph_level=level))
    assert session_options(config).graph_optimization_level == expected


def test_an_unknown_graph_level_is_refused():
    config = ModelConfig("m", optimization=Optimization(graph_level=3))
    with pytest.raises(InvalidConfig, match=r"graph level is 3, expected one of \[-1, 0, 1, 2\]"):
        session_options(config)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("intra_op_thread_count", "many"),
        ("inter_op_thread_count", "-1"),
        ("intra_op_thread_count", "2147483648"),
        ("intra_op_thread_count", "²"),
        ("execution_mode", "2"),
        ("enable_mem_arena", "maybe"),
    ],
)
def test_a_value_that_is_none_is_refused(key, value):
    with pytest.raises(InvalidConfig, match=f"parameter {key} is '{value}', expected"):
        session_options(configured(**{key: value}))


SHRINKAGE = "memory.enable_memory_arena_shrinkage"


class SessionOf:
    """As much of a session as settings of runs depend on."""

    def __init__(self, **providers):
        self._providers = providers

    def get_provider_options(self):
        return self._providers


@pytest.mark.parametrize(
    ("asked", "shrunk"),
    [("cpu:0", "cpu:0"), ("cpu", "cpu:0"), ("cpu:0;", "cpu:0"), ("cpu:0;gpu:1", "cpu:0;gpu:1")],
)
def test_arena_shrinkage_is_a_matter_of_each_run(asked, shrunk):
    session = SessionOf(CUDAExecutionProvider={"device_id": "1"}, CPUExecutionProvider={})
    options = run_options(configured(**{SHRINKAGE: asked}), session)
    assert options.get_run_config_entry(SHRINKAGE) == shrunk
    assert run_options(ModelConfig("m"), session).log_severity_level == 4


@pytest.mark.parametrize(
    ("asked", "arena"), [("cpu:0;gpu:0", "1"), ("gpu:0", "1"), ("cpu:1", "1"), ("cpu:0", "0")]
)
def test_arenas_that_a_session_lacks_do_not_fail_its_runs(add_sub, asked, arena):
    config = configured(**{SHRINKAGE: asked, "enable_mem_arena": arena})
    session = ort.InferenceSession(add_sub.file, session_options(config))
    feed = dict.fromkeys("AB", np.ones((1, 4), np.float32))
    assert session.run(None, feed, run_options(config, session))


@pytest.mark.parametrize("asked", ["disk:0", "cpu:x", "cpu:-1", "cpu 0"])
def test_arenas_of_no_device_are_refused(asked):
    with pytest.raises(InvalidConfig, match=f"parameter {SHRINKAGE} is '{asked}', expected"):
        session_options(configured(**{SHRINKAGE: asked}))


def test_the_cpu_needs_nothing_else():
    assert providers(ModelConfig("m"), CPU, GPU_BUILD) == [LAST]


def test_a_gpu_placement_runs_on_that_gpu():
    assert providers(ModelConfig("m"), GPU, GPU_BUILD) == [
        ("CUDAExecutionProvider", {"device_id": "1"}),
        LAST,
    ]


def test_a_gpu_placement_without_a_gpu_build_runs_on_the_cpu_with_a_warning(caplog):
    with caplog.at_level(logging.WARNING):
        assert providers(ModelConfig("m"), GPU, CPU_BUILD) == [LAST]
    assert "model 'm' asks for a GPU, but" in caplog.text


def test_triton_numbers_of_cuda_choices_become_names():
    config = configured(
        cudnn_conv_algo_search="1", arena_extend_strategy="kSameAsRequested", gpu_mem_limit="1000"
    )
    assert providers(config, GPU, GPU_BUILD)[0] == (
        "CUDAExecutionProvider",
        {
            "cudnn_conv_algo_search": "HEURISTIC",
            "arena_extend_strategy": "kSameAsRequested",
            "gpu_mem_limit": "1000",
            "device_id": "1",
        },
    )


def test_tensorrt_comes_before_cuda_with_its_options_renamed():
    config = accelerated(
        "gpu", "tensorrt", precision_mode="FP16", max_workspace_size_bytes="9", trt_dla_core="0"
    )
    assert providers(config, GPU, GPU_BUILD) == [
        (
            "TensorrtExecutionProvider",
            {
                "trt_dla_core": "0",
                "trt_fp16_enable": "1",
                "trt_max_workspace_size": "9",
                "device_id": "1",
            },
        ),
        ("CUDAExecutionProvider", {"device_id": "1"}),
        LAST,
    ]


def test_an_accelerator_alone_does_for_a_gpu_placement():
    build = ["TensorrtExecutionProvider", "CPUExecutionProvider"]
    chosen = providers(accelerated("gpu", "tensorrt"), GPU, build)
    assert [name for name, _ in chosen] == build


def test_tensorrt_keeps_full_precision_unless_told():
    config = accelerated("gpu", "tensorrt", precision_mode="FP32")
    assert providers(config, GPU, GPU_BUILD)[0] == ("TensorrtExecutionProvider", {"device_id": "1"})


def test_cuda_as_an_accelerator_is_named_once():
    config = accelerated("gpu", "cuda", prefer_nhwc="1")
    assert providers(config, GPU, GPU_BUILD) == [
        ("CUDAExecutionProvider", {"prefer_nhwc": "1", "device_id": "1"}),
        LAST,
    ]


def test_openvino_is_an_accelerator_of_the_cpu():
    config = accelerated("cpu", "openvino", num_of_threads="2")
    assert providers(config, CPU, OPENVINO_BUILD) == [
        ("OpenVINOExecutionProvider", {"num_of_threads": "2"}),
        LAST,
    ]
    assert providers(config, GPU, GPU_BUILD) == providers(ModelConfig("m"), GPU, GPU_BUILD)


@pytest.mark.parametrize(
    ("config", "placement", "build", "complaint"),
    [
        (accelerated("cpu", "openvino"), CPU, CPU_BUILD, "cpu .* 'openvino'; .* offers none"),
        (accelerated("cpu", "tensorrt"), CPU, OPENVINO_BUILD, "'tensorrt'; .* offers openvino"),
        (accelerated("gpu", "magic"), GPU, GPU_BUILD, "'magic'; .* offers tensorrt, cuda for"),
    ],
)
def test_an_accelerator_the_build_does_not_have_is_refused(config, placement, build, complaint):
    with pytest.raises(InvalidConfig, match=complaint):
        providers(config, placement, build)
