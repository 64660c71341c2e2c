"""TritonError and its codes: IN says which."""

import triton_python_backend_utils as pb_utils

CODES = [
    pb_utils.TritonError.UNKNOWN,
    pb_utils.TritonError.INTERNAL,
    pb_utils.TritonError.NOT_FOUND,
    pb_utils.TritonError.INVALID_ARG,
    pb_utils.TritonError.UNAVAILABLE,
    pb_utils.TritonError.UNSUPPORTED,
    pb_utils.TritonError.ALREADY_EXISTS,
    pb_utils.TritonError.CANCELLED,
]


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            code = CODES[int(request.inputs()[0].as_numpy()[0])]
            error = pb_utils.TritonError(f"told so: {code}", code)
            assert error.code() == code
            assert error.message() == f"told so: {code}"
            response = pb_utils.InferenceResponse(output_tensors=[], error=error)
            assert response.has_error()
            assert response.error().message() == error.message()
            responses.append(response)
        return responses
