"""Imports of what lies beside model.py and in the model's folder, and where that is."""

import os

import beside_versions
import numpy as np
import triton_python_backend_utils as pb_utils

from . import helper


class TritonPythonModel:
    def execute(self, requests):
        told = [helper.NAME, beside_versions.NAME, os.path.basename(pb_utils.get_model_dir())]
        out = pb_utils.Tensor("OUT", np.array(told, dtype=np.object_))
        return [pb_utils.InferenceResponse([out]) for _ in requests]
