"""Which settings are tried, and the configuration that they make."""

from dataclasses import replace

import pytest

from inferd.config.model import DynamicBatching, EnsembleScheduling, InstanceGroup, ModelConfig
from inferd.config.model import SequenceBatching as Sequences
from inferd.errors import Unsupported
from inferd.tune.settings import BATCH, DELAY, INSTANCES, Knob, Space, configured, knobs, start

SPACE = Space([Knob(INSTANCES, (1, 2)), Knob(BATCH, (1, 4)), Knob(DELAY, (0, 500))])


def test_all_combinations_are_candidates_but_those_that_say_the_same():
    assert SPACE.candidates == [
        (1, 1, 0), (1, 4, 0), (1, 4, 500), (2, 1, 0), (2, 4, 0), (2, 4, 500)
    ]  # fmt: skip
    assert SPACE.canonical((2, 1, 500)) == (2, 1, 0)
    assert SPACE.canonical((2, 4, 500)) == (2, 4, 500)


def test_values_by_name():
    assert SPACE.named((2, 4, 500)) == {INSTANCES: 2, BATCH: 4, DELAY: 500}


def test_positions_are_steps_along_each_knob():
    assert [*SPACE.positions()][2] == [0, 1, 1]


def test_words_have_no_order():
    assert Knob(INSTANCES, (1, 2)).is_ordered
    assert not Knob("process", ("server", "worker")).is_ordered


ONNX = ModelConfig(
    "m",
    backend="onnxruntime",
    max_batch_size=8,
    instance_group=(InstanceGroup("m_0", 2, "KIND_CPU"),),
)
ONNX = replace(ONNX, parameters={"inferd_joined": "joined"})
BARE = ModelConfig("m")


def values(config, file=BARE, cores=4, providers=()):
    return {knob.name: knob.values for knob in knobs(config, file, cores, providers)}


def test_an_onnx_model_has_all_settings():
    assert values(ONNX, providers=["openvino"]) == {
        "instances": (1, 2, 4, 8),
        "threads": (1, 2, 4),
        "batch": (1, 4, 8, 16, 32, 64),
        "delay_us": (0, 500, 2000),
        "process": ("server", "worker"),
        "provider": ("default", "openvino"),
    }


def test_batches_are_no_larger_than_the_file_says():
    assert values(ONNX, file=ONNX)["batch"] == (1, 4, 8)


@pytest.mark.parametrize(
    "config",
    [
        replace(ONNX, max_batch_size=0),
        replace(ONNX, sequence_batching=Sequences(), parameters={}),
        replace(ONNX, parameters={"inferd_joined": "alone"}),
        replace(ONNX, parameters={"inferd_joined": "compared"}),
        replace(ONNX, parameters={}),
        replace(ONNX, decoupled=True),
    ],
)
def test_models_whose_requests_do_not_share_batches_have_no_batches(config):
    assert values(config).keys() == {"instances", "threads", "process"}


def test_a_python_model_has_more_instances_as_it_may_wait_for_something():
    python = replace(ONNX, backend="python", max_batch_size=0)
    assert values(python, cores=2) == {"instances": (1, 2, 3, 4, 6, 8)}


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (replace(ONNX, ensemble_scheduling=EnsembleScheduling()), "is an ensemble"),
        (replace(ONNX, instance_group=(InstanceGroup(), InstanceGroup())), "several groups"),
    ],
)
def test_models_that_cannot_be_tuned_are_refused(config, words):
    with pytest.raises(Unsupported, match=words):
        knobs(config, BARE, 4, [])


def test_the_search_starts_at_what_is_in_force():
    config = replace(
        ONNX,
        dynamic_batching=DynamicBatching((6,), 400),
        parameters=ONNX.parameters | {"intra_op_thread_count": "3", "inferd_process": "worker"},
    )
    assert start(knobs(config, config, 4, []), config) == (2, 2, 4, 500, "worker")
    assert start(knobs(ONNX, ONNX, 4, []), ONNX) == (2, 1, 1, 0, "server")


def made(file=BARE, **named):
    usual = {"instances": 1, "threads": 1, "batch": 1, "delay_us": 0, "process": "server"}
    return configured(file, ONNX, usual | named)


def test_values_become_a_configuration():
    found = made(
        instances=4, threads=2, batch=4, delay_us=500, process="worker", provider="openvino"
    )
    assert found.instance_group == (InstanceGroup("", 4, "KIND_CPU"),)
    assert found.parameters == {"intra_op_thread_count": "2", "inferd_process": "worker"}
    assert found.dynamic_batching == DynamicBatching((4,), 500)
    assert [one.name for one in found.optimization.cpu_execution_accelerator] == ["openvino"]


def test_what_clients_may_send_is_never_made_smaller():
    assert [made(batch=size).max_batch_size for size in (1, 4, 8, 32)] == [8, 8, 8, 32]
    assert made(batch=8).dynamic_batching == DynamicBatching()
    assert made(batch=1).dynamic_batching is None


def test_what_else_the_file_says_stays():
    file = ModelConfig(
        "m",
        parameters={"other": "1"},
        max_batch_size=8,
        dynamic_batching=DynamicBatching(preserve_ordering=True),
    )
    found = made(file, batch=8, delay_us=500)
    assert found.parameters["other"] == "1"
    assert found.dynamic_batching == DynamicBatching((), 500, preserve_ordering=True)
