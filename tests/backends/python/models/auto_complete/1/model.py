"""The model completes its configuration, of which nothing is in the file."""

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(auto_complete_model_config):
        assert pb_utils.ModelConfig('{"name": "m"}').as_dict() == {"name": "m"}
        config = auto_complete_model_config
        assert config.as_dict()["name"] == "auto_complete"
        config.set_max_batch_size(8)
        config.set_dynamic_batching()
        config.add_input({"name": "IN", "data_type": "TYPE_INT32", "dims": [4]})
        for maybe in ({}, {"optional": True}):
            config.add_input({"name": "MAYBE", "data_type": "TYPE_FP32", "dims": [1], **maybe})
        config.add_output({"name": "OUT", "data_type": "TYPE_INT32", "dims": [4]})
        for wrong in ({"name": "X"}, {"name": "IN", "data_type": "TYPE_FP32", "dims": [4]}):
            try:
                config.add_input(wrong)
            except ValueError:
                continue
            raise AssertionError(wrong)
        return config

    def execute(self, requests):
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("OUT", r.inputs()[0].as_numpy() * 3)])
            for r in requests
        ]
