"""Caffe2Backend: `model.netdef` and `init_model.netdef`, converted to ONNX at load."""

from inferd.backends.onnx.converted import ConvertedBackend, input_ports, read_bytes
from inferd.config.model import ModelConfig
from inferd.core.interfaces import ModelFiles
from inferd_convert.caffe2.netdef import Net, read_net
from inferd_convert.caffe2.network import Caffe2Network

INIT_PREFIX = "init_"
"""The prefix of the weights file's name, before the name of the model file."""

# protobuf's own limit for a message, which Caffe2 could not have written either.
_MAX_BYTES = (1 << 31) - 1


class Caffe2Backend(ConvertedBackend):
    """Runs Caffe2 nets in ONNX Runtime; Caffe2 itself is not needed."""

    def _convert(self, files: ModelFiles, config: ModelConfig) -> bytes:
        names = [INIT_PREFIX + files.file.name, files.file.name]
        network = Caffe2Network(*(_read(files, name) for name in names))
        configured = {tensor.name for tensor in config.input}
        left = network.input_names()
        # In the net's order, whatever that of config.pbtxt is: ONNX keeps names.
        inputs = [name for name in network.external_input if name in configured or name in left]
        ports = input_ports(config, inputs, network.inferred_inputs(inputs))
        return network.convert(ports, [output.name for output in config.output])


def _read(files: ModelFiles, name: str) -> Net:
    file = files.file.with_name(name)
    return read_net(read_bytes(files, file, _MAX_BYTES), str(file.relative_to(files.folder)))
