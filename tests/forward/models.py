"""Configurations and sources of the models that the tests here serve."""

HEAD = "import numpy as np\nimport triton_python_backend_utils as pb_utils\n\n"

SINGLE = 'parameters { key: "inferd_placement" value: { string_value: "single" } }\n'

ECHO = """
backend: "identity"
input { name: "INPUT0" data_type: TYPE_%s dims: [ -1, -1 ] }
output { name: "OUTPUT0" data_type: TYPE_%s dims: [ -1, -1 ] }
"""

INT_CONFIG = """
backend: "python"
input { name: "IN" data_type: TYPE_INT32 dims: [ -1 ] }
output { name: "OUT" data_type: TYPE_INT32 dims: [ -1 ] }
"""

TWICE = (
    HEAD
    + """
class TritonPythonModel:
    def execute(self, requests):
        return [
            pb_utils.InferenceResponse(
                [pb_utils.Tensor("OUT", 2 * request.inputs()[0].as_numpy())],
            )
            for request in requests
        ]
"""
)

# Says which process it is, and stays until it is let go by a file, if its input names one.
WHO = (
    HEAD
    + """
import os
import time
class TritonPythonModel:
    def execute(self, requests):
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([os.getpid()], np.int32))])
            for request in requests
        ]
"""
)

# Until nobody waits for its answer.
WAITS = (
    HEAD
    + """
import time
class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            while not request.is_cancelled():
                time.sleep(0.001)
            if sender := request.get_response_sender():
                sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
                return None
        return [pb_utils.InferenceResponse([]) for request in requests]
"""
)

SUMS = (
    HEAD
    + """
class TritonPythonModel:
    def initialize(self, args):
        self.sums = {}

    def execute(self, requests):
        responses = []
        for request in requests:
            key, flags = request.correlation_id(), request.flags()
            if flags & pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START:
                self.sums[key] = 0
            self.sums[key] += int(request.inputs()[0].as_numpy()[0])
            out = np.array([self.sums[key]], np.int32)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", out)]))
        return responses
"""
)
SUMS_CONFIG = INT_CONFIG + "sequence_batching { oldest { max_candidate_sequences: 16 } }\n"

COUNT = (
    HEAD
    + """
class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            for number in range(int(request.inputs()[0].as_numpy()[0])):
                if request.is_cancelled():
                    break
                out = pb_utils.Tensor("OUT", np.array([number], np.int32))
                sender.send(pb_utils.InferenceResponse([out]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
)
COUNT_CONFIG = INT_CONFIG + "model_transaction_policy { decoupled: true }\n"

# State in the server's own process: an ONNX graph is not needed, the identity gives it back.
STATE_CONFIG = """
backend: "identity"
max_batch_size: 4
input { name: "INPUT0" data_type: TYPE_INT32 dims: [ 1 ] }
output { name: "OUTPUT0" data_type: TYPE_INT32 dims: [ 1 ] }
sequence_batching { oldest { max_candidate_sequences: 64 }
                      max_sequence_idle_microseconds: 60000000 }
"""

FAILS = (
    HEAD
    + """
class TritonPythonModel:
    def execute(self, requests):
        return [
            pb_utils.InferenceResponse(
                error=pb_utils.TritonError("no luck", pb_utils.TritonError.UNAVAILABLE)
            )
            for _ in requests
        ]
"""
)
