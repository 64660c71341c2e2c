"""What a ModelConfig means where it is silent."""

from dataclasses import replace

import pytest

from inferd.config.defaults import normalised
from inferd.config.model import (
    DynamicBatching,
    EnsembleScheduling,
    InstanceGroup,
    ModelConfig,
    OldestStrategy,
    Optimization,
    SequenceBatching,
    VersionPolicy,
)
from inferd.errors import InvalidConfig


def test_an_empty_config_gets_name_policy_group_and_pinned_memory():
    assert normalised(ModelConfig(""), "m") == ModelConfig(
        "m",
        version_policy=VersionPolicy(latest=1),
        optimization=Optimization(input_pinned_memory=True, output_pinned_memory=True),
        instance_group=(InstanceGroup("m", 1, "KIND_CPU"),),
    )


def test_what_is_said_stays():
    config = ModelConfig(
        "m",
        platform="onnxruntime_onnx",
        backend="onnxruntime",
        version_policy=VersionPolicy(all=True),
        optimization=Optimization(input_pinned_memory=False, output_pinned_memory=False),
        dynamic_batching=DynamicBatching(preferred_batch_size=(2,)),
        max_batch_size=4,
        instance_group=(InstanceGroup("g", 3, "KIND_MODEL"),),
        default_model_filename="a.onnx",
    )
    assert normalised(config, "m") == config


def test_a_platform_gives_backend_and_file():
    config = normalised(ModelConfig("", platform="pytorch_libtorch"), "m")
    assert (config.backend, config.default_model_filename) == ("pytorch", "model.pt")


def test_a_name_other_than_the_folders_is_refused():
    expected = "model 'folder', config.pbtxt: name is 'other', expected 'folder', the name of its"
    with pytest.raises(InvalidConfig, match=f"^{expected}"):
        normalised(ModelConfig("other"), "folder")


def test_preferred_sizes_follow_max_batch_size_once_it_is_known():
    config = normalised(ModelConfig("m", dynamic_batching=DynamicBatching()), "m")
    assert config.dynamic_batching == DynamicBatching()
    config = normalised(replace(config, max_batch_size=8), "m")
    assert config.dynamic_batching == DynamicBatching(preferred_batch_size=(8,))


@pytest.mark.parametrize(("said", "means"), [(0, 1_000_000), (5, 5)])
def test_sequences_are_dropped_after_a_second_unless_said(said, means):
    config = ModelConfig("m", sequence_batching=SequenceBatching(said))
    assert normalised(config, "m").sequence_batching == SequenceBatching(means)


@pytest.mark.parametrize(
    ("most", "said", "means"), [(8, (), (8,)), (8, (2, 4), (2, 4)), (0, (), ())]
)
def test_preferred_sizes_of_the_oldest_sequences_follow_max_batch_size_too(most, said, means):
    sequence = SequenceBatching(5, oldest=OldestStrategy(preferred_batch_size=said))
    config = normalised(ModelConfig("m", max_batch_size=most, sequence_batching=sequence), "m")
    shown = SequenceBatching(5, oldest=OldestStrategy(preferred_batch_size=means))
    assert config.sequence_batching == shown


def test_an_ensemble_gets_no_instances_and_no_pinned_memory():
    config = ModelConfig("e", platform="ensemble", ensemble_scheduling=EnsembleScheduling())
    assert normalised(config, "e") == replace(config, version_policy=VersionPolicy(latest=1))


GPU, CPU, AUTO = "KIND_GPU", "KIND_CPU", "KIND_AUTO"


@pytest.mark.parametrize(
    ("group", "gpu_count", "filled"),
    [
        (InstanceGroup(), 0, InstanceGroup("m_0", 1, CPU)),
        (InstanceGroup(count=-1), 0, InstanceGroup("m_0", 1, CPU)),
        (InstanceGroup(), 2, InstanceGroup("m_0", 1, GPU, (0, 1))),
        (InstanceGroup(kind=AUTO, gpus=(1,)), 2, InstanceGroup("m_0", 1, GPU, (1,))),
        (InstanceGroup(kind=AUTO, gpus=(2,)), 2, InstanceGroup("m_0", 1, CPU)),
        (InstanceGroup(kind=GPU), 0, InstanceGroup("m_0", 1, GPU)),
        (InstanceGroup(kind=GPU, gpus=(0,)), 0, InstanceGroup("m_0", 1, GPU, (0,))),
        (InstanceGroup(kind=CPU), 2, InstanceGroup("m_0", 1, CPU)),
        (InstanceGroup("g", 4, "KIND_MODEL"), 2, InstanceGroup("g", 4, "KIND_MODEL")),
    ],
)
def test_an_instance_group_gets_name_count_kind_and_gpus(group, gpu_count, filled):
    config = normalised(ModelConfig("m", instance_group=(group,)), "m", gpu_count)
    assert config.instance_group == (filled,)
    assert normalised(config, "m", gpu_count) == config


@pytest.mark.parametrize(
    ("backend", "kind", "count"),
    [("onnxruntime", CPU, 2), ("tensorflow", CPU, 2), ("python", CPU, 1), ("onnxruntime", GPU, 1)],
)
def test_onnx_and_tensorflow_get_two_instances_on_the_cpu(backend, kind, count):
    group = InstanceGroup(kind=kind)
    config = normalised(ModelConfig("m", backend=backend, instance_group=(group,)), "m")
    assert config.instance_group[0].count == count


def test_unnamed_groups_are_numbered_and_the_automatic_one_has_the_models_name():
    two = ModelConfig("m", instance_group=(InstanceGroup(), InstanceGroup()))
    assert [group.name for group in normalised(two, "m").instance_group] == ["m_0", "m_1"]
    assert [group.name for group in normalised(ModelConfig("m"), "m").instance_group] == ["m"]
