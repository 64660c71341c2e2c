import pytest

from inferd.config.model import (
    DynamicBatching,
    ModelConfig,
    ModelInput,
    QueuePolicy,
    RateLimiter,
    SequenceBatching,
)
from inferd.config.parameter_names import PLACEMENT
from inferd.core.interfaces import Placement
from inferd.core.processes import ALONE, Processes
from inferd.engine.loading.homes import check_ensemble, form_of, home_of, share_of_queues
from inferd.errors import InvalidConfig
from inferd.forward.home import Home
from inferd.tensor.dtype import DataType

CPU, GPU = Placement("m_0"), Placement("m_0", gpu=True)
LIMITED = Placement("m_0", rate_limiter=RateLimiter())


class Hosted:
    def is_in_worker(self, config):
        return config.parameters.get("inferd_process", "worker") == "worker"


class Here:
    pass


def config_of(word=None, name="m", **more):
    parameters = more.pop("parameters", {})
    if word is not None:
        parameters = parameters | {PLACEMENT: word}
    return ModelConfig(name=name, parameters=parameters, **more)


def home(config, backend=Here, place=CPU, processes=ALONE, *, is_limited=False):
    return home_of(config, backend(), [place], processes, is_limited=is_limited)


@pytest.mark.parametrize(
    ("word", "backend", "place", "kind"),
    [
        (None, Here, CPU, "copy"),
        ("", Here, CPU, "copy"),
        ("auto", Here, GPU, "single"),
        (None, Hosted, CPU, "spread"),
        ("auto", Hosted, GPU, "spread"),
        (None, Here, LIMITED, "copy"),  # the server does not limit rates
        ("copy", Hosted, GPU, "copy"),
        ("single", Here, CPU, "single"),
        ("spread", Here, CPU, "spread"),
    ],
)
def test_where_a_version_is(word, backend, place, kind):
    assert home(config_of(word), backend, place).kind == kind


def test_a_model_that_a_parameter_keeps_in_the_server_is_copied():
    assert home(config_of(parameters={"inferd_process": "server"}), Hosted).kind == "copy"


def test_what_shares_resources_is_all_in_one_process():
    homes = [
        home(config_of(name=name), backend, LIMITED, Processes(0, 8), is_limited=True)
        for name in "abcdefgh"
        for backend in (Here, Hosted)
    ]
    assert {(one.kind, one.first) for one in homes} == {("single", homes[0].first)}


def test_other_models_begin_in_different_processes():
    homes = [home(config_of("single", name=f"m{n}"), processes=Processes(1, 4)) for n in range(50)]
    assert {one.first for one in homes} == {0, 1, 2, 3}
    assert {(one.number, one.count) for one in homes} == {(1, 4)}


def test_an_isolated_model_is_where_it_was():
    found = home_of(config_of(), Hosted(), [CPU], ALONE, is_limited=False, is_isolated=True)
    assert found.kind == "copy"


@pytest.mark.parametrize("backend", [Here, Hosted])
def test_sequences_have_owners(backend):
    assert not home(config_of(), backend).by_sequence
    assert home(config_of(sequence_batching=SequenceBatching()), backend).by_sequence


@pytest.mark.parametrize("word", ["copy", "spread"])
def test_resources_cannot_be_in_several_processes(word):
    with pytest.raises(InvalidConfig) as caught:
        home(config_of(word), Here, LIMITED, is_limited=True)
    assert caught.value.message == (
        f"model 'm': parameter inferd_placement is {word}, but its rate_limiter shares resources, "
        f"which are in one process"
    )


def test_an_unknown_word_is_refused():
    with pytest.raises(InvalidConfig) as caught:
        home(config_of("owner"))
    assert caught.value.message == (
        "model 'm': parameter inferd_placement is 'owner', expected auto, copy, single or spread"
    )


def test_an_ensemble_is_in_each_process():
    for word in (None, "auto", "copy"):
        check_ensemble(config_of(word))
    for word in ("single", "spread"):
        with pytest.raises(InvalidConfig, match=f"is {word}, but an ensemble has no instances"):
            check_ensemble(config_of(word))


def test_a_form_is_that_of_requests_and_answers():
    tensors = (ModelInput("A", DataType.FP32, (1,)),)
    config = config_of(input=tensors)
    assert form_of(config) == form_of(config_of("single", input=tensors))
    others = [
        config_of(),
        config_of(input=(ModelInput("A", DataType.FP32, (2,)),)),
        config_of(input=tensors, max_batch_size=1),
        config_of(input=tensors, decoupled=True),
    ]
    assert len({form_of(one) for one in (config, *others)}) == 5


def queued(*sizes):
    """Return a configuration with the default queue, and those of levels, of these sizes."""
    default, *others = (QueuePolicy(max_queue_size=size) for size in sizes)
    batching = DynamicBatching(
        default_queue_policy=default, priority_queue_policy=dict(enumerate(others, 1))
    )
    return config_of(dynamic_batching=batching)


@pytest.mark.parametrize(
    ("sizes", "kind"), [((3,), "single"), ((4,), "copy"), ((0,), "copy"), ((0, 9, 1), "single")]
)
def test_a_queue_too_short_to_be_shared_is_in_one_process(sizes, kind):
    assert home(queued(*sizes), processes=Processes(0, 4)).kind == kind
    assert home(queued(*sizes)).kind == "copy"


def test_what_queues_hold_is_shared_out():
    config = queued(10, 0, 4)
    batching = share_of_queues(config, Home("copy", 0, 0, 4), 1).dynamic_batching
    assert batching.default_queue_policy.max_queue_size == 3
    assert [one.max_queue_size for one in batching.priority_queue_policy.values()] == [0, 1]
    spread = share_of_queues(config, Home("spread", 0, 0, 4), 2).dynamic_batching
    assert spread.default_queue_policy.max_queue_size == 5


def test_one_process_has_the_whole_queue():
    config = queued(10)
    assert share_of_queues(config, Home("copy"), 4) is config
    assert share_of_queues(config, Home("single", 0, 0, 4), 4) is config
    without = config_of()
    assert share_of_queues(without, Home("copy", 0, 0, 4), 1) is without
