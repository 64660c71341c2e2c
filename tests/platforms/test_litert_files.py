"""What LiteRT trusts .tflite files to hold: graphs of one operator, some of which would end it."""

import flatbuffers
import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from inferd.backends.litert.backend import LitertBackend
from inferd.backends.litert.file import check_file
from inferd.config.model import ModelConfig
from inferd.core.interfaces import ModelFiles, Placement
from inferd.core.request import InferRequest
from inferd.errors import InvalidConfig, InvalidRequest
from inferd.tensor.tensor import Tensor

KIND = schema.BuiltinOperator
OPTIONS = schema.BuiltinOptions
FLOAT, INT32, UINT8, INT64, STRING, BOOL, INT16, INT8, RESOURCE = 0, 2, 3, 4, 5, 6, 7, 9, 13


def one(kind=FLOAT, shape=(1, 4), scale=None, data=None):
    """Return a tensor; `data` makes it a constant."""
    tensor = schema.TensorT()
    tensor.type, tensor.shape = kind, list(shape)
    if scale is not None:
        tensor.quantization = schema.QuantizationParametersT()
        tensor.quantization.scale, tensor.quantization.zeroPoint = [scale], [0]
    tensor.constant = data
    return tensor


def model(kind, takes, gives, options=None, *, numbers=None, inputs=None):
    """Return a file whose graph is one operator.

    `numbers` are the tensors it takes and gives, if these are not all in their order, `inputs`
    those of the graph, if these are not all that it takes and that are no constants.
    """
    made, graph = schema.ModelT(), schema.SubGraphT()
    made.version, made.subgraphs, made.buffers = 3, [graph], [schema.BufferT()]
    code, operator = schema.OperatorCodeT(), schema.OperatorT()
    code.builtinCode, code.deprecatedBuiltinCode, code.version = kind, min(kind, 127), 1
    made.operatorCodes, graph.operators, graph.tensors = [code], [operator], [*takes, *gives]
    for number, tensor in enumerate(graph.tensors):
        tensor.name = f"t{number}"
        if tensor.constant is not None:
            buffer = schema.BufferT()
            buffer.data = list(np.ascontiguousarray(tensor.constant).tobytes())
            tensor.buffer = len(made.buffers)
            made.buffers.append(buffer)
    taken = [number for number, tensor in enumerate(takes) if tensor.constant is None]
    graph.inputs = taken if inputs is None else inputs
    given = list(range(len(takes), len(graph.tensors)))
    graph.outputs = given or graph.inputs
    operator.inputs, operator.outputs = numbers or (list(range(len(takes))), given)
    if options is not None:
        operator.builtinOptions = options
        name = type(options).__name__.removesuffix("T")
        operator.builtinOptionsType = getattr(OPTIONS, name)
    builder = flatbuffers.Builder(1024)
    builder.Finish(made.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def split(parts):
    options = schema.SplitOptionsT()
    options.numSplits = parts
    return options


AXIS = one(INT32, (), data=np.array(0, np.int32))
WRONG = {
    "strides are missing": (
        model(KIND.STRIDED_SLICE, [one(), one(INT32, (2,))], [one()]),
        "operator 0 takes 2 tensors and gives 1",
    ),
    "a variable gets nothing": (
        model(KIND.ASSIGN_VARIABLE, [one(RESOURCE)], []),
        "takes 1 tensors and gives 0",
    ),
    "nothing is given": (model(KIND.SIGN, [one()], []), "takes 1 tensors and gives 0"),
    "fewer parts than outputs": (
        model(KIND.SPLIT, [AXIS, one()], [one(), one()], split(3)),
        "is to split in 3 and gives 2 tensors",
    ),
    "options of another operator": (
        model(KIND.SPLIT, [AXIS, one()], [one()], schema.AddOptionsT()),
        "is to split in 0 and gives 1 tensors",
    ),
    "an axis that is many": (
        model(KIND.SPLIT, [one(INT32), one()], [one()], split(1)),
        r"takes an axis of shape \[1, 4\]",
    ),
    "strides of another shape": (
        model(KIND.STRIDED_SLICE, [one(), *[one(INT32, (n,)) for n in (2, 2, 1)]], [one()]),
        "takes places and strides of different shapes",
    ),
    "a variable that is none": (
        model(KIND.READ_VARIABLE, [one()], [one()]),
        "cannot take a tensor of type 0",
    ),
    "texts on a diagonal": (
        model(KIND.MATRIX_DIAG, [one(STRING)], [one(STRING)]),
        "cannot take a tensor of type 5",
    ),
    "a diagonal of another type": (
        model(KIND.MATRIX_SET_DIAG, [one(), one(INT32)], [one()]),
        "cannot take these two tensors together",
    ),
    "a product of a vector": (
        model(KIND.BATCH_MATMUL, [one(), one(shape=(4,))], [one()]),
        "cannot take these two tensors together",
    ),
    "shifts of another shape": (
        model(207, [one(INT32), one(INT32, (4, 4))], [one(INT32)]),
        "cannot take these two tensors together",
    ),
    "a scalar has no order": (
        model(KIND.TRANSPOSE, [one(shape=()), one(INT32, (0,))], [one(shape=())]),
        "takes a tensor without dims",
    ),
    "no scale": (
        model(KIND.ADD, [one(INT8), one(INT8)], [one(INT8)]),
        "cannot count with a scale of 0.0",
    ),
    "a scale that is no number": (
        model(KIND.LOG, [one(INT16, scale=float("nan"))], [one(INT16, scale=1.0)]),
        "cannot count with a scale of nan",
    ),
    "a comparison's scale": (
        model(KIND.LESS, [one(UINT8, scale=0.5), one(UINT8, scale=1.0)], [one(6)]),
        "cannot count with a scale of 1.0",
    ),
    "a scale too fine": (
        model(KIND.SUB, [one(INT8, scale=0.5)] * 2, [one(INT8, scale=1e-20)]),
        "cannot give a scale of 9.*e-21",
    ),
    "what nothing gives": (
        model(KIND.ADD, [one(), one()], [one()], inputs=[0]),
        "operator 0 takes tensor 1, which nothing has given",
    ),
    "an output that nothing gives": (
        model(KIND.RELU, [one()], [one(), one()], numbers=([0], [1])),
        "nothing gives its output, tensor 2",
    ),
    "an input that is given": (
        model(KIND.RELU, [one(), one()], [one()], numbers=([0], [1])),
        "operator 0 gives tensor 1, which is there already",
    ),
    "an output that is given twice": (
        model(KIND.SPLIT, [AXIS, one()], [one()], split(2), numbers=([0, 1], [2, 2])),
        "operator 0 gives tensor 2, which is there already",
    ),
    "a handle for clients": (
        model(KIND.READ_VARIABLE, [one(RESOURCE)], [one()]),
        "tensor 0, an input or output, has no numbers",
    ),
    "an input that is empty": (
        model(KIND.SOFTMAX, [one(shape=(4, 0))], [one(shape=(4, 0))]),
        "its input, tensor 0, has no elements",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_would_end_the_process_is_refused(what):
    content, complaint = WRONG[what]
    with pytest.raises(InvalidConfig, match=rf"cannot load it: graph 0: .*{complaint}"):
        check_file(content, "the file")


def served(folder, content, **arrays):
    (folder / "1").mkdir(exist_ok=True)
    file = folder / "1" / "model.tflite"
    file.write_bytes(content)
    files, backend = ModelFiles(folder, 1, file.parent, file), LitertBackend()
    config = backend.complete(files, ModelConfig("m", max_batch_size=0))
    instance = backend.open(files, config, Placement("m_0"))
    kinds = {tensor.name: tensor.datatype for tensor in config.input}
    inputs = [Tensor.from_numpy(name, array, kinds[name]) for name, array in arrays.items()]
    [answer] = instance.execute([InferRequest("m", inputs=inputs)])
    if isinstance(answer, Exception):
        raise answer
    return [tensor.numpy().tolist() for tensor in answer.outputs]


ROW = np.array([[1, 2, 3, 4]])


def test_what_is_sound_runs(tmp_path):
    x = ROW.astype(np.float32)
    columns = one(INT32, (), data=np.array(1, np.int32))
    parts = [one(shape=(1, 2)), one(shape=(1, 2))]
    halves = model(KIND.SPLIT, [columns, one()], parts, split(2))
    assert served(tmp_path, halves, t1=x) == [[[1, 2]], [[3, 4]]]
    small = [one(INT8, scale=0.5), one(INT8, scale=0.5)]
    added = model(KIND.ADD, small, [one(INT8, scale=0.5)], schema.AddOptionsT())
    y = ROW.astype(np.int8)
    assert served(tmp_path, added, t0=y, t1=y) == [(2 * ROW).tolist()]
    root = model(KIND.SQRT, [one()], [one()])
    assert served(tmp_path, root, t0=x * x) == [ROW.tolist()]
    product = model(KIND.BATCH_MATMUL, [one(), one(shape=(4, 1))], [one(shape=(1, 1))])
    assert served(tmp_path, product, t0=x, t1=x.T) == [[[30]]]


def test_inputs_without_elements_are_refused(tmp_path):
    tensors = [one(), one()]
    for tensor in tensors:
        tensor.shapeSignature = [1, -1]
    content = model(KIND.SOFTMAX, tensors[:1], tensors[1:])
    with pytest.raises(InvalidRequest, match=r"input 't0' has no elements .*\[1, 0\]"):
        served(tmp_path, content, t0=np.zeros((1, 0), np.float32))


def test_an_output_without_elements_is_an_answer(tmp_path):
    places = one(INT64, (1, 2))
    places.shapeSignature = [-1, 2]
    found = model(KIND.WHERE, [one(BOOL)], [places])
    assert served(tmp_path, found, t0=ROW > 3) == [[[0, 3]]]
    assert served(tmp_path, found, t0=ROW > 4) == [[]]
