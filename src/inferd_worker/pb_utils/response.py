"""InferenceResponse, and the sender for any number of them."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from ..compiled import mypyc_attr
from .error import TritonError, TritonModelException, WrongType, kind_of
from .tensor import Tensor, named

if TYPE_CHECKING:
    from ..open import OpenRequest

TRITONSERVER_RESPONSE_COMPLETE_FINAL = 1


@mypyc_attr(allow_interpreted_subclasses=True)
class InferenceResponse:
    """One answer: tensors, or an error instead."""

    __slots__ = ("_error", "_parameters", "_tensors", "id", "model_name", "model_version")

    def __init__(
        self,
        output_tensors: Any = (),
        error: Any = None,
        parameters: Any = None,
    ) -> None:
        self._tensors: list[Any] = list(output_tensors) if output_tensors is not None else []
        for tensor in self._tensors:
            if not isinstance(tensor, Tensor):
                raise WrongType(
                    f"output_tensors of an InferenceResponse holds {kind_of(tensor)}, "
                    f"expected Tensor"
                )
        if error is not None and not isinstance(error, TritonError):
            raise WrongType(
                f"error of an InferenceResponse is {kind_of(error)}, expected TritonError"
            )
        self._error: TritonError | None = error
        # Most clients get it as JSON, which has only finite numbers.
        self._parameters = checked_parameters(parameters, is_finite=True) if parameters else None
        self.id = self.model_name = self.model_version = ""

    def output_tensors(self) -> list[Tensor]:
        """Return the tensors."""
        return self._tensors

    def has_error(self) -> bool:
        """Return whether it is an error."""
        return self._error is not None

    def error(self) -> TritonError | None:
        """Return the error, or None."""
        return self._error

    def parameters(self) -> str:
        """Return the parameters as JSON."""
        return as_json(self._parameters or {})


def as_json(parameters: dict[str, object]) -> str:
    """Return parameters as JSON without blanks, as Triton's module writes it."""
    return json.dumps(parameters, separators=(",", ":"))


def get_output_tensor_by_name(inference_response: InferenceResponse, name: object) -> Tensor | None:
    """Return the output called `name`, or None."""
    return named(inference_response._tensors, name)


def checked_parameters(parameters: Any, *, is_finite: bool = False) -> dict[str, Any] | None:
    """Return `parameters`, a dict or JSON; with `is_finite` all numbers must be finite.

    Raises TritonModelException for invalid ones.
    """
    if isinstance(parameters, str):
        parameters = json.loads(parameters or "{}")
    if not parameters:
        return None
    for name, value in parameters.items():
        # The kinds that InferParameter of the protocol has.
        if not isinstance(name, str) or not isinstance(value, (bool, int, float, str)):
            raise TritonModelException(
                f"parameter {name!r} is {kind_of(value)}; names are texts, values are "
                f"texts, numbers or booleans"
            )
        if isinstance(value, float):
            if is_finite and not math.isfinite(value):
                raise TritonModelException(f"parameter {name!r} is {value}, no finite number")
        # What int64_param and uint64_param of the protocol hold together.
        elif isinstance(value, int) and not -(2**63) <= value < 2**64:
            raise TritonModelException(f"parameter {name!r} is {value}, expected a 64-bit number")
    return dict(parameters)


@mypyc_attr(allow_interpreted_subclasses=True)
class InferenceResponseSender:
    """Sends the answers of one request, from any thread."""

    __slots__ = ("_open",)

    def __init__(self, one: OpenRequest) -> None:
        self._open = one

    def send(self, response: Any = None, flags: Any = 0) -> None:
        """Send a response, with TRITONSERVER_RESPONSE_COMPLETE_FINAL if last, or the flag alone.

        Waits while the client is far behind. Raises TritonModelException if nothing more may be
        sent, or an argument is invalid.
        """
        if flags not in (0, TRITONSERVER_RESPONSE_COMPLETE_FINAL):
            raise TritonModelException(
                f"flags {flags!r} are not known: 0, or TRITONSERVER_RESPONSE_COMPLETE_FINAL"
            )
        if response is None and not flags:
            raise TritonModelException("send takes a response, or the final flag, or both")
        if response is not None and not isinstance(response, InferenceResponse):
            raise WrongType(f"send takes an InferenceResponse, got {type(response).__name__}")
        self._open.send(response, is_final=bool(flags))

    def is_cancelled(self) -> bool:
        """Return whether the client has cancelled the request."""
        return self._open.look()
