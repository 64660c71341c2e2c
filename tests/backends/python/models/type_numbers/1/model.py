"""The numbers of datatypes, both ways."""

import numpy as np
import triton_python_backend_utils as pb_utils

NUMBERS = {
    1: np.bool_, 2: np.uint8, 3: np.uint16, 4: np.uint32, 5: np.uint64, 6: np.int8, 7: np.int16,
    8: np.int32, 9: np.int64, 10: np.float16, 11: np.float32, 12: np.float64, 13: np.object_,
}  # fmt: skip


class TritonPythonModel:
    def execute(self, requests):
        for number, kind in NUMBERS.items():
            assert pb_utils.numpy_to_triton_type(kind) == number
            assert pb_utils.triton_to_numpy_type(number) == kind
        assert pb_utils.numpy_to_triton_type(np.bytes_) == 13
        assert requests[0].inputs()[0].triton_dtype() == 8
        out = pb_utils.Tensor("OUT", np.ones(1, np.bool_))
        return [pb_utils.InferenceResponse([out]) for _ in requests]
