"""Loaded: the state that the instances of one ONNX model share."""

from typing import TYPE_CHECKING, Any

from inferd.backends.onnx.signature import read_signature

if TYPE_CHECKING:
    from inferd.core.signature import Signature


class Loaded:
    """A session and its signature, alive as long as a present or coming instance needs it."""

    def __init__(self, session: Any) -> None:
        self.session = session
        self.signature: Signature = read_signature(session)
