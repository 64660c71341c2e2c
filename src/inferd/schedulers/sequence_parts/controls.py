"""Controls: the model inputs through which a sequence scheduler informs the model.

For each request one says whether it starts its sequence, ends it, is present at all, or which
sequence it belongs to (Triton, Control Inputs). A client cannot send them.
"""

import numpy as np

from inferd.config.model import CONTROL_TYPES, Control, ControlInput, ModelConfig, ModelInput
from inferd.config.rules.complaint import within
from inferd.core.request import Sequence
from inferd.errors import InvalidConfig, InvalidRequest
from inferd.tensor.dtype import DataType
from inferd.tensor.strings import encode_strings
from inferd.tensor.tensor import Tensor

MAX_ID_BYTES = 128
"""The maximum length of a string id, in UTF-8 bytes."""

_CORRELATION_ID = "CONTROL_SEQUENCE_CORRID"


class Controls:
    """The control tensors of one model. Raises InvalidConfig for a control without a kind."""

    def __init__(self, config: ModelConfig) -> None:
        batching = config.sequence_batching
        self._model = config.name
        # With a batch dim, one value for each row.
        self._shape = (1, 1) if config.max_batch_size > 0 else (1,)
        self._pairs: dict[str, tuple[Tensor, Tensor]] = {}  # for false and for true, by kind
        self._id: ModelInput | None = None
        self.inputs: list[ModelInput] = []
        """The control tensors as inputs of the model, without the batch dim."""
        for number, one in enumerate(batching.control_input if batching is not None else ()):
            with within("sequence_batching", "control_input", number):
                self.inputs.append(self._add(one))
        self.absent = self._tensors(0, start=False, end=False, ready=False)
        """The control tensors for a row without a request."""

    def check_id(self, id: int | str) -> None:
        """Raise InvalidRequest for an id that is too long or of the wrong type for its control."""
        # Triton's limit.
        if isinstance(id, str) and len(id.encode()) > MAX_ID_BYTES:
            msg = f"the sequence_id has {len(id.encode())} bytes, expected {MAX_ID_BYTES} at most"
            raise InvalidRequest(msg)
        if self._id is None:
            return
        expected = str if self._id.datatype is DataType.BYTES else int
        if not isinstance(id, expected):
            given, kinds = type(id), {int: "a number", str: "a string"}
            datatype = DataType.BYTES if given is str else DataType.UINT64
            msg = (
                f"sequence batching control '{self._id.name}' data-type is '{datatype.value}', but "
                f"model '{self._model}' expects '{self._id.datatype.value}': the sequence_id is "
                f"{kinds[given]}, expected {kinds[expected]}"
            )
            raise InvalidRequest(msg)

    def id_of(self, number: int) -> int | str:
        """Return `number` as an id of the type the control wants."""
        is_text = self._id is not None and self._id.datatype is DataType.BYTES
        return str(number) if is_text else number

    def of(self, sequence: Sequence) -> list[Tensor]:
        """Return the control tensors of a request, whose id has been checked."""
        return self._tensors(sequence.id, start=sequence.start, end=sequence.end, ready=True)

    def _tensors(self, id: int | str, *, start: bool, end: bool, ready: bool) -> list[Tensor]:
        values = {
            "CONTROL_SEQUENCE_START": start,
            "CONTROL_SEQUENCE_END": end,
            "CONTROL_SEQUENCE_READY": ready,
        }
        tensors = [pair[values[kind]] for kind, pair in self._pairs.items()]
        if self._id is not None:
            tensors.append(Tensor(self._id.name, self._id.datatype, self._shape, self._id_data(id)))
        return tensors

    def _id_data(self, id: int | str) -> bytes | bytearray:
        """Encode an id for its control; a number is truncated to the low bits that fit."""
        assert self._id is not None
        if self._id.datatype is DataType.BYTES:
            return encode_strings([id or "" if isinstance(id, str) else ""], self._id.name)
        size = self._id.datatype.size_bytes
        assert isinstance(id, int)
        # An id is a number of 64 bits, and the control may have 32.
        return (id & (1 << 8 * size) - 1).to_bytes(size, "little")

    def _add(self, one: ControlInput) -> ModelInput:
        if not one.control:
            msg = f"model '{self._model}': sequence_batching: control '{one.name}' has no kind"
            raise InvalidConfig(msg)
        [control] = one.control
        if control.kind == _CORRELATION_ID:
            assert control.datatype is not None
            self._id = ModelInput(one.name, control.datatype, (1,))
            return self._id
        datatype, values = _pair(control)
        false, true = (
            # Made once; each request gets the same tensor, which no model may write to.
            Tensor(one.name, datatype, self._shape, np.array([value], datatype.numpy))
            for value in values
        )
        self._pairs[control.kind] = false, true
        return ModelInput(one.name, datatype, (1,))


def _pair(control: Control) -> tuple[DataType, tuple[float, ...]]:
    """Return the datatype and the two values of a control, which the configuration has checked."""
    return next(
        (datatype, values)
        for field, datatype in CONTROL_TYPES.items()
        if (values := getattr(control, field))
    )
