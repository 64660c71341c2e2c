"""OpenVINO IR through OpenVINO."""

import threading
from dataclasses import replace

import numpy as np
import openvino
import pytest
from openvino import opset6
from openvino import opset13 as op

from inferd.backends.openvino.backend import DATATYPES, OpenvinoBackend, outputs_by, settings
from inferd.backends.openvino.narrowed import Narrowed
from inferd.backends.openvino.shapes import MAX_KNOWN, Shapes
from inferd.config.model import InstanceGroup, ModelConfig, ModelInput, ModelOutput
from inferd.core.interfaces import ModelFiles, Placement
from inferd.core.request import InferRequest
from inferd.errors import BackendFailed, InferdError, InvalidConfig, InvalidRequest, Unsupported
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor

FP32 = DataType.FP32
CPU = Placement("m_0")
BACKEND = OpenvinoBackend()


def saved(folder, outputs, inputs, name="model.xml", sinks=()):
    """Write a model; outputs is name -> node."""
    for label, node in outputs.items():
        node.output(0).get_tensor().set_names({label})
    for node in inputs:
        node.output(0).get_tensor().set_names({node.get_friendly_name()})
    (folder / "1").mkdir(exist_ok=True)
    file = folder / "1" / name
    model = openvino.Model([node.output(0) for node in outputs.values()], inputs, "m")
    model.add_sinks([*sinks])
    openvino.save_model(model, str(file), compress_to_fp16=False)
    return ModelFiles(folder, 1, folder / "1", file)


def add(folder, shape=(-1,)):
    x, y = (op.parameter(list(shape), np.float32, name=name) for name in "xy")
    return saved(folder, {"sum": op.add(x, y)}, [x, y])


def config(*names, datatype=FP32, dims=(-1,), out="sum", **more):
    inputs = tuple(ModelInput(name, datatype, dims) for name in names)
    return ModelConfig("m", input=inputs, output=(ModelOutput(out, datatype, dims),), **more)


def opened(found, wanted):
    return BACKEND.open(found, BACKEND.complete(found, wanted), CPU)


def answer(instance, **arrays):
    inputs = [Tensor.from_numpy(name, array, FP32) for name, array in arrays.items()]
    [response] = instance.execute([InferRequest("m", inputs=inputs)])
    if isinstance(response, Exception):
        raise response
    return {tensor.name: tensor.numpy() for tensor in response.outputs}


def test_a_model_needs_no_configuration(tmp_path):
    completed = BACKEND.complete(add(tmp_path, (-1, 3)), ModelConfig("m"))
    assert completed.input == (ModelInput("x", FP32, (3,)), ModelInput("y", FP32, (3,)))
    assert completed.output == (ModelOutput("sum", FP32, (3,)),)
    assert completed.max_batch_size == 4


class Release:
    """A release of OpenVINO whose inner class is none of those that are known."""

    class _pyopenvino:  # noqa: N801  its name
        class InferRequest:
            def infer(self, inputs):
                raise AssertionError


@pytest.mark.parametrize("release", [openvino, Release, object()])
def test_outputs_are_copies_whichever_release_gives_them(release):
    x = op.parameter([2], np.float32, name="x")
    compiled = openvino.compile_model(openvino.Model([op.abs(x)], [x], "m"), "CPU")
    request = compiled.create_infer_request()
    infer = outputs_by(release)
    request.set_input_tensor(0, openvino.Tensor(np.float32([-1, 2])))
    [first] = infer(request)
    request.set_input_tensor(0, openvino.Tensor(np.float32([3, -4])))
    assert [one.tolist() for one in infer(request)] == [[3, 4]]
    assert first.tolist() == [1, 2]


@pytest.mark.parametrize("kind", DATATYPES)
def test_every_datatype_comes_back_bit_for_bit(tmp_path, kind):
    datatype = DATATYPES[kind]
    x = op.parameter([-1], getattr(openvino.Type, kind), name="x")
    found = saved(tmp_path, {"y": op.reshape(x, op.constant([-1]), special_zero=False)}, [x])
    values = [0, 1, 1, 0] if datatype is DataType.BOOL else [0, 1, 100, 127]
    array = np.array(values).astype(datatype.numpy)
    instance = opened(found, config("x", datatype=datatype, out="y"))
    for given in (array, array[::-1], array[:2], array[1:]):  # into memory that stays, and not
        tensor = Tensor("x", datatype, given.shape, given.tobytes())
        [response] = instance.execute([InferRequest("m", inputs=[tensor])])
        assert response.outputs[0].view().tobytes() == given.tobytes()


def test_float32_stays_float32(tmp_path):
    x = op.parameter([-1, 64], np.float32, name="x")
    numbers = np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32)
    found = saved(tmp_path, {"y": op.matmul(x, op.constant(numbers), False, False)}, [x])
    wanted = ModelConfig(
        "m", input=(ModelInput("x", FP32, (-1, 64)),), output=(ModelOutput("y", FP32, (-1, 64)),)
    )
    array = np.random.default_rng(1).normal(size=(4, 64)).astype(np.float32)
    got = answer(opened(found, wanted), x=array)["y"]
    np.testing.assert_allclose(got, array.astype(np.float64) @ numbers, atol=1e-4)


def test_threads_have_requests_of_their_own(tmp_path):
    instance = opened(add(tmp_path), config("x", "y"))
    wrong = []

    def work(number):
        array = np.full(1000, number, np.float32)
        sums = [answer(instance, x=array, y=array)["sum"] for _ in range(50)]
        wrong.extend(number for one in sums if set(one.tolist()) != {2 * number})

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_an_answer_outlives_the_next_request(tmp_path):
    instance = opened(add(tmp_path), config("x", "y"))
    ones = np.ones(3, np.float32)
    first = answer(instance, x=ones, y=ones)["sum"]
    answer(instance, x=ones * 9, y=ones)
    assert first.tolist() == [2, 2, 2]


def test_what_a_model_keeps_of_a_request_is_in_no_other_answer(tmp_path):
    x = op.parameter([1, 3], np.float32, name="x")
    before = opset6.read_value(
        op.constant(np.zeros((1, 3), np.float32)), "kept", openvino.Type.f32, [1, 3]
    )
    total = op.add(x, before)
    instance = opened(
        saved(tmp_path, {"sum": total}, [x], sinks=[opset6.assign(total, "kept")]),
        config("x", dims=(1, 3)),
    )
    for number in (1, 2, 3):
        array = np.full((1, 3), number, np.float32)
        assert answer(instance, x=array)["sum"].tolist() == array.tolist()


MOST = np.finfo(np.float32).max


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("int64", [2**31 - 1, -(2**31)], [[2**31], [-(2**31) - 1], [5, 2**40]]),
        ("uint64", [2**31 - 1, 0], [[2**31], [2**63 + 1]]),
        ("uint32", [2**31 - 1, 0], [[2**31], [2**32 - 1]]),
        (
            "float64",
            [MOST, -MOST, np.nan],
            [[1e300], [np.nan, -1e39], [np.inf], [0, -np.inf]],
        ),
    ],
)
def test_numbers_that_would_be_taken_for_others_are_refused(tmp_path, kind, good, bad):
    datatype = next(one for one in DATATYPES.values() if one.value != "BF16" and one.numpy == kind)
    x = op.parameter([-1], np.dtype(kind), name="x")
    wanted = config("x", datatype=datatype)
    model = opened(saved(tmp_path, {"sum": op.concat([x, x], 0)}, [x]), wanted)

    def run(values):
        array = np.array(values, kind)
        request = InferRequest("m", inputs=[Tensor.from_numpy("x", array, datatype)])
        [found] = model.execute([request])
        return found

    for values in bad:
        error = run(values)
        assert isinstance(error, InvalidRequest) and "with 32 bits" in error.message
    for values in (good, []):
        [output] = run(values).outputs
        np.testing.assert_array_equal(output.numpy(), np.array([*values, *values], kind))


@pytest.mark.parametrize("kind", ["int64", "uint64", "uint32"])
def test_integers_that_are_converted_or_passed_on_may_be_large(tmp_path, kind):
    x = op.parameter([-1], np.dtype(kind), name="x")
    same, real = op.result(x), op.convert(x, "f32")
    same.output(0).get_tensor().set_names({"same"})
    files = saved(tmp_path, {"same": x, "real": real}, [x])
    narrowed = Narrowed(openvino.Core().read_model(str(files.file)), ["x"])
    narrowed.check({"x": np.array([np.iinfo(kind).max], kind)})


def test_a_model_goes_on_after_what_it_refuses(tmp_path):
    instance = opened(add(tmp_path), config("x", "y"))
    ones = np.ones(3, np.float32)
    assert answer(instance, x=ones, y=ones)["sum"].tolist() == [2, 2, 2]
    with pytest.raises(InferdError, match=r"^model 'm': OpenVINO cannot run it: ") as caught:
        answer(instance, x=ones, y=np.ones(2, np.float32))
    assert "/" not in caught.value.message
    assert answer(instance, x=ones, y=ones)["sum"].tolist() == [2, 2, 2]


@pytest.mark.parametrize("keep", [0.0, 0.3, 0.9])
@pytest.mark.parametrize("suffix", [".xml", ".bin"])
def test_a_truncated_model_is_refused(tmp_path, keep, suffix):
    x = op.parameter([-1, 4], np.float32, name="x")
    weights = op.constant(np.ones((4, 4), np.float32))
    found = saved(tmp_path, {"y": op.matmul(x, weights, False, False)}, [x])
    file = found.file.with_suffix(suffix)
    content = file.read_bytes()
    file.write_bytes(content[: int(keep * len(content))])
    with pytest.raises(BackendFailed, match="OpenVINO cannot read it") as caught:
        BACKEND.complete(found, ModelConfig("m"))
    assert str(tmp_path) not in caught.value.message


def test_contradictions_and_devices_are_told(tmp_path):
    found = add(tmp_path)
    with pytest.raises(InvalidConfig, match="the file has FP32, the configuration says INT32"):
        BACKEND.complete(found, config("x", "y", datatype=DataType.INT32))
    with pytest.raises(InvalidConfig, match="parameter NUM_STREAMS is 'many'"):
        opened(found, config("x", "y", parameters={"NUM_STREAMS": "many"}))
    with pytest.raises(
        InvalidConfig, match="INFERENCE_NUM_THREADS is '1', expected a whole number from 2 to 1024"
    ):
        opened(found, config("x", "y", parameters={"INFERENCE_NUM_THREADS": "1"}))
    with pytest.raises(Unsupported, match="on the CPU only"):
        BACKEND.open(found, config("x", "y"), Placement("m_0", gpu=True))


def product(folder=None):
    """Return X·ones(4, 2), whose X may have any dims."""
    x = op.parameter([-1, -1], np.float32, name="x")
    y = op.matmul(x, op.constant(np.ones((4, 2), np.float32)), False, False)
    return saved(folder, {"y": y}, [x]) if folder else openvino.Model([y], [x], "m")


def test_a_matrix_that_is_too_long_is_refused_and_not_cut(tmp_path):
    y = (ModelOutput("y", FP32, (-1, 2)),)
    instance = opened(product(tmp_path), replace(config("x", dims=(-1, -1)), output=y))
    for _ in range(2):
        assert answer(instance, x=np.ones((1, 4), np.float32))["y"].tolist() == [[4, 4]]
        with pytest.raises(InvalidRequest, match=r"cannot run it: .*dimension=5"):
            answer(instance, x=np.full((1, 5), 2, np.float32))
    assert answer(instance, x=np.ones((2, 4), np.float32))["y"].tolist() == [[4, 4], [4, 4]]


def counts(wanted, *, is_safe):
    told = settings(wanted, is_safe=is_safe)
    return told["NUM_STREAMS"], told["INFERENCE_NUM_THREADS"]


def test_only_one_instance_of_what_cannot_fail_runs_in_the_thread_that_asks():
    two = config("x", instance_group=(InstanceGroup(count=2),))
    assert counts(config("x"), is_safe=True) == (1, 1)
    assert counts(config("x"), is_safe=False) == (2, 2)
    assert counts(two, is_safe=True) == (2, 2)
    assert counts(config("x", parameters={"NUM_STREAMS": "1"}), is_safe=False) == (1, 2)
    assert counts(config("x", parameters={"NUM_STREAMS": "3"}), is_safe=True) == (3, 3)
    hinted = config("x", parameters={"PERFORMANCE_HINT": "THROUGHPUT"})
    assert counts(hinted, is_safe=True) == (2, 2)


def shapes_of(dims, made):
    x = op.parameter(dims, np.float32, name="x")
    return Shapes(openvino.Model([made(x)], [x], "m"))


@pytest.mark.parametrize(
    ("dims", "made", "is_safe"),
    [
        ([2, 3], op.relu, True),
        ([-1, 3], op.relu, True),
        ([openvino.Dimension(3, 5)], op.relu, True),
        ([openvino.Dimension(-1, 1)], op.relu, True),
        (openvino.PartialShape.dynamic(), op.relu, False),
        ([2, 3], op.non_zero, False),  # how many there are only a run tells
        ([-1], lambda x: op.gather(x, op.convert(x, "i64"), op.constant(0)), False),
        ([-1], lambda x: op.add(x, op.constant(np.ones(3, np.float32))), False),
    ],
)
def test_what_can_fail_at_a_run_is_known_before(dims, made, is_safe):
    assert shapes_of(dims, made).is_safe is is_safe


def test_a_model_of_two_ways_is_not_asked_which_shapes_fit():
    way = openvino.Model([op.constant(np.float32([1]))], [], "way")
    choice = op.if_op(op.constant(True))
    choice.set_then_body(way)
    choice.set_else_body(way)
    y = choice.set_output(way.results[0], way.results[0])
    x = op.parameter([-1], np.float32, name="x")
    shapes = Shapes(openvino.Model([op.add(x, y)], [x], "m"))
    assert not shapes.is_safe
    shapes.check(((3, 3, 3),))  # of the wrong rank


def test_more_shapes_than_are_remembered_are_still_checked():
    shapes = Shapes(product())
    for size in range(1, MAX_KNOWN + 3):
        shapes.check(((size, 4),))
    assert len(shapes._known) < MAX_KNOWN
    with pytest.raises(RuntimeError):
        shapes.check(((1, 5),))
