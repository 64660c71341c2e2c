"""The Python-based backend "pytorch": a model is a torch.nn.Module in its own model.py.

Triton's documentation calls them PyTorch 2.0 models: `backend: "pytorch"` with
`runtime: "model.py"`. A version folder has a model.py with the class, which is called without
arguments, and optionally a model.pt with its state_dict. Tensors go to `forward` in the order of
the configuration's inputs; it returns the outputs in their order, or by name in a dict.
"""

import importlib.util
import json
import os
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import torch
import triton_python_backend_utils as pb_utils

_CODE = "model.py"
_STATE = "model.pt"
_NAME = "pytorch_model"
_TRUE = ("true", "1", "on", "yes")
_BF16 = 14  # in ModelConfig's DataType; numpy has no BF16


class TritonPythonModel:
    """One instance of a model; its errors are raised as TritonModelException."""

    def initialize(self, args: dict[str, str]) -> None:
        """Create the module of the model's file, with its state, on the instance's device."""
        config = json.loads(args["model_config"])
        self._inputs = [one["name"] for one in config["input"]]
        self._outputs = [one["name"] for one in config["output"]]
        if not self._inputs or not self._outputs:
            raise _wrong("its configuration must list inputs and outputs, model.py does not say")
        self._parameters = {
            key: value["string_value"] for key, value in config.get("parameters", {}).items()
        }
        torch.set_num_threads(int(self._parameters.get("INTRA_OP_THREAD_COUNT", 1)))
        self._device = _device(args)
        folder = os.path.join(args["model_repository"], args["model_version"])
        module = _module_class(_imported(os.path.join(folder, _CODE)))()
        state = os.path.join(folder, _STATE)
        if os.path.exists(state):
            # weights_only: a state_dict is a pickle, which could run any code otherwise.
            module.load_state_dict(torch.load(state, map_location="cpu", weights_only=True))
        self._module = module.to(self._device).eval()

    def execute(self, requests: Sequence[object]) -> list[Any]:
        """Run each request by itself; one that fails gets its own error."""
        # Once for all requests: entering it costs as much as a small model.
        with self._inference():
            return [self._answer(request) for request in requests]

    def _inference(self) -> Any:
        is_on = self._parameters.get("INFERENCE_MODE", "true").lower() in _TRUE
        return torch.inference_mode() if is_on else torch.no_grad()

    def _answer(self, request: Any) -> Any:
        try:
            given = self._module(*[self._taken(request, name) for name in self._inputs])
            tensors = [_given(name, one) for name, one in self._named(given)]
        except Exception as error:  # noqa: BLE001  whatever forward raises, only this request fails
            text = str(error) or type(error).__name__
            return pb_utils.InferenceResponse([], pb_utils.TritonError(text))
        return pb_utils.InferenceResponse(tensors)

    def _taken(self, request: Any, name: str) -> Any:
        tensor = pb_utils.get_input_tensor_by_name(request, name)
        if tensor is None:
            return None  # an omitted optional input
        if tensor.triton_dtype() == _BF16:
            # As DLPack, which has a BF16; NumPy has none.
            return torch.from_dlpack(tensor.to_dlpack()).to(self._device)
        array = tensor.as_numpy()
        if array.dtype == object:
            raise _wrong(f"input '{name}' is BYTES, which PyTorch has no tensors of")
        return torch.from_numpy(array).to(self._device)

    def _named(self, given: Any) -> list[tuple[str, Any]]:
        """Return the results of `forward` with the names of the outputs."""
        if isinstance(given, dict):
            return [(name, given[name]) for name in self._outputs if name in given]
        values = list(given) if isinstance(given, (tuple, list)) else [given]
        if len(values) < len(self._outputs):
            count = len(values)
            raise _wrong(f"forward gives {count} tensors for {len(self._outputs)} outputs")
        return list(zip(self._outputs, values))


def _given(name: str, value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        raise _wrong(f"forward gives a {type(value).__name__} for output '{name}', no tensor")
    tensor = value.detach().cpu().contiguous()
    if tensor.dtype == torch.bfloat16:
        return pb_utils.Tensor.from_dlpack(name, tensor)
    return pb_utils.Tensor(name, tensor.numpy())


def _device(args: dict[str, str]) -> object:
    if args["model_instance_kind"] == "GPU":
        return torch.device(f"cuda:{args['model_instance_device_id']}")
    return torch.device("cpu")


def _imported(file: str) -> ModuleType:
    """Import the model's file, and return the module."""
    place = os.path.join(*file.split(os.sep)[-2:])
    if not os.path.isfile(file):
        raise _wrong(f"there is no {place}, which defines its torch.nn.Module")
    spec = importlib.util.spec_from_file_location(_NAME, file)
    if spec is None or spec.loader is None:
        raise _wrong(f"{place} cannot be imported")
    found = importlib.util.module_from_spec(spec)
    # Before it runs, for dataclasses and pickles look their module up there.
    sys.modules[_NAME] = found
    spec.loader.exec_module(found)
    return found


def _module_class(found: ModuleType) -> Any:
    """Return the last torch.nn.Module that the file itself defines: it builds on those before."""
    classes = [
        one
        for one in vars(found).values()
        if isinstance(one, type)
        and issubclass(one, torch.nn.Module)
        and one.__module__ == found.__name__
    ]
    if not classes:
        raise _wrong(f"its {_CODE} defines no class of torch.nn.Module")
    return classes[-1]


def _wrong(what: str) -> Exception:
    error: Exception = pb_utils.TritonModelException(what)
    return error
