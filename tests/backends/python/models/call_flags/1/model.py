"""Calls models with the flags of a sequence, and no sequence."""

import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        tensor = pb_utils.Tensor("IN", requests[0].inputs()[0].as_numpy())
        told = []
        for flags in (0, 1, 2, 3):
            call = pb_utils.InferenceRequest(
                model_name="request_fields", inputs=[tensor], flags=flags
            )
            out = pb_utils.get_output_tensor_by_name(call.exec(), "OUT").as_numpy()
            fields = json.loads(out[0])
            assert fields["correlation_id"] == 0
            told.append(str(fields["flags"]))
        call = pb_utils.InferenceRequest(model_name="sequence", inputs=[tensor], flags=3)
        told.append(call.exec().error().message())
        text = np.array(told, dtype=np.object_)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", text)])]
