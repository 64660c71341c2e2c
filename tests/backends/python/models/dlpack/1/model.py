"""DLPack, both ways: capsules, objects with __dlpack__, and one memory for all of them."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        tensor = requests[0].inputs()[0]
        assert tensor.__dlpack_device__() == (1, 0)
        same = np.from_dlpack(tensor)
        mine = np.arange(4, dtype=np.float32)
        by_capsule = pb_utils.Tensor.from_dlpack("OUT", tensor.to_dlpack())
        by_object = pb_utils.Tensor.from_dlpack("OUT", mine)
        by_capsule.as_numpy()[0] = 42
        assert tensor.as_numpy()[0] == 42
        mine[0] = 43
        assert by_object.as_numpy()[0] == 43
        assert same[0] == 42
        for shape in ((0,), (2, 0, 3)):
            empty = pb_utils.Tensor.from_dlpack("OUT", np.zeros(shape, np.float32))
            assert (empty.triton_dtype(), empty.as_numpy().shape) == (11, shape)
        tensor.to_dlpack()  # nobody takes it
        for wrong in (mine[::2], "text", np.array([1j])):
            try:
                pb_utils.Tensor.from_dlpack("OUT", wrong)
            except (pb_utils.TritonModelException, BufferError):
                continue
            raise AssertionError(wrong)
        return [pb_utils.InferenceResponse([by_capsule])]
