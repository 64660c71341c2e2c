"""TrtisCodec: what HTTP and gRPC share in inferences of the TensorRT Inference Server API."""

from typing import Any

from inferd.api.trtis.trtis import Trtis
from inferd.compiled import mypyc_attr
from inferd.core.request import InferRequest, InferResponse
from inferd.memory.buffer import Buffer
from inferd.record import Record
from inferd.wire.infer_codec import InferCodec
from inferd.wire.trtis.answer import Answer
from inferd.wire.trtis.header import InferHeader
from inferd.wire.trtis.infer import Form


class TrtisMessage(Record):
    """What a request says beside its HTTP request or call; its `number` names it in the answer.

    `data` is a message of gRPC. Decoding fills in what follows: `header`, what the request is to
    be, `form`, which reads it, and `source`, the bytes of its inputs.
    """

    _fields = ("number", "model", "version", "data")
    form: Form
    header: InferHeader | None

    def __init__(self, number: int, model: str = "", version: str = "", data: Buffer = b"") -> None:
        self.number = number
        self.model = model
        self.version = version
        self.data = data
        self.header = None
        self.source: Any = None


@mypyc_attr(allow_interpreted_subclasses=True)
class TrtisCodec(InferCodec):
    """Decodes a TrtisMessage beside its call."""

    def __init__(self, trtis: Trtis) -> None:
        self._trtis = trtis
        self._resolve = trtis.engine.regions.span

    def decode_large(self, message: Any, call: Any, *, slowly: bool = False) -> InferRequest:
        """See InferCodec."""
        trtis_message: TrtisMessage = message
        assert trtis_message.header is not None
        # Decoding on the loop may have taken some inputs already.
        trtis_message.source.rewind()
        return trtis_message.form.decode_request(
            trtis_message.version,
            trtis_message.header,
            trtis_message.source,
            self._resolve,
            on_loop=False,
        )

    def encode(
        self,
        request: InferRequest,
        response: InferResponse,
        message: Any,
        call: Any,
        *,
        in_thread: bool = False,
    ) -> Any:
        """See InferCodec."""
        trtis_message: TrtisMessage = message
        form, header = trtis_message.form, trtis_message.header
        assert header is not None
        answer = form.encode_response(header, request, response, on_loop=not in_thread)
        return self.answered(answer, trtis_message, call)

    def answered(self, answer: Answer, message: TrtisMessage, call: Any) -> Any:
        """Return `answer` in the form that the transport sends."""
        raise NotImplementedError

    def body_of(self, message: Any, call: Any) -> Any:
        """See InferCodec."""
        return message.source.data
