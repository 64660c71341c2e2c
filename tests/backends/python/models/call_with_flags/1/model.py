"""Calls a model with the flags of its own request, and of no sequence."""

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        [request] = requests
        tensor = pb_utils.Tensor("IN", request.inputs()[0].as_numpy())
        call = pb_utils.InferenceRequest(
            model_name="request_fields",
            inputs=[tensor],
            requested_output_names=["OUT"],
            flags=request.flags(),
        )
        return [pb_utils.InferenceResponse(call.exec().output_tensors())]
