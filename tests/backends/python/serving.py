"""A server with Python models, and unmodified clients of it."""

import contextlib
import textwrap
from dataclasses import dataclass
from typing import Any

import numpy as np
import tritonclient.grpc
import tritonclient.http
from server_thread import server_in_thread

from inferd.config.server import ServerConfig

HEAD = "import triton_python_backend_utils as pb_utils\nimport numpy as np\n\n"

ADD_SUB = """
class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            a = pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy()
            b = pb_utils.get_input_tensor_by_name(request, "INPUT1").as_numpy()
            responses.append(pb_utils.InferenceResponse([
                pb_utils.Tensor("OUTPUT0", a + b), pb_utils.Tensor("OUTPUT1", a - b)]))
        return responses
"""

ADD_SUB_CONFIG = """
input { name: "INPUT0" data_type: TYPE_INT32 dims: 16 }
input { name: "INPUT1" data_type: TYPE_INT32 dims: 16 }
output { name: "OUTPUT0" data_type: TYPE_INT32 dims: 16 }
output { name: "OUTPUT1" data_type: TYPE_INT32 dims: 16 }
"""

ONE_CONFIG = """
input { name: "IN" data_type: TYPE_INT32 dims: -1 }
output { name: "OUT" data_type: TYPE_INT32 dims: -1 }
"""


@dataclass
class Asked:
    """A server, and how to ask it: in several threads at once only over gRPC."""

    server: Any
    http: Any
    grpc: Any

    def ask(self, model, over="http", outputs=None, **arrays):
        """Return the outputs of `model` by name; strings go as BYTES."""
        kind = tritonclient.http if over == "http" else tritonclient.grpc
        inputs = []
        for name, value in arrays.items():
            array = np.asarray(value)
            datatype = tritonclient.utils.np_to_triton_dtype(array.dtype)
            inputs.append(kind.InferInput(name, array.shape, datatype))
            inputs[-1].set_data_from_numpy(array)
        wanted = [kind.InferRequestedOutput(name) for name in outputs] if outputs else None
        result = getattr(self, over).infer(model, inputs, outputs=wanted)
        answer = result.get_response()
        listed = answer["outputs"] if over == "http" else answer.outputs
        names = [one["name"] if over == "http" else one.name for one in listed]
        return {name: result.as_numpy(name) for name in names}

    def stream(self, model, outputs=None, **arrays):
        """Return what a stream gives that asks `model` once: results, or errors."""
        answers = []
        inputs = []
        for name, array in arrays.items():
            datatype = tritonclient.utils.np_to_triton_dtype(array.dtype)
            inputs.append(tritonclient.grpc.InferInput(name, array.shape, datatype))
            inputs[-1].set_data_from_numpy(array)
        wanted = [tritonclient.grpc.InferRequestedOutput(name) for name in outputs or ()]
        self.grpc.start_stream(lambda result, error: answers.append(error or result))
        self.grpc.async_stream_infer(model, inputs, outputs=wanted)
        self.grpc.stop_stream()
        return answers


@contextlib.contextmanager
def running(root, **options):
    """Serve the repository `root`."""
    config = ServerConfig(
        model_repository=(str(root),), http_port=0, grpc_port=0, metrics_port=0, **options
    )
    with server_in_thread(config) as server:
        http = tritonclient.http.InferenceServerClient(
            f"127.0.0.1:{server.http_port}", concurrency=8, network_timeout=60
        )
        grpc = tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{server.grpc_port}")
        with contextlib.closing(http), contextlib.closing(grpc):
            yield Asked(server, http, grpc)


def write_model(root, name, source, config=ONE_CONFIG, version=1):
    """Put a model into a repository; `source` None leaves model.py out."""
    folder = root / name / str(version)
    folder.mkdir(parents=True)
    (root / name / "config.pbtxt").write_text('backend: "python"\n' + config)
    if source is not None:
        (folder / "model.py").write_text(HEAD + textwrap.dedent(source))
    return folder


def parameter(key, value):
    """Return a parameter as config.pbtxt says it."""
    return f'parameters {{ key: "{key}" value: {{ string_value: "{value}" }} }}\n'
