"""The backend's own logic, on a GPU and a TensorRT that are fakes: see conftest.py."""

import numpy as np
import pytest

from inferd.backends.tensorrt.backend import TensorrtBackend
from inferd.backends.tensorrt.device import find_device
from inferd.config.model import ModelConfig, ModelInput, ModelOutput
from inferd.core.interfaces import ModelFiles, Placement
from inferd.core.request import InferRequest, WantedOutput
from inferd.errors import BackendFailed, InvalidConfig, InvalidRequest, Unsupported
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor

FP32 = DataType.FP32
GPU = Placement("m_0", gpu=True)
CONFIG = ModelConfig("m")
PROFILES = [((1, 3), (4, 3), (8, 3)), ((9, 3), (16, 3), (32, 3))]


def twice(x):
    return {"y": x * 2, "count": np.array([x.size], np.int64)}


@pytest.fixture
def plan(make):
    return make(
        twice,
        x=((-1, 3), PROFILES, "FLOAT"),
        y=((-1, 3), [], "FLOAT"),
        count=((1,), [], "INT64"),
    )


FULL = ModelConfig(
    "m",
    input=(ModelInput("x", FP32, (-1, 3)),),
    output=(ModelOutput("y", FP32, (-1, 3)), ModelOutput("count", DataType.INT64, (1,))),
)


def opened(plan, config=FULL):
    backend, files = plan
    return backend.open(files, backend.complete(files, config), GPU)


def ask(instance, array, outputs=()):
    asked = [WantedOutput(name) for name in outputs]
    tensor = Tensor.from_numpy("x", array, FP32)
    [response] = instance.execute([InferRequest("m", inputs=[tensor], outputs=asked)])
    if isinstance(response, Exception):
        raise response
    return {tensor.name: tensor.numpy() for tensor in response.outputs}


def rows(count):
    return np.arange(count * 3, dtype=np.float32).reshape(count, 3)


def test_requests_of_every_size_are_answered(plan, device):
    instance = opened(plan)
    for count in (1, 8, 20, 2, 32, 9):
        got = ask(instance, rows(count))
        np.testing.assert_array_equal(got["y"], rows(count) * 2)
        assert got["count"].tolist() == [count * 3]
    assert len(device.memory) == 3 and len(device.host) == 1  # grown, not piled up


def test_outputs_nobody_asked_for_are_not_fetched(plan):
    assert ask(opened(plan), rows(2), ["count"]).keys() == {"count"}


def test_an_answer_outlives_the_next_request(plan):
    instance = opened(plan)
    first = ask(instance, rows(2))["y"]
    ask(instance, rows(2) + 100)
    np.testing.assert_array_equal(first, rows(2) * 2)


def test_the_plan_fills_in_the_configuration(make):
    backend, files = make(twice, x=((-1, 3), PROFILES, "FLOAT"), y=((-1, 3), [], "HALF"))
    completed = backend.complete(files, CONFIG)
    assert completed.input == (ModelInput("x", FP32, (3,)),)
    assert completed.output == (ModelOutput("y", DataType.FP16, (3,)),)
    assert completed.max_batch_size == 32


def test_a_size_that_only_the_run_tells_is_fetched(make):
    plan = make(
        lambda x: {"found": x[x > 4][None]},
        x=((-1, 3), PROFILES, "FLOAT"),
        found=((1, -1), [], "FLOAT"),
    )
    config = ModelConfig("m", input=FULL.input, output=(ModelOutput("found", FP32, (1, -1)),))
    instance = opened(plan, config)
    assert ask(instance, rows(2))["found"].tolist() == [[5]]
    assert ask(instance, rows(4))["found"].tolist() == [[5, 6, 7, 8, 9, 10, 11]]
    assert ask(instance, rows(1))["found"].shape == (1, 0)


def test_a_shape_that_no_profile_has_is_refused(plan):
    instance = opened(plan)
    with pytest.raises(InvalidRequest, match=r"built for 'x' \[1, 3\] to \[8, 3\]; .*\[33, 3\]$"):
        ask(instance, rows(33))
    assert ask(instance, rows(1))["count"].tolist() == [3]


def test_closing_frees_everything(plan, device):
    instance = opened(plan)
    ask(instance, rows(3))
    instance.close()
    assert (device.memory, device.host, device.streams) == ({}, {}, set())
    assert device.is_closed and device.depth == 0


def test_an_instance_for_which_there_is_no_room_leaves_nothing_behind(plan, device):
    device.is_full = True
    with pytest.raises(BackendFailed):
        opened(plan)
    assert device.streams == set() and device.depth == 0


def test_a_gpu_that_is_lost_is_let_go(plan, device):
    instance = opened(plan)
    device.is_lost = True
    with pytest.raises(BackendFailed, match="the GPU is lost"):
        instance.close()
    assert device.is_closed and device.depth == 0


def test_a_run_that_fails_leaves_the_next_one_alone(make, device):
    broken = make(None, x=((-1, 3), PROFILES, "FLOAT"), y=((-1, 3), [], "FLOAT"))
    config = ModelConfig("m", input=FULL.input, output=FULL.output[:1])
    instance = opened(broken, config)
    with pytest.raises(BackendFailed, match=r"it gives no reason \(it refused an execution\)"):
        ask(instance, rows(1))
    assert device.waits == 1 and device.depth == 0


@pytest.mark.parametrize("content", [b"", b"another file", b"a pla"])
def test_a_file_that_is_no_plan_is_refused_with_its_reason(make, content, device):
    backend, files = make(twice, content, x=((-1, 3), PROFILES, "FLOAT"))
    with pytest.raises(BackendFailed, match=r"^model 'm': TensorRT: Magic tag does not match plan"):
        backend.complete(files, CONFIG)
    assert device.is_closed


def test_a_plan_of_another_product_is_refused(make):
    backend, files = make(twice, b"vtrt...", x=((-1, 3), PROFILES, "FLOAT"))
    with pytest.raises(InvalidConfig, match="built by TensorRT-RTX"):
        backend.complete(files, CONFIG)


def test_code_that_one_configuration_allows_is_not_given_to_another(make):
    tensors = {"x": ((-1, 3), PROFILES, "FLOAT"), "y": ((-1, 3), [], "FLOAT")}
    backend, files = make(lambda x: {"y": x * 2}, b"a plan with code", **tensors)
    allowed = ModelConfig("m", parameters={"inferd_allow_native_code": "true"})
    instance = backend.open(files, backend.complete(files, allowed), GPU)
    with pytest.raises(BackendFailed, match="Host code is not allowed"):
        backend.complete(files, CONFIG)
    np.testing.assert_array_equal(ask(instance, rows(2))["y"], rows(2) * 2)


def test_contradictions_are_told(plan):
    backend, files = plan
    config = ModelConfig("m", input=(ModelInput("x", DataType.INT32, (-1, 3)),), output=FULL.output)
    with pytest.raises(InvalidConfig, match="the file has FP32, the configuration says INT32"):
        backend.complete(files, config)


def plan_files(folder):
    (folder / "1").mkdir()
    (folder / "1" / "model.plan").write_bytes(b"ptrt")
    return ModelFiles(folder, 1, folder / "1", folder / "1" / "model.plan")


def no_library(name):
    raise OSError(name)


def test_without_a_driver_nothing_of_tensorrt_is_touched(tmp_path):
    def never():
        raise AssertionError

    backend = TensorrtBackend(lambda number: find_device(number, no_library), never)
    files = plan_files(tmp_path)
    for load in (backend.complete, lambda f, c: backend.open(f, c, GPU)):
        with pytest.raises(Unsupported, match="needs an NVIDIA GPU and its driver"):
            load(files, CONFIG)


def test_a_missing_package_says_what_to_install(tmp_path, device):
    def missing():
        raise ModuleNotFoundError(name="tensorrt")

    backend = TensorrtBackend(lambda number: device, missing)
    with pytest.raises(Unsupported, match=r"pip install 'inferd\[tensorrt\]'$"):
        backend.complete(plan_files(tmp_path), CONFIG)
