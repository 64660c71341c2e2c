"""MxnetBackend: `model-symbol.json` and `model-0000.params`, converted to ONNX at load.

A model that cannot be converted is run by MXNet's own library, if installed, in a worker process.
"""

import json
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from inferd.backends.onnx.converted import ConvertedBackend, input_ports, read_bytes
from inferd.backends.worker.environments.environment import Environment
from inferd.backends.worker.instance import WorkerInstance
from inferd.backends.worker.plan import WorkerPlan, python_settings
from inferd.backends.worker.process import Sizes, WorkerProcess
from inferd.compiled import override
from inferd.config.model import ModelConfig
from inferd.config.parameter import is_on
from inferd.core.interfaces import BackendContext, Instance, ModelFiles, Placement
from inferd.errors import BackendFailed, InferdError, InvalidConfig, Unsupported
from inferd_convert.mxnet.network import MxnetNetwork
from inferd_convert.mxnet.params import TYPES, read_params
from inferd_convert.mxnet.symbol import Symbol, read_symbol

NATIVE = "inferd_mxnet_native"
"""The config parameter that has MXNet's own library run even a convertible model."""

LIBRARY_SETTING = "library"
"""The setting of --backend-config=mxnet,... with the path of libmxnet.so."""

INSTALL = "pip install --no-deps mxnet==1.9.1"
"""How to install the library; neither its Python package nor its dependencies are imported."""

_SYMBOL_ENDING = "-symbol.json"
# Symbols are text without weights; the largest known nets have some megabytes.
_MAX_SYMBOL_BYTES = 1 << 26
_MAX_PARAMS_BYTES = (1 << 31) - 1

# One thread per worker, and no asynchronous engine: requests run in parallel in several workers.
_VARIABLES = {
    "MXNET_ENGINE_TYPE": "NaiveEngine",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}

_DATATYPES = list(TYPES.values())[:7]
"""What its predict API can take and give."""


class MxnetBackend(ConvertedBackend):
    """Runs MXNet symbols, in ONNX Runtime where they can be converted."""

    def __init__(self) -> None:
        super().__init__()
        self._context = BackendContext()

    @override
    def connect(self, context: BackendContext) -> None:
        super().connect(context)
        self._context = context

    def complete(self, files: ModelFiles, config: ModelConfig) -> ModelConfig:
        """See Backend.complete. For MXNet's library, the configuration must be complete."""
        reason = _native_reason(config)
        if not reason:
            try:
                return super().complete(files, config)
            except (Unsupported, BackendFailed) as error:
                reason = _reason_of(error, config)
        self._library(config, reason)
        # At the load, in words of ours: the library itself would fail with a stack of C++.
        _check_native(_network(files), config)
        return config

    @override
    def open(self, files: ModelFiles, config: ModelConfig, placement: Placement) -> Instance:
        reason = _native_reason(config)
        if not reason:
            try:
                return super().open(files, config, placement)
            except (Unsupported, BackendFailed) as error:
                reason = _reason_of(error, config)
        library = self._library(config, reason)
        instance = WorkerInstance(self._plan(files, config, placement, library))
        instance.start()
        return instance

    def _convert(self, files: ModelFiles, config: ModelConfig) -> bytes:
        network = _network(files)
        names = network.input_names()
        ports = input_ports(config, names, network.inferred_inputs(names))
        return network.convert(ports, [output.name for output in config.output])

    def _library(self, config: ModelConfig, reason: str) -> Path:
        """Return MXNet's library, for a model that is not converted for `reason`."""
        found = find_spec("mxnet")  # does not import it
        folders = found.submodule_search_locations if found else None
        candidates = [Path(folder, "libmxnet.so") for folder in folders or ()]
        if setting := self._context.settings.get(LIBRARY_SETTING):
            # In place of the installed one, not after it: who names a library means that one.
            candidates = [Path(setting)]
        library = next((one for one in candidates if one.is_file()), None)
        if library is None:
            msg = f"model '{config.name}': {reason}; MXNet's library could run it: {INSTALL}"
            raise Unsupported(msg)
        return library

    def _plan(
        self, files: ModelFiles, config: ModelConfig, placement: Placement, library: Path
    ) -> WorkerPlan:
        environment = Environment(variables=_VARIABLES)
        return WorkerPlan(
            model=config.name,
            files=files,
            settings=_settings(files, config, placement, library),
            make=partial(WorkerProcess, config.name, environment, Sizes()),
            start_timeout_s=self._context.load_timeout_s,
        )


def params_file(symbol: Path) -> Path:
    """Return the parameter file beside `symbol`: that of epoch 0, or else of the last epoch.

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
    # By name: epochs have four digits, so the last is the largest.
    return max((one for one in epochs if one.stem[-4:].isdigit()), default=first)


def _network(files: ModelFiles) -> MxnetNetwork:
    params = params_file(files.file)
    arrays = read_params(read_bytes(files, params, _MAX_PARAMS_BYTES), _shown(files, params))
    return MxnetNetwork(_symbol(files), arrays)


def _symbol(files: ModelFiles) -> Symbol:
    content = read_bytes(files, files.file, _MAX_SYMBOL_BYTES)
    return read_symbol(content, _shown(files, files.file))


def _shown(files: ModelFiles, file: Path) -> str:
    return str(file.relative_to(files.folder))


def _native_reason(config: ModelConfig) -> str:
    """Return why a possibly convertible model is not converted, "" if it should be."""
    return f"parameter {NATIVE} is set" if is_on(config, NATIVE) else ""


def _reason_of(error: InferdError, config: ModelConfig) -> str:
    return error.message.removeprefix(f"model '{config.name}': ")


def _check_native(network: MxnetNetwork, config: ModelConfig) -> None:
    """Check that `config` has what the library needs, and matches the symbol."""
    inputs, names = {tensor.name for tensor in config.input}, set(network.input_names())
    if inputs != names or not config.output:
        raise InvalidConfig(
            f"model '{config.name}': MXNet's library tells no types and dims, so config.pbtxt has "
            f"to list outputs and the inputs {', '.join(sorted(names)) or 'none'}; "
            f"it lists the inputs {', '.join(sorted(inputs)) or 'none'}"
        )
    if left_out := [tensor.name for tensor in config.input if tensor.optional]:
        raise InvalidConfig(
            f"model '{config.name}': the configuration calls input '{left_out[0]}' optional, but "
            f"MXNet's library needs all inputs"
        )
    datatypes = [tensor.datatype for tensor in config.input]
    datatypes += [tensor.datatype for tensor in config.output]
    for datatype in datatypes:
        if datatype not in _DATATYPES:
            raise InvalidConfig(f"model '{config.name}': MXNet's library has no {datatype.value}")
    _places(network, config)


def _places(network: MxnetNetwork, config: ModelConfig) -> dict[str, int]:
    """Return the symbol's output number for each output of `config`."""
    known = {name: index for index, name in enumerate(network.output_names())}
    places = {}
    for output in config.output:
        # MXNet's own list_outputs() appends _output; people write either.
        index = known.get(output.name, known.get(output.name.removesuffix("_output")))
        if index is None:
            names = ", ".join(known)
            msg = f"model '{config.name}': the symbol has outputs {names}, no '{output.name}'"
            raise InvalidConfig(msg)
        places[output.name] = index
    return places


def _settings(
    files: ModelFiles, config: ModelConfig, placement: Placement, library: Path
) -> dict[str, Any]:
    arguments = {
        "library": str(library),
        "symbol": str(files.file),
        "params": str(params_file(files.file)),
        "inputs": [tensor.name for tensor in config.input],
        "outputs": _places(_network(files), config),
    }
    # A model.py of ours, which a worker runs as any other: MXNet's
    # library needs no protocol of its own.
    program = Path(__file__).with_name("native_model.py")
    folders = [files.version_folder, files.folder]
    settings = python_settings("run", files, config, placement, program, folders)
    settings["args"] |= {"model_instance_kind": "CPU", "mxnet": json.dumps(arguments)}
    return settings
