"""The helpers that read a configuration."""

import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        config = json.loads(args["model_config"])
        half = pb_utils.get_output_config_by_name(config, "HALF")
        self.half = pb_utils.triton_string_to_numpy(half["data_type"])
        self.told = {
            "input": pb_utils.get_input_config_by_name(config, "IN"),
            "no input": pb_utils.get_input_config_by_name(config, "X"),
            "no output": pb_utils.get_output_config_by_name(config, "X"),
            "decoupled": pb_utils.using_decoupled_model_transaction_policy(config),
            "types": sorted(pb_utils.TRITON_STRING_TO_NUMPY),
            "parameter": config["parameters"]["colour"]["string_value"],
        }

    def execute(self, requests):
        text = np.array([json.dumps(self.told)], dtype=np.object_)
        tensors = [pb_utils.Tensor("OUT", text), pb_utils.Tensor("HALF", np.ones(1, self.half))]
        return [pb_utils.InferenceResponse(tensors) for _ in requests]
