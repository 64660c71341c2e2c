"""Strings: objects of bytes in, of bytes or str out, and their layout on the wire."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            words = request.inputs()[0].as_numpy()
            assert words.dtype == np.object_
            assert all(isinstance(word, bytes) for word in words)
            wire = pb_utils.serialize_byte_tensor(words)
            assert (pb_utils.deserialize_bytes_tensor(wire) == words).all()
            loud = np.array([word.decode().upper() for word in words], dtype=np.object_)
            count = np.array([len(words)], np.int32)
            tensors = [pb_utils.Tensor("OUT", loud), pb_utils.Tensor("COUNT", count)]
            responses.append(pb_utils.InferenceResponse(tensors))
        return responses
