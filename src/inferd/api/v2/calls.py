"""CALLS: every call of V2, in the order in which their URLs are matched."""

from inferd.api import documents
from inferd.api.call import EVENTS, JSON, ApiCall, Rest, Rpc
from inferd.api.v2 import health, logging, metadata, repository, shared_memory, statistics, trace

_MODEL = "/v2/models/{model}[/versions/{version}]"
_FAILURES = (400, 404, 500, 501, 503)
_STREAMS = "Run a model that answers any number of times: an event for each answer."

_INFER = ApiCall(
    "inference",
    "The protocol itself",
    Rest(
        "POST",
        f"{_MODEL}/infer",
        "infer",
        "Run a model. In application/octet-stream the header "
        "Inference-Header-Content-Length says where JSON like the other content ends and "
        "the bytes of tensors begin.",
        "InferResponse",
        "InferRequest",
        _FAILURES,
        may_be_empty=False,
    ),
    Rpc("ModelInfer"),
    Rpc("ModelStreamInfer"),
    answers="an inference",
)

_GENERATE = ApiCall(
    "inference",
    "generate",
    *(
        Rest(
            "POST",
            f"{_MODEL}/{verb}",
            name,
            text,
            gives,
            takes,
            _FAILURES,
            may_be_empty=False,
            type=content_type,
        )
        for verb, name, text, gives, takes, content_type in (
            (
                "generate",
                "generate",
                "Run a model that answers once, with flat objects.",
                "GenerateResponse",
                "GenerateRequest",
                JSON,
            ),
            ("generate_stream", "generateStream", _STREAMS, "Events", "GenerateRequest", EVENTS),
            ("infer_stream", "inferStream", _STREAMS, "InferEvents", "InferRequest", EVENTS),
        )
    ),
)

CALLS = (
    *statistics.CALLS,  # first: one of its paths could be that of a model's metadata
    *health.CALLS,
    *metadata.CALLS,
    _INFER,
    *documents.CALLS,
    _GENERATE,
    *repository.CALLS,
    *logging.CALLS,
    *trace.CALLS,
    *shared_memory.CALLS,
)
