"""Backends in worker processes: ONNX Runtime and the identity, which need only the core."""

import sys
from dataclasses import replace

import numpy as np
import pytest
from onnx import TensorProto, helper

from inferd.backends.identity import IdentityBackend, IdentityInstance
from inferd.backends.worker.hosting import HostedBackend
from inferd.backends.worker.instance import WorkerInstance
from inferd.config.model import BatchOutput, ModelConfig, ModelInput, ModelOutput
from inferd.core.interfaces import BackendContext, ModelFiles, Placement
from inferd.core.request import InferRequest, WantedOutput
from inferd.core.rows import UNKNOWN, Verdict
from inferd.core.traits import InstanceTraits
from inferd.errors import BackendFailed, InferdError, InvalidConfig, InvalidRequest
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor

FP32 = DataType.FP32
CPU = Placement("m_0")
WORKER = {"inferd_process": "worker"}
IDENTITY = "inferd.backends.identity:IdentityBackend"
ONNX = "inferd.backends.onnx.backend:OnnxBackend"


def identity(datatype, **parameters):
    return ModelConfig(
        "m",
        backend="identity",
        input=(ModelInput("INPUT0", datatype, (-1,)),),
        output=(ModelOutput("OUTPUT0", datatype, (-1,)),),
        parameters=parameters,
    )


@pytest.fixture
def files(tmp_path):
    (tmp_path / "1").mkdir()
    return ModelFiles(tmp_path, 1, tmp_path / "1", tmp_path / "1")


@pytest.fixture
def opened(files):
    """opened(target, config) opens an instance; all are closed at the end."""
    made = []

    def open_one(target, config, where=files):
        backend = HostedBackend(target, ["numpy"])
        made.append(backend.open(where, backend.complete(where, config), CPU))
        return made[-1]

    yield open_one
    for instance in made:
        instance.close()


def surrounded(**settings):
    backend = HostedBackend(IDENTITY, ["numpy"])
    backend.connect(BackendContext(settings=settings))
    return backend


@pytest.mark.parametrize(
    ("backend", "parameters"),
    [
        (HostedBackend(IDENTITY, ["numpy"]), {"inferd_process": "server"}),
        (surrounded(process="server"), {}),
        (surrounded(process="worker"), {"inferd_process": "server"}),
        (HostedBackend(IDENTITY, ["numpy"], "server"), {}),
    ],
)
def test_a_model_runs_in_the_server_if_it_or_its_backend_s_settings_say_so(
    files, backend, parameters
):
    config = identity(FP32, **parameters)
    assert type(backend.open(files, config, CPU)) is IdentityInstance


@pytest.mark.slow
def test_a_model_that_says_nothing_runs_in_a_worker(opened):
    assert isinstance(opened(IDENTITY, identity(FP32)), WorkerInstance)


class Alone(IdentityBackend):
    """Needs no framework to complete a configuration that does not ask for 9."""

    def complete_alone(self, files, config):
        return None if config.max_batch_size == 9 else replace(config, max_batch_size=7)


def test_what_needs_no_framework_completes_in_the_server(files):
    config = HostedBackend(f"{__name__}:Alone", ["numpy"]).complete(files, identity(FP32))
    assert config.max_batch_size == 7


class Connected(Alone):
    """Completes with what its surroundings say."""

    def connect(self, context):
        self._size = int(context.settings["default-max-batch-size"])

    def complete_alone(self, files, config):
        return replace(config, max_batch_size=self._size)


def test_what_completes_in_the_server_knows_its_surroundings(files):
    backend = HostedBackend(f"{__name__}:Connected", ["numpy"])
    backend.connect(BackendContext(settings={"default-max-batch-size": "11"}))
    assert backend.complete(files, identity(FP32)).max_batch_size == 11


def test_what_cannot_be_completed_in_the_server_after_all_is_as_if_it_never_could(files):
    config = replace(identity(FP32), max_batch_size=9)
    assert HostedBackend(f"{__name__}:Alone", ["numpy"]).complete(files, config) is config


def test_a_parameter_that_is_none_is_refused(files):
    backend = HostedBackend(IDENTITY, ["numpy"])
    with pytest.raises(InvalidConfig, match="is 'moon', expected server or worker"):
        backend.complete(files, identity(FP32, inferd_process="moon"))
    with pytest.raises(InvalidConfig, match="is 'mars', expected server or worker"):
        surrounded(process="mars").complete(files, identity(FP32))
    with pytest.raises(InvalidConfig, match="seconds is '-1', expected a number of 0 or more"):
        backend.open(files, identity(FP32, inferd_execution_timeout_seconds="-1"), CPU)


def test_a_package_that_is_not_there_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ModuleNotFoundError) as caught:
        HostedBackend(IDENTITY, ["numpy", "torch"])
    assert caught.value.name == "torch"


class Filling(IdentityBackend):
    """Fills in a max_batch_size of 5 unless the 0 was written."""

    def complete(self, files, config):
        return replace(config, max_batch_size=0 if config.is_unbatched else 5)


@pytest.mark.slow
@pytest.mark.parametrize(("is_unbatched", "expected"), [(False, 5), (True, 0)])
def test_a_worker_knows_whether_a_batch_size_of_0_was_written(files, is_unbatched, expected):
    backend = HostedBackend(f"{__name__}:Filling", ["numpy"])
    config = replace(identity(FP32, **WORKER), input=(), is_unbatched=is_unbatched)
    assert backend.complete(files, config).max_batch_size == expected


class Unsure(IdentityBackend):
    """Leaves open how many dims inputs have, or knows from elsewhere that this is open."""

    def complete(self, files, config):
        taken = ModelInput("INPUT0", FP32, (-1,), is_unranked=True)
        given = ModelOutput("OUTPUT0", FP32, (-1,), is_declared=True)
        return replace(config, input=(taken,), output=(given,))

    def open(self, files, config, placement):
        assert config.input[0].is_unranked and config.output[0].is_declared
        return super().open(files, config, placement)


@pytest.mark.slow
def test_a_worker_and_the_server_know_of_each_other_what_only_a_file_declares(files):
    backend = HostedBackend(f"{__name__}:Unsure", ["numpy"])
    config = replace(identity(FP32, **WORKER), input=(), output=())
    completed = backend.complete(files, config)
    assert completed.input[0].is_unranked and completed.output[0].is_declared
    backend.open(files, completed, CPU).close()


@pytest.mark.slow
@pytest.mark.parametrize("datatype", [FP32, DataType.BF16, DataType.BOOL, DataType.BYTES])
def test_tensors_go_through_a_worker_as_they_are(opened, datatype):
    instance = opened(IDENTITY, identity(datatype, **WORKER))
    assert isinstance(instance, WorkerInstance)
    if datatype is DataType.BYTES:
        array = np.array([b"", b"\xff\x00", b"x" * 999], object)
    else:
        array = np.arange(3).astype(datatype.numpy)
    sent = Tensor.from_numpy("INPUT0", array, datatype)
    empty = Tensor("INPUT0", datatype, (0,), b"")
    for tensor in (sent, empty):
        [answer] = instance.execute([InferRequest("m", id="7", inputs=[tensor])])
        assert (answer.model, answer.version, answer.id) == ("m", "1", "7")
        [output] = answer.outputs
        assert (output.name, output.datatype, output.shape) == ("OUTPUT0", datatype, tensor.shape)
        assert output.view().tobytes() == tensor.view().tobytes()


@pytest.fixture
def double(tmp_path):
    """An ONNX model Y = X + Z of variable batches; a strange Z is an error in ONNX Runtime."""
    return sum_model(tmp_path, ["n", None])


def sum_model(tmp_path, shape):
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "XZY"]
    graph = helper.make_graph(
        [helper.make_node("Add", ["X", "Z"], ["Y"])], "g", values[:2], values[2:]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    file = tmp_path / "1" / "model.onnx"
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(model.SerializeToString())
    return ModelFiles(tmp_path, 1, file.parent, file)


def add(width, value, rows=1):
    array = np.full((rows, width), value, np.float32)
    return [Tensor(name, FP32, array.shape, array) for name in "XZ"]


@pytest.mark.slow
def test_requests_of_several_rows_are_joined_in_the_worker_and_split_by_their_rows(opened, double):
    instance = opened(ONNX, ModelConfig("m", parameters=WORKER), double)
    requests = [InferRequest("m", inputs=add(2, rows, rows), batch_size=rows) for rows in (2, 1)]
    answers = instance.execute(requests)
    assert [one.outputs[0].numpy().tolist() for one in answers] == [[[4, 4]] * 2, [[2, 2]]]
    assert not any(request.ran_again for request in requests)


@pytest.mark.slow
def test_a_worker_says_which_requests_ran_again_after_their_batch_failed(opened, double):
    instance = opened(ONNX, ModelConfig("m", parameters=WORKER), double)
    wrong = [add(3, 1)[0], add(2, 1)[1]]  # widths that do not fit together
    requests = [InferRequest("m", inputs=inputs) for inputs in (add(3, 1), wrong)]
    good, bad = instance.execute(requests)
    assert good.outputs[0].numpy().tolist() == [[2, 2, 2]]
    assert isinstance(bad, InferdError)
    assert all(request.ran_again for request in requests)


class Judged(IdentityBackend):
    """Says of its models' rows what it knows."""

    def open(self, files, config, placement):
        instance = super().open(files, config, placement)
        verdict = Verdict("dependent", "CumSum adds up rows", False, True)
        instance.traits = InstanceTraits(verdict=verdict)
        return instance


@pytest.mark.slow
def test_a_verdict_made_in_a_worker_is_known_in_the_server(opened):
    judged = opened(f"{__name__}:Judged", identity(FP32, **WORKER))
    expected = Verdict("dependent", "CumSum adds up rows", has_batch_dim=False, is_quantised=True)
    assert judged.traits.verdict == expected
    assert opened(IDENTITY, identity(FP32, **WORKER)).traits.verdict == UNKNOWN


@pytest.mark.slow
def test_a_worker_tells_what_the_file_does_and_joins_requests(opened, double):
    config = ModelConfig("m", parameters=WORKER)
    backend = HostedBackend(ONNX, ["numpy"])
    completed = backend.complete(double, config)
    assert completed == replace(in_server().complete(double, config), parameters=WORKER)
    instance = opened(ONNX, config, double)
    requests = [InferRequest("m", inputs=add(3, value)) for value in (1, 2)]
    answers = instance.execute(requests)
    assert [one.outputs[0].numpy().tolist() for one in answers] == [[[2, 2, 2]], [[4, 4, 4]]]
    assert not any(request.ran_again for request in requests)
    wanted = InferRequest("m", inputs=add(3, 1), outputs=[WantedOutput("Y")])
    assert [tensor.name for tensor in instance.execute([wanted])[0].outputs] == ["Y"]


@pytest.mark.slow
def test_a_worker_completes_as_the_settings_of_its_backend_say(double):
    backend = HostedBackend(ONNX, ["numpy"], "server")
    settings = {"process": "worker", "default-max-batch-size": "9"}
    backend.connect(BackendContext(settings=settings))
    assert backend.complete(double, ModelConfig("m")).max_batch_size == 9


@pytest.mark.slow
@pytest.mark.parametrize("place", ["server", "worker"])
def test_a_model_of_a_backend_that_runs_in_the_server_may_ask_for_a_worker(double, place):
    config = ModelConfig("m", parameters={"inferd_process": place})
    backend = HostedBackend(ONNX, ["numpy"], "server")
    instance = backend.open(double, backend.complete(double, config), CPU)
    assert isinstance(instance, WorkerInstance) is (place == "worker")
    instance.close()


class Heavy(IdentityBackend):
    """Imports what ends the process."""

    def __init__(self):
        raise SystemExit


def test_what_runs_in_workers_is_not_imported_in_the_server(files):
    config = identity(FP32, **WORKER)
    assert HostedBackend(f"{__name__}:Heavy", ["numpy"]).complete(files, config) is config


@pytest.mark.slow
def test_ragged_batches_are_made_in_the_worker(opened, tmp_path):
    ragged = [ModelInput(name, FP32, (-1,), allow_ragged_batch=True) for name in "XZ"]
    config = ModelConfig(
        "m",
        max_batch_size=4,
        input=tuple(ragged),
        output=(ModelOutput("Y", FP32, (-1,)),),
        batch_output=(BatchOutput("BATCH_SCATTER_WITH_INPUT_SHAPE", ("Y",), ("X",)),),
    )
    instance = opened(ONNX, config, sum_model(tmp_path, [None]))
    requests = [InferRequest("m", inputs=add(width, width)) for width in (1, 3)]
    for some in (requests, requests[1:]):
        got = [answer.outputs[0].numpy().tolist() for answer in instance.execute(some)]
        assert got == [[[2 * r.inputs[0].shape[1]] * r.inputs[0].shape[1]] for r in some]


def in_server():
    return HostedBackend(ONNX, ["numpy"])._in_server()


@pytest.mark.slow
def test_a_failure_in_a_worker_is_told_as_in_the_server(opened, double):
    instance = opened(ONNX, ModelConfig("m", parameters=WORKER), double)
    wrong = InferRequest("m", inputs=[add(3, 1)[0], add(2, 1)[1]])
    [told] = instance.execute([wrong])
    config = in_server().complete(double, ModelConfig("m"))
    [expected] = in_server().open(double, config, CPU).execute([wrong])
    assert isinstance(told, (InvalidRequest, BackendFailed))
    assert (type(told), told.message) == (type(expected), expected.message)


@pytest.mark.slow
def test_a_model_that_cannot_be_opened_says_why(opened, double):
    double.file.write_bytes(b"no model")
    with pytest.raises(BackendFailed, match=r"model 'm': .*ONNX Runtime cannot load it") as caught:
        opened(ONNX, ModelConfig("m", parameters=WORKER), double)
    assert str(double.folder) not in caught.value.message
