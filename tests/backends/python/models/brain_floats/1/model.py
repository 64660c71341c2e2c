"""BF16, which numpy has not and DLPack has."""

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        tensor = requests[0].inputs()[0]
        try:
            tensor.as_numpy()
        except pb_utils.TritonModelException as error:
            assert "BF16" in str(error)
        out = pb_utils.Tensor.from_dlpack("OUT", tensor.to_dlpack())
        assert out.triton_dtype() == 14
        return [pb_utils.InferenceResponse([out])]
