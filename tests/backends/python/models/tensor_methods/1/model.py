"""All a tensor can tell, and that its array may be written."""

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        tensor = requests[0].inputs()[0]
        assert tensor.name() == "IN"
        assert list(tensor.shape()) == list(tensor.as_numpy().shape)
        assert tensor.is_cpu()
        array = tensor.as_numpy()
        array += 1
        assert (tensor.as_numpy() == array).all()
        response = pb_utils.InferenceResponse([pb_utils.Tensor("OUT", array.T.T)])
        assert pb_utils.get_output_tensor_by_name(response, "OUT").as_numpy() is not None
        assert pb_utils.get_output_tensor_by_name(response, "X") is None
        assert pb_utils.get_input_tensor_by_name(requests[0], "X") is None
        assert not response.has_error()
        return [response]
