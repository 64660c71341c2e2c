"""HostedModel: what a worker process runs for a HostedBackend, in the place of a model.py.

It opens the very backend that the server would, and hands tensors through as they travel. A batch
of several requests becomes one, as it does in the server.
"""

import json
import os
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import triton_python_backend_utils as pb_utils  # the worker's own

from inferd.config.model import ModelConfig
from inferd.config.pbtxt import parse_json, to_json
from inferd.core.interfaces import Backend, Instance, ModelFiles, Placement
from inferd.core.request import InferRequest, InferResponse, WantedOutput
from inferd.errors import Code, InferdError
from inferd.schedulers.batch import BatchPlan, JoinedInstance
from inferd.tensor.dtype import DATATYPES
from inferd.tensor.tensor import Tensor

_VARIABLE = "INFERD_HOSTED_MODEL"

_CODES = {
    Code.INVALID_ARG: pb_utils.TritonError.INVALID_ARG,
    Code.UNAVAILABLE: pb_utils.TritonError.UNAVAILABLE,
    Code.UNSUPPORTED: pb_utils.TritonError.UNSUPPORTED,
}


class TritonPythonModel:
    """One instance of a backend. The name is what the worker looks for."""

    @staticmethod
    def auto_complete_config(given: Any) -> Any:
        """Return the configuration with what the model file tells."""
        backend, files, _ = _hosted()
        completed = _told(lambda: backend.complete(files, _config(given.as_dict())))
        return type(given)(to_json(completed))

    def initialize(self, args: dict[str, str]) -> None:
        """Open the instance."""
        backend, files, place = _hosted()
        config = _config(json.loads(args["model_config"]))
        self._model = config.name
        opened: Instance = _told(lambda: backend.open(files, config, place))
        self._instance = opened
        joins = getattr(backend, "joins", False)
        self._together = JoinedInstance(opened, BatchPlan(config)) if joins else opened

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answer `requests` together."""
        given = [_request(self._model, request) for request in requests]
        instance = self._instance if len(given) == 1 else self._together
        try:
            answers = instance.execute(given)
        except InferdError as error:
            answers = [error] * len(given)
        return [_response(answer) for answer in answers]

    def finalize(self) -> None:
        """Close the instance."""
        self._instance.close()


def _hosted() -> tuple[Backend, ModelFiles, Placement]:
    hosted = json.loads(os.environ[_VARIABLE])
    paths = [Path(hosted[key]) for key in ("folder", "version_folder", "file")]
    files = ModelFiles(paths[0], hosted["version"], paths[1], paths[2])
    backend: Backend = EntryPoint("", hosted["target"], "").load()()
    return backend, files, Placement(*hosted["place"])


def _config(document: dict[str, Any]) -> ModelConfig:
    config = parse_json(json.dumps(document), "config")
    return replace(config, name=str(document.get("name", "")))


def _told(work: Any) -> Any:
    """Return what `work` does; an error of ours is told by its text alone."""
    try:
        return work()
    except InferdError as error:
        raise pb_utils.TritonModelException(error.message) from error


def _request(model: str, request: Any) -> InferRequest:
    inputs = [
        Tensor(tensor._name, DATATYPES[tensor._datatype], tensor._shape, tensor._data)
        for tensor in request.inputs()
    ]
    outputs = [WantedOutput(name) for name in request._outputs or ()]
    return InferRequest(model, inputs=inputs, outputs=outputs)


def _response(answer: InferResponse | InferdError) -> Any:
    if isinstance(answer, InferdError):
        code = _CODES.get(answer.code, pb_utils.TritonError.INTERNAL)
        return pb_utils.InferenceResponse(error=pb_utils.TritonError(answer.message, code))
    return pb_utils.InferenceResponse([_output(tensor) for tensor in answer.outputs])


def _output(tensor: Tensor) -> Any:
    made = pb_utils.Tensor.__new__(pb_utils.Tensor)
    made._name, made._datatype = tensor.name, tensor.datatype.value
    made._shape, made._data, made._array = tensor.shape, tensor.view(), None
    return made
