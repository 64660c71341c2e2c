"""The bench's models for MLServer, which imports this file in its own environment."""

import onnxruntime
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse


class OnnxModel(MLModel):
    """ONNX Runtime on one thread, without spinning: inferd's settings."""

    async def load(self) -> bool:
        """Open the session."""
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self._session = onnxruntime.InferenceSession(
            self.settings.parameters.uri, options, providers=["CPUExecutionProvider"]
        )
        self._names = [output.name for output in self._session.get_outputs()]
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Run the model."""
        inputs = {each.name: NumpyCodec.decode_input(each) for each in payload.inputs}
        arrays = self._session.run(self._names, inputs)
        outputs = [
            NumpyCodec.encode_output(name, array)
            for name, array in zip(self._names, arrays, strict=True)
        ]
        return InferenceResponse(model_name=self.name, id=payload.id, outputs=outputs)


class IdentityModel(MLModel):
    """Answers with its input, decoded and encoded like any model's."""

    async def load(self) -> bool:
        """Load nothing."""
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Return INPUT0 as OUTPUT0."""
        array = NumpyCodec.decode_input(payload.inputs[0])
        output = NumpyCodec.encode_output("OUTPUT0", array)
        return InferenceResponse(model_name=self.name, id=payload.id, outputs=[output])
