"""The plainest one: tensors in, tensors out."""

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            a = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
            b = pb_utils.get_input_tensor_by_name(request, "OTHER").as_numpy()
            outputs = [pb_utils.Tensor("SUM", a + b), pb_utils.Tensor("DIFFERENCE", a - b)]
            responses.append(pb_utils.InferenceResponse(output_tensors=outputs))
        return responses
