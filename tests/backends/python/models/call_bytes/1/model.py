"""Calls the model that an input names: its element is bytes, and so may all other texts be."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        array = pb_utils.get_input_tensor_by_name(requests[0], "IN").as_numpy()
        model = pb_utils.get_input_tensor_by_name(requests[0], "MODEL").as_numpy()[0]
        assert isinstance(model, bytes)
        call = pb_utils.InferenceRequest(
            request_id=b"asked",
            correlation_id=np.uint64(0),
            model_name=model,
            model_version=np.int64(1),
            requested_output_names=[b"SUM", np.str_("DIFFERENCE"), "SUM"],
            inputs=[pb_utils.Tensor(b"IN", array), pb_utils.Tensor("OTHER", array)],
            flags=np.uint32(0),
            timeout=np.uint64(0),
        )
        answer = call.exec()
        if answer.has_error():
            error = pb_utils.TritonError(answer.error().message().encode())
            return [pb_utils.InferenceResponse(error=error)]
        assert pb_utils.is_model_ready(model)
        total = pb_utils.get_output_tensor_by_name(answer, "SUM").as_numpy()
        assert len(answer.output_tensors()) == 2
        return [pb_utils.InferenceResponse([pb_utils.Tensor(b"OUT", total)])]
