"""SavedModels and GraphDefs through TensorFlow."""

import shutil
import threading
import warnings

import numpy as np
import pytest
import tensorflow as tf

from inferd.backends.tensorflow.backend import TensorflowBackend
from inferd.backends.tensorflow.files import read_saved_model
from inferd.config.model import ModelConfig, ModelInput, ModelOutput
from inferd.core.interfaces import ModelFiles, Placement
from inferd.core.request import InferRequest, WantedOutput
from inferd.errors import BackendFailed, InvalidConfig, InvalidRequest
from inferd.tensor.dtype import DataType
from inferd.tensor.tensor import Tensor

FP32 = DataType.FP32
CPU = Placement("m_0")
BACKEND = TensorflowBackend()
TYPES = {
    DataType.BOOL: tf.bool, DataType.UINT8: tf.uint8, DataType.UINT16: tf.uint16,
    DataType.UINT32: tf.uint32, DataType.UINT64: tf.uint64, DataType.INT8: tf.int8,
    DataType.INT16: tf.int16, DataType.INT32: tf.int32, DataType.INT64: tf.int64,
    DataType.FP16: tf.float16, DataType.FP32: tf.float32, DataType.FP64: tf.float64,
    DataType.BF16: tf.bfloat16, DataType.BYTES: tf.string,
}  # fmt: skip


def files(folder, name):
    (folder / "1").mkdir(exist_ok=True)
    return ModelFiles(folder, 1, folder / "1", folder / "1" / name)


def saved(folder, function, *specs, **more):
    """Write function(*specs) as a SavedModel, its arguments being its inputs."""
    found = files(folder, "model.savedmodel")
    module = tf.Module()
    module.call = tf.function(function, input_signature=specs)
    for name, value in more.items():
        setattr(module, name, value)
    tf.saved_model.save(module, str(found.file), signatures=module.call)
    return found


def frozen(folder, build):
    """Write the graph that build() makes as a GraphDef."""
    found = files(folder, "model.graphdef")
    with tf.Graph().as_default() as graph:
        build()
    found.file.write_bytes(graph.as_graph_def().SerializeToString())
    return found


def plain(found):
    """Return a configuration of the SavedModel in which no dim is the batch's."""
    signature = read_saved_model(found.file, ModelConfig("m"), "m").signature
    inputs = [ModelInput(t.name, t.datatype, t.shape or (1,)) for t in signature.inputs.values()]
    outputs = [ModelOutput(t.name, t.datatype, t.shape or (1,)) for t in signature.outputs.values()]
    return ModelConfig("m", input=tuple(inputs), output=tuple(outputs))


def opened(found, config=None):
    config = config or plain(found)
    return BACKEND.open(found, BACKEND.complete(found, config), CPU)


def answer(instance, outputs=(), **arrays):
    inputs = [
        Tensor.from_numpy(name, array, DataType.BYTES if array.dtype == object else DataType.FP32)
        for name, array in arrays.items()
    ]
    asked = [WantedOutput(name) for name in outputs]
    [response] = instance.execute([InferRequest("m", inputs=inputs, outputs=asked)])
    if isinstance(response, Exception):
        raise response
    return {tensor.name: tensor.numpy() for tensor in response.outputs}


def spec(dtype=tf.float32, shape=(None,), name="x"):
    return tf.TensorSpec(shape, dtype, name=name)


ONES = np.ones(3, np.float32)


@pytest.mark.parametrize("datatype", DataType)
@pytest.mark.parametrize("kind", ["savedmodel", "graphdef"])
def test_every_datatype_comes_back_bit_for_bit(tmp_path, datatype, kind):
    if datatype is DataType.BYTES:
        array = np.array([b"", b"\xff\x00", "ä".encode(), b"x" * 999], object)
    else:
        array = np.array([0, 1, 100, 127]).astype(datatype.numpy)
    if kind == "savedmodel":
        found, config = (
            saved(tmp_path, lambda x: {"y": tf.identity(x)}, spec(TYPES[datatype])),
            None,
        )
    else:

        def build():
            x = tf.compat.v1.placeholder(TYPES[datatype], [None], name="x")
            tf.identity(x, name="y")

        found = frozen(tmp_path, build)
        config = ModelConfig("m", output=(ModelOutput("y", datatype, (-1,)),))
    tensor = Tensor.from_numpy("x", array, datatype)
    [response] = opened(found, config).execute([InferRequest("m", inputs=[tensor])])
    assert response.outputs[0].view().tobytes() == tensor.view().tobytes()


def test_a_saved_model_needs_no_configuration(tmp_path):
    found = saved(
        tmp_path,
        lambda x, y: {"sum": x + y, "longer": tf.cast(x, tf.int64)},
        spec(shape=(None, 3)),
        spec(shape=(None, 3), name="y"),
    )
    completed = BACKEND.complete(found, ModelConfig("m"))
    assert sorted(t.name for t in completed.input) == ["x", "y"]
    assert {t.name: t.datatype for t in completed.output} == {"sum": FP32, "longer": DataType.INT64}
    assert completed.max_batch_size == 4


def test_a_scalar_is_dims_of_1(tmp_path):
    instance = opened(saved(tmp_path, lambda x: {"y": x * 2}, spec(shape=())))
    assert answer(instance, x=np.ones(1, np.float32))["y"].tolist() == [2]


def test_a_text_alone_is_one_with_all_its_bytes(tmp_path):
    def function(x):
        return {"y": tf.strings.join([x, "\0\0"]), "n": tf.strings.length(x)}

    instance = opened(saved(tmp_path, function, spec(tf.string, shape=())))
    got = answer(instance, x=np.array([b"\xff\0"], object))
    assert got["y"].tolist() == [b"\xff\0\0\0"]
    assert got["n"].tolist() == [2]


def test_tables_strings_and_loops_run(tmp_path):
    words = tmp_path / "words.txt"
    words.write_text("zero\none\ntwo\n")
    initializer = tf.lookup.TextFileInitializer(
        str(words), tf.string, tf.lookup.TextFileIndex.WHOLE_LINE,
        tf.int64, tf.lookup.TextFileIndex.LINE_NUMBER,
    )  # fmt: skip
    table = tf.lookup.StaticHashTable(initializer, -1)

    def function(x):
        doubled = tf.while_loop(lambda n, _: n < 3, lambda n, w: (n + 1, w + w), (0, x))[1]
        return {"number": table.lookup(x), "eight": doubled}

    found = saved(tmp_path, function, spec(tf.string), table=table)
    words.unlink()
    got = answer(opened(found), x=np.array([b"two", b"?"], object))
    assert got["number"].tolist() == [2, -1]
    assert got["eight"].tolist() == [b"two" * 8, b"?" * 8]


def test_loops_of_tensorflow_1_run(tmp_path):
    def build():
        tf.compat.v1.disable_control_flow_v2()
        x = tf.compat.v1.placeholder(tf.float32, [None], name="x")
        total = tf.compat.v1.while_loop(lambda n, _: n < 3, lambda n, t: (n + 1, t + x), (0, x))[1]
        tf.identity(total, name="y")

    try:
        found = frozen(tmp_path, build)
    finally:
        tf.compat.v1.enable_control_flow_v2()
    config = ModelConfig("m", output=(ModelOutput("y", FP32, (-1,)),))
    assert answer(opened(found, config), x=ONES)["y"].tolist() == [4, 4, 4]


def test_variables_are_restored_and_choices_of_outputs_have_their_own_call(tmp_path):
    variable = tf.Variable([1.0, 2.0, 3.0])
    outputs = {f"y{n}": n for n in range(6)}
    found = saved(
        tmp_path,
        lambda x: {name: x * variable + n for name, n in outputs.items()},
        spec(shape=(3,)),
        variable=variable,
    )
    instance = opened(found)
    for number in range(1, 64):
        wanted = [f"y{n}" for n in range(6) if number >> n & 1]
        got = answer(instance, wanted, x=ONES)
        assert {name: array.tolist() for name, array in got.items()} == {
            name: [1 + outputs[name], 2 + outputs[name], 3 + outputs[name]] for name in wanted
        }


def test_a_request_is_never_written_to(tmp_path):
    found = saved(tmp_path, lambda x: {"y": tf.nn.relu(x * 2 - 1) + x}, spec())
    array = np.ones(1000, np.float32)
    assert answer(opened(found), x=array)["y"].tolist() == [2] * 1000
    assert array.tolist() == [1] * 1000


def test_threads_share_a_session(tmp_path):
    instance = opened(saved(tmp_path, lambda x: {"y": x + x}, spec()))
    wrong = []

    def work(number):
        array = np.full(3, number, np.float32)
        sums = [answer(instance, x=array)["y"].tolist() for _ in range(50)]
        wrong.extend(one for one in sums if one != [2 * number] * 3)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_what_the_graph_refuses_is_the_clients_fault(tmp_path):
    found = saved(tmp_path, lambda x, y: {"z": x + y}, spec(), spec(name="y"))
    instance = opened(found)
    with pytest.raises(InvalidRequest, match=r"^model 'm': TensorFlow cannot run it: .*3.*2"):
        answer(instance, x=ONES, y=np.ones(2, np.float32))
    assert answer(instance, x=ONES, y=ONES)["z"].tolist() == [2, 2, 2]


@pytest.mark.parametrize(
    ("datatype", "dims", "text"),
    [
        (DataType.FP64, (-1,), "the file has FP32, the configuration says FP64"),
        (FP32, (-1, 2), "has shape"),
    ],
)
def test_a_configuration_that_would_end_the_process_is_refused(tmp_path, datatype, dims, text):
    found = saved(tmp_path, lambda x: {"y": x}, spec())
    config = ModelConfig(
        "m", input=(ModelInput("x", datatype, dims),), output=(ModelOutput("y", FP32, (-1,)),)
    )
    with pytest.raises(InvalidConfig, match=text):
        opened(found, config)


def test_an_output_of_another_type_than_the_graph_has_is_refused(tmp_path):
    def build():
        tf.identity(tf.compat.v1.placeholder(tf.float32, [None], name="x"), name="y")

    config = ModelConfig("m", output=(ModelOutput("y", DataType.INT64, (-1,)),))
    with pytest.raises(InvalidConfig, match="'y' is float32 in the graph, not INT64"):
        opened(frozen(tmp_path, build), config)


def test_a_graph_of_unknown_rank_takes_and_gives_any_dims(tmp_path):
    found = saved(tmp_path, lambda x: {"y": x}, spec(shape=None))
    model = opened(found, ModelConfig("m"))
    for array in (ONES, ONES.reshape(1, 3, 1)):
        assert answer(model, x=array)["y"].tolist() == array.tolist()
    config = ModelConfig(
        "m", input=(ModelInput("x", FP32, (3,)),), output=(ModelOutput("y", FP32, (3,)),)
    )
    assert answer(opened(found, config), x=ONES)["y"].tolist() == [1, 1, 1]


# --- files that are not what they should be ---


def test_variables_that_are_missing_are_told(tmp_path):
    variable = tf.Variable([1.0])
    found = saved(tmp_path, lambda x: {"y": x * variable}, spec(), variable=variable)
    shutil.rmtree(found.file / "variables")
    with pytest.raises(BackendFailed, match="TensorFlow cannot load it") as caught:
        opened(found)
    assert str(tmp_path) not in caught.value.message


@pytest.mark.parametrize("keep", [0.0, 0.001, 0.3, 0.99])
def test_a_truncated_saved_model_is_refused(tmp_path, keep):
    found = saved(tmp_path, lambda x: {"y": x}, spec())
    file = found.file / "saved_model.pb"
    content = file.read_bytes()
    file.write_bytes(content[: int(keep * len(content))])
    with pytest.raises(InvalidConfig, match=r"cut off|has no graph tagged 'serve'; it has no"):
        opened(found)


@pytest.mark.parametrize("place", ["main_op", "legacy_init_op", "restore_op"])
def test_a_model_that_writes_a_file_as_it_is_loaded_is_refused(tmp_path, place):
    v1, found, mark = tf.compat.v1, files(tmp_path, "model.savedmodel"), tmp_path / "mark"
    more = {}
    with tf.Graph().as_default() as graph, v1.Session() as session:
        x = v1.placeholder(tf.float32, [None, 2])
        y = x * v1.get_variable("w", [2])
        session.run(v1.global_variables_initializer())
        evil = tf.raw_ops.WriteFile(filename=str(mark), contents="x")
        if place == "main_op":
            more["main_op"] = evil
        elif place == "legacy_init_op":
            v1.add_to_collection(place, evil)
        else:
            saver = more["saver"] = v1.train.Saver()
            restored = graph.get_operation_by_name(saver.saver_def.restore_op_name)
            with tf.control_dependencies([restored, evil]):
                saver.saver_def.restore_op_name = tf.no_op(name="both").name
        signature = v1.saved_model.predict_signature_def({"x": x}, {"y": y})
        builder = v1.saved_model.Builder(str(found.file))
        builder.add_meta_graph_and_variables(
            session, ["serve"], {"serving_default": signature}, **more
        )
        builder.save()
    with pytest.raises(InvalidConfig, match="is a WriteFile, which reaches out of the model"):
        opened(found)
    assert not mark.exists()


def test_a_graph_that_reads_files_is_refused(tmp_path):
    inner = tf.function(lambda name: tf.io.read_file(name))
    found = saved(tmp_path, lambda x: {"y": inner(x)}, spec(tf.string, ()))
    with pytest.raises(InvalidConfig, match="is a ReadFile, which reaches out of the model"):
        opened(found)


def test_a_graph_that_calls_python_is_refused(tmp_path):
    def build():
        x = tf.compat.v1.placeholder(tf.float32, [None], name="x")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            y = tf.compat.v1.py_func(lambda value: value, [x], tf.float32)
        tf.identity(y, name="y")

    config = ModelConfig("m", output=(ModelOutput("y", FP32, (-1,)),))
    with pytest.raises(InvalidConfig, match="is a PyFunc"):
        opened(frozen(tmp_path, build), config)


def test_an_operator_that_does_not_exist_is_told(tmp_path):
    def build():
        tf.nn.relu(tf.compat.v1.placeholder(tf.float32, [None], name="x"), name="y")

    found = frozen(tmp_path, build)
    found.file.write_bytes(found.file.read_bytes().replace(b"Relu", b"Rely"))
    config = ModelConfig("m", output=(ModelOutput("y", FP32, (-1,)),))
    with pytest.raises(BackendFailed, match=r"cannot load it: .*Rely"):
        opened(found, config)
