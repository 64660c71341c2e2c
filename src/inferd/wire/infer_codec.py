"""InferCodec: what the path of an inference through the server needs from its protocol."""

from typing import Any

from inferd.compiled import mypyc_attr
from inferd.core.request import InferRequest, InferResponse
from inferd.memory.buffer import Buffer


@mypyc_attr(allow_interpreted_subclasses=True)
class InferCodec:
    """Decodes requests and encodes answers.

    `call` is the request or call of the transport, `message` what a codec decodes beside it.
    `decode` and `encode` run on the event loop and raise NotFast for what takes too long there;
    that is then done in threads, one of a kind at a time.
    """

    def decode(self, message: Any, call: Any) -> InferRequest:
        """Return the decoded request, its tensors views of what was received. Raises NotFast."""
        raise NotImplementedError

    def decode_large(self, message: Any, call: Any, *, slowly: bool = False) -> InferRequest:
        """Decode what `decode` refused. Raises NotFast for what takes seconds, unless `slowly`."""
        raise NotImplementedError

    def body_of(self, message: Any, call: Any) -> Any:
        """Return the bytes that a decoded request came in."""
        raise NotImplementedError

    def model_of(self, message: Any, call: Any) -> tuple[str, str]:
        """Return model and version of a request that cannot be decoded.

        The model is "" if it is not known, or if its own errors do not come first.
        """
        return "", ""

    def rest_body(self, call: Any) -> tuple[list[Buffer], int | None] | None:
        """Return the body of `call` in parts, and the size of its JSON if there is more in it.

        None unless the body is an inference of V2 over REST.
        """
        return None

    def rest_answer(self, answer: Any) -> tuple[list[Buffer], int | None] | None:
        """Return the same of an encoded answer."""
        return None

    def encode(
        self,
        request: InferRequest,
        response: InferResponse,
        message: Any,
        call: Any,
        *,
        in_thread: bool = False,
    ) -> Any:
        """Return the answer in the form that the transport sends. Raises NotFast on the loop."""
        raise NotImplementedError

    def encode_stream(self, request: InferRequest, response: InferResponse) -> list[Buffer]:
        """Return one answer of a gRPC stream of them, as buffers."""
        raise NotImplementedError
