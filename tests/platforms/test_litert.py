"""TensorFlow Lite files through LiteRT; files/types.tflite gives back inputs as <input>_out."""

import random
import shutil
import threading
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from inferd.backends.litert.backend import LitertBackend
from inferd.config.model import ModelConfig, ModelInput, ModelOutput
from inferd.core.interfaces import ModelFiles, Placement
from inferd.core.request import InferRequest, WantedOutput
from inferd.errors import BackendFailed, InvalidConfig
from inferd.tensor.dtype import DataType, datatype_of
from inferd.tensor.tensor import Tensor

EXAMPLES = Path(__file__).parents[2] / "examples" / "platforms"
TYPES = Path(__file__).with_name("files") / "types.tflite"
SIGNATURES = TYPES.with_name("signatures.tflite")
CPU = Placement("m_0")
CONFIG = ModelConfig("m")
BACKEND = LitertBackend()
HAS = [datatype for datatype in DataType if datatype is not DataType.BF16]


def files(folder, source):
    (folder / "1").mkdir()
    file = folder / "1" / "model.tflite"
    shutil.copy(source, file)
    return ModelFiles(folder, 1, folder / "1", file)


def opened(found, config=CONFIG):
    return BACKEND.open(found, BACKEND.complete(found, config), CPU)


def sample(datatype, count=4):
    if datatype is DataType.BYTES:
        words = [b"", b"\xff\x00", "ä".encode(), b"x" * 999]
        return np.array([words[n % 4] for n in range(count)], object)
    return (np.arange(count) % 100).astype(datatype.numpy)


def ask(instance, arrays, outputs=()):
    inputs = [Tensor.from_numpy(d.value, array, d) for d, array in arrays.items()]
    asked = [WantedOutput(name) for name in outputs]
    [response] = instance.execute([InferRequest("m", inputs=inputs, outputs=asked)])
    if isinstance(response, Exception):
        raise response
    return {tensor.name: tensor for tensor in response.outputs}


def test_a_file_needs_no_configuration(tmp_path):
    completed = BACKEND.complete(files(tmp_path, EXAMPLES / "digits.tflite"), CONFIG)
    assert completed.input == (ModelInput("image", DataType.FP32, (8, 8)),)
    assert {(t.name, t.datatype, t.dims) for t in completed.output} == {
        ("digit", DataType.INT64, (1,)),
        ("probability", DataType.FP32, (10,)),
    }
    assert completed.max_batch_size == 4


def test_every_datatype_comes_back_bit_for_bit(tmp_path):
    inputs = tuple(ModelInput(datatype.value, datatype, (-1,)) for datatype in HAS)
    outputs = tuple(ModelOutput(f"{one.value}_out", one, (-1,)) for one in HAS)
    instance = opened(files(tmp_path, TYPES), ModelConfig("m", input=inputs, output=outputs))
    for count in (4, 1, 9, 4):  # other shapes need other room
        arrays = {datatype: sample(datatype, count) for datatype in HAS}
        got = ask(instance, arrays)
        for datatype, array in arrays.items():
            sent = Tensor.from_numpy("", array, datatype)
            assert got[f"{datatype.value}_out"].view().tobytes() == sent.view().tobytes()


def test_threads_have_interpreters_of_their_own(tmp_path, digits):
    instance = opened(files(tmp_path, EXAMPLES / "digits.tflite"))
    expected = digits.classify(digits.images())["digit"].ravel().tolist()
    wrong = []

    def work(number):
        image = Tensor.from_numpy("image", digits.images()[number : number + 1], DataType.FP32)
        for _ in range(50):
            [response] = instance.execute([InferRequest("m", inputs=[image])])
            got = {tensor.name: tensor.numpy() for tensor in response.outputs}
            if got["digit"][0, 0] != expected[number]:
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize("keep", [0.0, 0.002, 0.5, 0.99])
def test_a_truncated_file_is_refused(tmp_path, keep):
    found = files(tmp_path, TYPES)
    content = found.file.read_bytes()
    found.file.write_bytes(content[: int(keep * len(content))])
    with pytest.raises((InvalidConfig, BackendFailed), match=r"no TensorFlow Lite|cannot load it"):
        BACKEND.complete(found, CONFIG)


def test_a_file_of_another_kind_is_refused(tmp_path):
    found = files(tmp_path, EXAMPLES / "digits.npz")
    with pytest.raises(InvalidConfig, match=r"'model.tflite' is no TensorFlow Lite file"):
        BACKEND.complete(found, CONFIG)


def test_damage_is_told_or_does_no_harm(tmp_path):
    content = (EXAMPLES / "digits.tflite").read_bytes()
    found = files(tmp_path, TYPES)
    dice = random.Random(1)
    for _ in range(60):
        damaged = bytearray(content)
        place = dice.randrange(len(content) - 4)
        damaged[place : place + 4] = dice.choice([b"\xff" * 4, b"\xff\xff\xff\x7f", b"\0" * 4])
        found.file.write_bytes(damaged)
        with suppress(InvalidConfig, BackendFailed):
            BACKEND.complete(found, CONFIG)
    found.file.write_bytes(content)
    assert BACKEND.complete(found, CONFIG).input[0].name == "image"


def test_parameters_are_checked(tmp_path):
    found = files(tmp_path, TYPES)
    with pytest.raises(InvalidConfig, match="has no signature 'x'; it has serving_default"):
        BACKEND.complete(found, ModelConfig("m", parameters={"TF_SIGNATURE_DEF": "x"}))
    with pytest.raises(InvalidConfig, match="parameter num_threads is '0'"):
        BACKEND.complete(found, ModelConfig("m", parameters={"num_threads": "0"}))


@pytest.mark.parametrize("signature", ["", "add"])
def test_a_file_s_first_signature_is_the_usual_one(tmp_path, signature):
    found = files(tmp_path, SIGNATURES)
    instance = opened(found, ModelConfig("m", parameters={"TF_SIGNATURE_DEF": signature}))
    for count in (2, 1, 3):
        a = np.arange(count, dtype=np.int32).reshape(count, 1)
        got = answered(instance, a=a, b=a * 3)
        assert got == {"sum": (a * 4).tolist(), "diff": (a * -2).tolist()}


def test_a_signature_may_be_of_any_graph_of_the_file(tmp_path):
    found = files(tmp_path, SIGNATURES)
    instance = opened(found, ModelConfig("m", parameters={"TF_SIGNATURE_DEF": "twice"}))
    for count in (2, 1, 3, 3):
        x = np.arange(3 * count, dtype=np.float32).reshape(count, 3)
        assert answered(instance, x=x) == {"y": (x * 2).tolist()}


def answered(instance, **arrays):
    inputs = [
        Tensor.from_numpy(name, array, datatype_of(array.dtype)) for name, array in arrays.items()
    ]
    [response] = instance.execute([InferRequest("m", inputs=inputs)])
    if isinstance(response, Exception):
        raise response
    return {tensor.name: tensor.numpy().tolist() for tensor in response.outputs}
