"""Calls another model and waits for it."""

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            array = request.inputs()[0].as_numpy()
            call = pb_utils.InferenceRequest(
                model_name="add_sub",
                requested_output_names=["SUM"],
                inputs=[pb_utils.Tensor("IN", array), pb_utils.Tensor("OTHER", array)],
                preferred_memory=pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_CPU),
                trace=request.trace(),
                parameters={"a": 1},
            )
            answer = call.exec()
            if answer.has_error():
                raise pb_utils.TritonModelException(answer.error().message())
            assert len(answer.output_tensors()) == 1
            total = pb_utils.get_output_tensor_by_name(answer, "SUM").as_numpy()
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", total)]))
        return responses
