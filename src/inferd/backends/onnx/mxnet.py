"""MxnetBackend: `model-symbol.json` and `model-0000.params`, converted to ONNX when they load."""

from pathlib import Path

from inferd.backends.onnx.converted import ConvertedBackend, input_ports, read_bytes
from inferd.config.model import ModelConfig
from inferd.convert.mxnet.network import Network
from inferd.convert.mxnet.params import read_params
from inferd.convert.mxnet.symbol import read_symbol
from inferd.core.interfaces import ModelFiles

_SYMBOL_ENDING = "-symbol.json"
_MAX_SYMBOL_BYTES = 1 << 26
_MAX_PARAMS_BYTES = (1 << 31) - 1


class MxnetBackend(ConvertedBackend):
    """Runs MXNet symbols in ONNX Runtime; MXNet itself is not needed."""

    def _convert(self, files: ModelFiles, config: ModelConfig) -> bytes:
        file, params = files.file, params_file(files.file)
        symbol = read_symbol(read_bytes(files, file, _MAX_SYMBOL_BYTES), _shown(files, file))
        arrays = read_params(read_bytes(files, params, _MAX_PARAMS_BYTES), _shown(files, params))
        network = Network(symbol, arrays)
        names = network.input_names()
        ports = input_ports(config, names, network.told_inputs(names))
        return network.convert(ports, [output.name for output in config.output])


def params_file(symbol: Path) -> Path:
    """Return the file of parameters beside `symbol`: of epoch 0, or else of the last one.

    `<name>-symbol.json` belongs to `<name>-0000.params`, the number being the epoch.
    """
    prefix = symbol.name.removesuffix(_SYMBOL_ENDING)
    first = symbol.with_name(f"{prefix}-0000.params")
    if first.is_file():
        return first
    epochs = (
        one
        for one in symbol.parent.iterdir()
        if one.name.startswith(f"{prefix}-") and one.suffix == ".params"
    )
    return max((one for one in epochs if one.stem[-4:].isdigit()), default=first)


def _shown(files: ModelFiles, file: Path) -> str:
    return str(file.relative_to(files.folder))
