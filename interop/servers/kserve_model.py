"""The models of the checks for KServe's own Python server, which runs this file."""

import sys

from kserve import InferOutput, InferResponse, Model, ModelServer


class Simple(Model):
    """The sum and the difference of two INT32 inputs."""

    def __init__(self, name):
        super().__init__(name)
        self.ready = True

    def predict(self, payload, headers=None, response_headers=None):
        a, b = (one.as_numpy() for one in payload.inputs)
        outputs = []
        for name, array in (("OUTPUT0", a + b), ("OUTPUT1", a - b)):
            outputs.append(InferOutput(name, list(array.shape), "INT32"))
            outputs[-1].set_data_from_numpy(array, binary_data=payload.from_grpc)
        return InferResponse(payload.id or "1", self.name, outputs)


class Identity(Model):
    """Answers with its input."""

    def __init__(self, name):
        super().__init__(name)
        self.ready = True

    def predict(self, payload, headers=None, response_headers=None):
        array = payload.inputs[0].as_numpy()
        output = InferOutput("OUTPUT0", list(array.shape), "FP32")
        output.set_data_from_numpy(array, binary_data=payload.from_grpc)
        return InferResponse(payload.id or "1", self.name, [output])


if __name__ == "__main__":
    http, grpc = map(int, sys.argv[1:3])
    sys.argv[1:] = []
    ModelServer(http_port=http, grpc_port=grpc, workers=1).start(
        [Simple("simple"), Identity("identity_fp32")]
    )
