"""Caffe2's nets, an init net and a predict net after FF FF FF, read and converted to ONNX."""

from corpus import files

from inferd.errors import InferdError
from inferd.formats.onnx_model import OnnxPort
from inferd.tensor.dtype import DataType
from inferd_convert.caffe2.netdef import read_net
from inferd_convert.caffe2.network import Caffe2Network

_INIT, _PREDICT = files("tests/data/caffe2/*.netdef")

SEEDS = [_INIT + b"\xff\xff\xff" + _PREDICT, b"\xff\xff\xff" + _PREDICT]


def target(data: bytes) -> bool:
    """Read, convert; return whether both are nets."""
    init, _, predict = data.partition(b"\xff\xff\xff")
    try:
        network = Caffe2Network(read_net(init, "init"), read_net(predict, "predict"))
    except InferdError:
        return False
    try:
        names = network.input_names()
        network.output_names()
        ports = network.inferred_inputs(names)
        given = [ports.get(name, OnnxPort(name, DataType.FP32, (1, 3, 8, 8))) for name in names]
        network.convert(given)
    except InferdError:
        pass
    return True
