"""Calls a model with sequences."""

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        tensor = pb_utils.Tensor("IN", requests[0].inputs()[0].as_numpy())
        start = pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START
        end = pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_END
        for flags in (start, 0, end):
            call = pb_utils.InferenceRequest(
                model_name="sequence", inputs=[tensor], correlation_id=4711, flags=flags
            )
            response = call.exec()
        out = pb_utils.get_output_tensor_by_name(response, "OUT").as_numpy()
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", out)])]
