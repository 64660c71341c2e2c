"""Parameters of a response."""

import json

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        given = {"text": "a", "number": 7, "flag": True, "part": 0.5, "far": -1e300}
        out = pb_utils.Tensor("OUT", requests[0].inputs()[0].as_numpy())
        response = pb_utils.InferenceResponse([out], parameters=given)
        assert json.loads(response.parameters()) == given
        return [response]
