"""Instances are opened only where there is room for them."""

import re
import threading

import pytest

from inferd.backends.identity import IdentityBackend
from inferd.config.model import InstanceGroup, ModelConfig, SequenceBatching
from inferd.config.pbtxt import parse_pbtxt
from inferd.core.interfaces import Placement
from inferd.core.request import InferRequest, InferResponse, Round
from inferd.engine.loading.load import Loader, LoadOptions
from inferd.engine.loading.opening import Machine, open_all, open_side_by_side, samples_of, warm_up
from inferd.errors import BackendFailed, InvalidConfig, InvalidRequest, Unavailable
from inferd.repository.layout import placements
from inferd.repository.repositories import Repositories
from inferd.repository.warmup import Sample

ON_GPUS = InstanceGroup(name="g", kind="KIND_GPU", count=1, gpus=(0, 1))


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({1: 0.7}, "of the memory of GPU 1 0.750 is in use, .* allows 0.7 for a load"),
        ({0: 0}, "GPU 0"),
    ],
)
def test_nothing_is_opened_on_a_gpu_that_is_fuller_than_its_limit(limits, words):
    opened = []
    machine = Machine({}, limits, [0.25, 0.75].__getitem__)
    config = ModelConfig("m", instance_group=(ON_GPUS,))
    places, _ = placements(config, 2)
    with pytest.raises(Unavailable, match=f"^model 'm': .*{words}"):
        open_all(config, IdentityBackend(), opened.append, (), machine, places)
    assert opened == []


def test_limits_that_are_not_reached_or_cannot_be_known_hold_nothing_up(caplog):
    places = [Placement("g_0", gpu=True, device_id=0), Placement("g_1", gpu=True, device_id=1)]
    config = ModelConfig("m")
    Machine({}, {0: 0.25, 5: 0.0}, [0.25, 0.75].__getitem__).check_room(config, places)
    Machine({}, {0: 0.0}, [0.25].__getitem__).check_room(config, [Placement("g_0")])
    assert caplog.records == []
    Machine({}, {1: 0.0}, lambda _: None).check_room(config, places)
    assert "GPU 1 does not tell" in caplog.text


PATIENCE_S = 30


class Opener:
    """What opens an instance, itself; `wait` holds it up, a `failure` is raised."""

    def __init__(self, failure=None, wait=None):
        self.failure, self.wait = failure, wait
        self.was_begun = self.is_closed = False

    def __call__(self):
        self.was_begun = True
        if self.wait is not None:
            self.wait()
        if self.failure is not None:
            raise self.failure
        return self

    def close(self):
        self.is_closed = True


def test_as_many_are_opened_at_once_as_there_are_threads():
    met = threading.Barrier(3, timeout=PATIENCE_S)
    openers = [Opener(wait=met.wait) for _ in range(6)]
    assert open_side_by_side(openers, 3) == openers


def test_one_thread_opens_them_in_turn_and_without_threads_of_its_own():
    seen = []
    openers = [Opener(wait=lambda: seen.append(threading.current_thread())) for _ in range(3)]
    assert open_side_by_side(openers, 1) == openers
    assert seen == [threading.current_thread()] * 3
    assert open_side_by_side([], 4) == []


def test_when_one_fails_those_under_way_are_closed_and_no_more_are_begun():
    met = threading.Barrier(2, timeout=PATIENCE_S)
    failed = threading.Event()
    bad = Opener(ArithmeticError("no"), met.wait)
    good = Opener(wait=lambda: (met.wait(), failed.wait(0.05)))
    rest = [Opener() for _ in range(3)]
    with pytest.raises(ArithmeticError, match=r"^no$"):
        open_side_by_side([good, bad, *rest], 2)
    assert good.is_closed
    assert not any(one.was_begun and not one.is_closed for one in rest)


def test_of_several_failures_the_first_instance_is_told():
    met = threading.Barrier(2, timeout=PATIENCE_S)
    openers = [Opener(ArithmeticError(str(n)), met.wait) for n in range(2)]
    with pytest.raises(ArithmeticError, match=r"^0$"):
        open_side_by_side(openers, 2)


CONFIG = ModelConfig("m")
BATCHED = """
max_batch_size: 4
input { name: "A" data_type: TYPE_FP32 dims: 2 }
input { name: "B" data_type: TYPE_FP32 dims: 2 }
output { name: "Y" data_type: TYPE_FP32 dims: 2 }
model_warmup {
  name: "three" batch_size: 3
  inputs { key: "A" value { data_type: TYPE_FP32 dims: 2 zero_data: true } }
  inputs { key: "B" value { data_type: TYPE_FP32 dims: %d random_data: true } }
}
"""


class Noting:
    """Answers all, or what `outcome` says."""

    def __init__(self, outcome=None):
        self.seen = []
        self.outcome = outcome

    def execute(self, requests):
        self.seen.append([request.id for request in requests])
        if isinstance(self.outcome, Exception):
            raise self.outcome
        if self.outcome is not None:
            return self.outcome
        return [InferResponse("m", "1") for _ in requests]

    def close(self):
        pass


class Decoupled(Noting):
    def stream(self, request):
        self.seen.append(request.id)
        yield InferResponse("m", "1")
        if self.outcome is not None:
            raise self.outcome


def sample(name, size=1, count=1):
    return Sample(name, [InferRequest("m", id=name) for _ in range(size)], count)


def test_samples_run_in_order_on_every_instance():
    instances = [Noting(), Noting()]
    warm_up(CONFIG, instances, [sample("a", 2), sample("b", count=3)])
    for one in instances:
        assert one.seen == [["a", "a"], ["b"], ["b"], ["b"]]


IN_SEQUENCES = """
max_batch_size: 4
sequence_batching {
  control_input { name: "START" control { kind: CONTROL_SEQUENCE_START int32_false_true: [3, 5] } }
  control_input { name: "ID" control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_STRING } }
  state { input_name: "S" output_name: "T" data_type: TYPE_INT32 dims: 2 }
}
model_warmup { name: "w" batch_size: 1
  inputs { key: "START" value { data_type: TYPE_INT32 dims: 1 zero_data: true } } }
"""


def test_what_a_sample_of_a_sequence_does_not_name_is_that_of_an_only_request(tmp_path):
    [sample] = samples_of(tmp_path, parse_pbtxt(IN_SEQUENCES, ""))
    [request] = sample.requests
    assert {one.name: (one.shape, bytes(one.view())) for one in request.inputs} == {
        "START": ((1, 1), bytes(4)),
        "ID": ((1, 1), b"\1\0\0\0" + b"1"),
        "S": ((1, 2), bytes(8)),
    }


def test_a_decoupled_model_that_answers_in_rounds_has_one_round():
    instance = Decoupled(outcome=[Round("m", "1", again=True)])
    batching = SequenceBatching(iterative_sequence=True)
    config = ModelConfig("m", decoupled=True, sequence_batching=batching)
    warm_up(config, [instance], [sample("a", 1)])
    assert instance.seen == [["a"]]


class DecoupledErring(Decoupled):
    """Gives an error among its answers, and goes on."""

    def stream(self, request):
        yield from super().stream(request)
        yield InferResponse("m", "1", final=False, error=InvalidRequest("wrong"))
        yield InferResponse("m", "1")


def test_a_decoupled_model_answers_to_the_end():
    instance = Decoupled()
    warm_up(ModelConfig("m", decoupled=True), [instance], [sample("a", 2)])
    assert instance.seen == ["a", "a"]


@pytest.mark.parametrize(
    ("instance", "text"),
    [
        (Noting(ValueError("boom")), "ValueError: boom"),
        (Noting(InvalidRequest("boom")), "boom"),
        (Noting([InvalidRequest("boom")]), "boom"),
        (Noting([]), "0 answers to 1 requests"),
        (Decoupled(ValueError("boom")), "ValueError: boom"),
        (DecoupledErring(), "wrong"),
    ],
)
def test_a_failure_says_which_sample_it_was(instance, text):
    config = ModelConfig("m", decoupled=isinstance(instance, Decoupled))
    with pytest.raises(BackendFailed) as caught:
        warm_up(config, [instance], [sample("a")])
    assert caught.value.message == f"model 'm' fails on its model_warmup 'a': {text}"


def load(root, dims):
    folder = root / "sum"
    (folder / "config.pbtxt").write_text(BATCHED % dims)
    loader = Loader(LoadOptions())
    [model] = Repositories([root], loader.reading).find_all()
    return loader.load(model, 1)


def test_a_model_that_warms_up_loads(onnx_sum):
    assert load(onnx_sum(), 2).name == "sum"


THEIRS = """
backend: "theirs"
input { name: "A" data_type: TYPE_FP32 dims: 1 }
output { name: "A" data_type: TYPE_FP32 dims: 1 }
instance_group { count: 2 }
model_warmup { name: "w" batch_size: 1 %s }
"""
GIVEN = 'inputs { key: "A" value { data_type: TYPE_FP32 dims: 1 zero_data: true } }'


def test_a_sample_that_cannot_be_made_fails_the_load_before_anything_is_opened(theirs, repository):
    loader = Loader(LoadOptions())
    [model] = Repositories([repository(m=THEIRS % "")], loader.reading).find_all()
    with pytest.raises(InvalidConfig, match="model_warmup 'w' has no input 'A'"):
        loader.load(model, 1)
    assert theirs.log == ["backend"]


def test_a_model_that_fails_on_a_sample_is_closed(theirs, repository):
    def fail(_instance, _requests):
        msg = "boom"
        raise ValueError(msg)

    theirs.Instance.execute = fail
    loader = Loader(LoadOptions())
    [model] = Repositories([repository(m=THEIRS % GIVEN)], loader.reading).find_all()
    with pytest.raises(BackendFailed, match="boom"):
        loader.load(model, 1)
    assert sorted(theirs.log[1:]) == [
        (what, f"m_0_{number}") for what in ("close", "open") for number in (0, 1)
    ]


def test_a_sample_of_another_shape_fails_the_load(onnx_sum):
    expected = "model 'sum', model_warmup 'three', input 'B' has dims [3], the model's are [2]"
    with pytest.raises(InvalidConfig, match=re.escape(expected)):
        load(onnx_sum(), 3)
