"""MXNet's symbol files, read and converted to ONNX without any weights."""

from corpus import files

from inferd.errors import InferdError
from inferd.formats.onnx_model import OnnxPort
from inferd.tensor.dtype import DataType
from inferd_convert.mxnet.network import MxnetNetwork
from inferd_convert.mxnet.symbol import read_symbol

SEEDS = files("tests/data/mxnet/*-symbol.json")


def target(data: bytes) -> bool:
    """Read, convert; return whether it is a symbol."""
    try:
        network = MxnetNetwork(read_symbol(data, "m-symbol.json"), {})
    except InferdError:
        return False
    try:
        names = network.input_names()
        network.output_names()
        network.check_operators()
        ports = network.inferred_inputs(names)
        given = [ports.get(name, OnnxPort(name, DataType.FP32, (1, 3, 8, 8))) for name in names]
        network.convert(given)
    except InferdError:
        pass
    return True
