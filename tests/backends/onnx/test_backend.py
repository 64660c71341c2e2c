import os
import shutil
from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from inferd.backends.onnx.backend import OnnxBackend
from inferd.config.model import Accelerator, ModelConfig, Optimization
from inferd.core.interfaces import BackendContext, ModelFiles, Placement
from inferd.core.request import InferRequest
from inferd.errors import BackendFailed, InvalidConfig
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor

CPU = Placement("m_0")
CONFIG = ModelConfig("m")


def session_of(instance):
    return instance._loaded.session


def test_executions_end_by_themselves_and_may_overlap():
    assert OnnxBackend.traits.is_bounded
    assert OnnxBackend.traits.is_concurrent


def test_a_model_without_configuration_is_completed(add_sub):
    completed = OnnxBackend().complete(add_sub, CONFIG)
    assert [tensor.name for tensor in completed.input] == ["A", "B"]
    assert completed.max_batch_size == 4


@pytest.mark.parametrize(("text", "expected"), [("16", 16), ("0", 0)])
def test_the_server_says_how_large_batches_are_that_nothing_else_says(add_sub, text, expected):
    backend = OnnxBackend()
    backend.connect(BackendContext(settings={"default-max-batch-size": text}))
    completed = backend.complete(add_sub, CONFIG)
    assert completed.max_batch_size == expected
    assert (completed.dynamic_batching is not None) is (expected > 1)
    given = replace(CONFIG, max_batch_size=2)
    assert backend.complete(add_sub, given).max_batch_size == 2


@pytest.mark.parametrize("text", ["", "-1", "many", "9" * 10])
def test_a_batch_size_that_is_none_is_refused(text):
    context = BackendContext(settings={"default-max-batch-size": text})
    with pytest.raises(InvalidConfig, match=rf"default-max-batch-size is '{text}', expected 0 or"):
        OnnxBackend().connect(context)


def test_the_server_says_how_many_threads_models_have_that_do_not_say(add_sub):
    backend = OnnxBackend()
    settings = {"intra_op_thread_count": "3", "inter_op_thread_count": "2"}
    backend.connect(BackendContext(settings=settings))
    completed = backend.complete(add_sub, CONFIG)
    usual = session_of(backend.open(add_sub, completed, CPU)).get_session_options()
    assert (usual.intra_op_num_threads, usual.inter_op_num_threads) == (3, 2)
    own = replace(completed, parameters={"intra_op_thread_count": "1"})
    chosen = session_of(backend.open(add_sub, own, CPU)).get_session_options()
    assert (chosen.intra_op_num_threads, chosen.inter_op_num_threads) == (1, 2)
    with pytest.raises(InvalidConfig, match="intra_op_thread_count is 'two', expected 0 or"):
        OnnxBackend().connect(BackendContext(settings={"intra_op_thread_count": "two"}))


def test_instances_share_the_session_that_completion_loaded(add_sub):
    backend = OnnxBackend()
    completed = backend.complete(add_sub, CONFIG)
    [loaded] = backend._completed
    first = backend.open(add_sub, completed, CPU)
    second = backend.open(add_sub, completed, replace_name(CPU, "m_1"))
    assert session_of(first) is session_of(second) is loaded.session
    assert not backend._completed


def replace_name(placement, name):
    return Placement(name, placement.gpu, placement.device_id)


def test_a_session_is_freed_with_its_last_instance(add_sub):
    backend = OnnxBackend()
    instances = [backend.open(add_sub, backend.complete(add_sub, CONFIG), CPU) for _ in range(2)]
    instances[0].close()
    assert len(backend._loaded._models) == 1
    instances[1].close()
    assert len(backend._loaded._models) == 0


def test_models_completed_but_never_opened_do_not_pile_up(add_sub):
    backend = OnnxBackend()
    for number in range(6):
        backend.complete(add_sub, replace(CONFIG, parameters={"number": str(number)}))
    assert len(backend._loaded._models) == 4


def test_other_settings_mean_another_session(add_sub):
    backend = OnnxBackend()
    completed = backend.complete(add_sub, CONFIG)
    first = backend.open(add_sub, completed, CPU)
    threaded = replace(completed, parameters={"intra_op_thread_count": "2"})
    second = backend.open(add_sub, threaded, CPU)
    assert session_of(first) is not session_of(second)
    assert session_of(second).get_session_options().intra_op_num_threads == 2


def test_a_file_replaced_on_disk_is_loaded_anew(add_sub, identity):
    backend = OnnxBackend()
    first = backend.open(add_sub, backend.complete(add_sub, CONFIG), CPU)
    shutil.copy(identity(TensorProto.INT8, ["n", 2]).file, add_sub.file)
    second = backend.open(add_sub, backend.complete(add_sub, CONFIG), CPU)
    assert session_of(first) is not session_of(second)


def scaled(folder, factor):
    """Write Y = X * factor, the factor in a file of its own beside the model."""
    folder.mkdir(parents=True, exist_ok=True)
    factors = numpy_helper.from_array(np.full(512, factor, np.float32), "F")
    graph = helper.make_graph(
        [helper.make_node("Mul", ["X", "F"], ["Y"])],
        "graph",
        [helper.make_tensor_value_info("X", TensorProto.FLOAT, [512])],
        [helper.make_tensor_value_info("Y", TensorProto.FLOAT, [512])],
        [factors],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    (folder / "weights.bin").unlink(missing_ok=True)  # onnx would append to it
    onnx.save(model, folder / "model.onnx", save_as_external_data=True, location="weights.bin")


def scale(backend, files):
    instance = backend.open(files, backend.complete(files, CONFIG), CPU)
    ones = Tensor("X", DataType.FP32, (512,), np.ones(512, np.float32))
    [response] = instance.execute([InferRequest("m", inputs=[ones])])
    return instance, set(response.outputs[0].numpy().tolist())


def test_a_model_folder_with_external_data_is_served_and_followed(tmp_path):
    folder = tmp_path / "1" / "model.onnx"
    files = ModelFiles(tmp_path, 1, tmp_path / "1", folder)
    scaled(folder, 2)
    backend = OnnxBackend()
    old, got = scale(backend, files)
    assert got == {2}
    before = (folder / "model.onnx").stat()
    scaled(folder, 3)
    os.utime(folder / "model.onnx", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert scale(backend, files)[1] == {3}
    old.close()


@pytest.mark.parametrize("way", ["../../weights.bin", "a link", "nowhere.bin"])
def test_external_data_that_is_not_in_the_models_folder_is_refused_without_paths(tmp_path, way):
    version = tmp_path / "linked" / "m" / "1"
    (tmp_path / "real" / "m" / "1").mkdir(parents=True)
    (tmp_path / "linked").symlink_to(tmp_path / "real")
    scaled(version, 2)
    shutil.move(version / "weights.bin", tmp_path / "real" / "weights.bin")
    if way == "a link":
        (version / "weights.bin").symlink_to(tmp_path / "real" / "weights.bin")
    else:
        model = onnx.load(version / "model.onnx", load_external_data=False)
        model.graph.initializer[0].external_data[0].value = way
        onnx.save(model, version / "model.onnx")
    files = ModelFiles(version.parent, 1, version, version / "model.onnx")
    with pytest.raises(BackendFailed, match="External data path") as caught:
        OnnxBackend().complete(files, CONFIG)
    assert str(tmp_path) not in caught.value.message


def test_the_only_onnx_file_of_a_folder_is_taken_whatever_its_name(add_sub):
    folder = add_sub.version_folder / "net"
    folder.mkdir()
    shutil.move(add_sub.file, folder / "net.onnx")
    files = ModelFiles(add_sub.folder, 1, add_sub.version_folder, folder)
    assert len(OnnxBackend().complete(files, CONFIG).input) == 2


@pytest.mark.parametrize("is_folder", [False, True])
def test_a_missing_file_is_named_from_the_models_folder_on(tmp_path, is_folder):
    file = tmp_path / "1" / "model.onnx"
    if is_folder:
        file.mkdir(parents=True)
    files = ModelFiles(tmp_path, 1, tmp_path / "1", file)
    expected = "'1/model.onnx/model.onnx'" if is_folder else "'1/model.onnx'"
    with pytest.raises(InvalidConfig, match=f"no ONNX file {expected}"):
        OnnxBackend().complete(files, CONFIG)


def test_a_damaged_file_fails_with_the_words_of_onnx_runtime(add_sub, capfd):
    add_sub.file.write_bytes(b"not a model")
    with pytest.raises(BackendFailed) as caught:
        OnnxBackend().complete(add_sub, CONFIG)
    assert "ONNX Runtime cannot load it: Load model from 1/model.onnx" in caught.value.message
    assert str(add_sub.folder) not in caught.value.message
    assert caught.value.__cause__ is not None
    assert capfd.readouterr() == ("", "")


def test_an_operator_that_does_not_exist_fails_to_load(make_model, capfd):
    files = make_model(
        [("X", TensorProto.FLOAT, ["n"])],
        [("Y", TensorProto.FLOAT, ["n"])],
        [helper.make_node("Teleport", ["X"], ["Y"])],
    )
    with pytest.raises(BackendFailed, match="Teleport"):
        OnnxBackend().complete(files, CONFIG)
    assert capfd.readouterr() == ("", "")


def test_open_checks_the_configuration_too(add_sub):
    with pytest.raises(InvalidConfig, match="needs input 'A', 'B'"):
        OnnxBackend().open(add_sub, CONFIG, CPU)


def test_an_accelerator_that_is_not_there_fails_to_load(add_sub):
    config = replace(
        CONFIG, optimization=Optimization(cpu_execution_accelerator=(Accelerator("magic"),))
    )
    with pytest.raises(InvalidConfig, match="'magic'"):
        OnnxBackend().complete(add_sub, config)


def test_a_gpu_placement_runs_where_it_can(add_sub):
    backend = OnnxBackend()
    instance = backend.open(
        add_sub, backend.complete(add_sub, CONFIG), Placement("m_0", gpu=True, device_id=0)
    )
    assert session_of(instance).get_providers()[-1] == "CPUExecutionProvider"
