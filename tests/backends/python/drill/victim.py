"""A model that adds one to its input, unless it is told a way to end its process, or to harm it."""

import triton_python_backend_utils as pb_utils
from ways import FAILURES, WAYS


class TritonPythonModel:
    def execute(self, requests):
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        way = pb_utils.get_input_tensor_by_name(request, "WAY").as_numpy()[0].decode()
        array = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy() + 1
        if way:
            array = (WAYS | FAILURES)[way]()
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", array)])
