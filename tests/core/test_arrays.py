import numpy as np
import pytest

from inferd.config.model import ModelConfig, ModelInput, ModelOutput
from inferd.core.arrays import ArrayInstance
from inferd.core.request import InferRequest, WantedOutput
from inferd.errors import BackendFailed, InvalidRequest
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor

FP32 = DataType.FP32


def config(datatype=FP32, dims=(-1,), reshape=None):
    return ModelConfig(
        "m",
        input=(ModelInput("X", datatype, dims, reshape),),
        output=(ModelOutput("Y", datatype, dims, reshape), ModelOutput("Z", FP32, (1,))),
    )


def request(array, datatype=FP32, outputs=("Y",)):
    tensor = Tensor.from_numpy("X", array, datatype)
    return InferRequest("m", id="7", inputs=[tensor], outputs=[WantedOutput(n) for n in outputs])


def echo(feed, names):
    return [{"Y": feed["X"], "Z": np.zeros(1, np.float32)}[name] for name in names]


def test_an_answer_has_the_outputs_that_were_wanted_and_the_times():
    instance = ArrayInstance(config(), 3, echo)
    asked = request(np.arange(4, dtype=np.float32))
    [answer] = instance.execute([asked])
    assert (answer.model, answer.version, answer.id) == ("m", "3", "7")
    assert [(t.name, t.numpy().tolist()) for t in answer.outputs] == [("Y", [0, 1, 2, 3])]
    assert 0 < asked.computing_ns <= asked.computed_ns


def test_nothing_wanted_means_every_output():
    [answer] = ArrayInstance(config(), 1, echo).execute([request(np.ones(1, "f4"), outputs=())])
    assert [tensor.name for tensor in answer.outputs] == ["Y", "Z"]


@pytest.mark.parametrize(("shape", "answered"), [((3,), (3, 1)), ((3, 7), (3, 7)), ((), ())])
def test_only_the_dims_that_a_file_declares_are_reshaped(shape, answered):
    """It declares one number for each item, which a configuration calls dims of [1]."""
    given = ModelOutput("Y", FP32, (1,), (), is_declared=True)
    asked = ModelConfig("m", max_batch_size=4, input=config().input, output=(given,))
    instance = ArrayInstance(asked, 1, lambda _feed, _names: [np.zeros(shape, np.float32)])
    [answer] = instance.execute([request(np.ones(1, "f4"))])
    assert answer.outputs[0].shape == answered


def test_strings_are_arrays_of_bytes():
    seen = []

    def run(feed, names):
        seen.append(feed["X"])
        return [feed["X"]]

    words = np.array([b"a", b"\xff\x00"], object)
    [answer] = ArrayInstance(config(DataType.BYTES), 1, run).execute(
        [request(words, DataType.BYTES)]
    )
    assert seen[0].tolist() == words.tolist() == answer.outputs[0].strings()


def test_a_reshape_is_seen_by_the_framework_alone():
    instance = ArrayInstance(config(dims=(2, 2), reshape=(4,)), 1, echo)
    [answer] = instance.execute([request(np.ones((2, 2), np.float32))])
    assert answer.outputs[0].shape == (2, 2)


def test_a_scalar_is_a_dim_of_1_outside():
    def run(feed, names):
        assert feed["X"].shape == ()
        return [feed["X"]]

    instance = ArrayInstance(config(dims=(1,)), 1, run, scalars=frozenset("XY"))
    [answer] = instance.execute([request(np.ones(1, np.float32))])
    assert answer.outputs[0].shape == (1,)


def test_an_array_of_another_type_is_not_taken_for_what_the_configuration_says():
    instance = ArrayInstance(config(), 1, lambda feed, names: [np.zeros(4, np.float64)])
    [answer] = instance.execute([request(np.ones(4, np.float32))])
    assert isinstance(answer, BackendFailed)
    assert answer.message == "the model gave output 'Y' as float64, its configuration says FP32"


@pytest.mark.parametrize(
    ("raised", "kind", "text"),
    [
        (InvalidRequest("no"), InvalidRequest, "no"),
        (ValueError("boom in /srv/models/m/1/model.pt"), BackendFailed, "model 'm': ValueError"),
    ],
)
def test_a_failure_is_that_of_one_request(raised, kind, text):
    def run(feed, names):
        if feed["X"][0] == 0:
            raise raised
        return [feed["X"]]

    instance = ArrayInstance(config(), 1, run)
    failed, fine = instance.execute([request(np.zeros(1, "f4")), request(np.ones(1, "f4"))])
    assert isinstance(failed, kind)
    assert text in failed.message and "/srv" not in failed.message
    assert fine.outputs[0].numpy().tolist() == [1]


def test_closing_frees_what_the_framework_holds_once():
    closed = []
    instance = ArrayInstance(config(), 1, echo, close=lambda: closed.append(1))
    instance.close()
    instance.close()
    assert closed == [1]


def test_too_few_arrays_are_told_with_their_count():
    instance = ArrayInstance(config(), 1, lambda feed, names: [feed["X"]])
    [answer] = instance.execute([request(np.zeros(1, np.float32), outputs=())])
    assert isinstance(answer, BackendFailed)
    assert answer.message == "the model gave 1 outputs, 2 were asked for"
