"""Options for what the specifications of the protocols leave open."""

from dataclasses import dataclass
from functools import partial

from inferd.config.options.option import option

_details = partial(option, group="Protocol details")


@dataclass(frozen=True, kw_only=True)
class DetailsSection:
    """What answers look like in corner cases."""

    allow_trtis: bool = _details(
        True,
        "Serve the API of the TensorRT Inference Server, Triton's predecessor, on the same ports.",
    )
    json_half_floats: str = _details(
        "accept",
        "FP16 and BF16 tensors in JSON: accept them as numbers, or refuse them.",
        choices=("accept", "refuse"),
    )
    json_non_finite: str = _details(
        "tokens",
        "NaN and infinities in JSON answers: the words NaN and Infinity (not strict JSON, but what "
        "Triton's clients read), null, or an error.",
        choices=("tokens", "null", "error"),
    )
    not_ready_status: int = _details(
        400,
        "HTTP status of failed readiness checks: Triton's 400, or KServe's 503.",
        choices=(400, 503),
    )
    grpc_typed_answers: bool = _details(
        False,
        "Answer gRPC requests that have typed contents in typed contents, not raw_output_contents.",
    )
