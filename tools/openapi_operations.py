"""The operations of the OpenAPI document, by route.

A part of a path in [...] is optional. Operations whose routes the server lacks are ignored.
"""

import re
from typing import Any, NamedTuple

JSON = "application/json"
OCTETS = "application/octet-stream"
TEXT = "text/plain; charset=utf-8"
EVENTS = "text/event-stream; charset=utf-8"


class Operation(NamedTuple):
    """One operation: its name and text, and the schemas of its request and response.

    `errors` are the statuses it may fail with for its own reasons. With `may_be_empty` the request
    needs no body.
    """

    name: str
    text: str
    gives: str = ""
    takes: str = ""
    errors: tuple[int, ...] = ()
    may_be_empty: bool = True
    type: str = JSON


_MODEL = "/v2/models/{model}[/versions/{version}]"
_LOADING = "/v2/repository[/{repository}]/models/{model}"
_TRACING = "/v2[/models/{model}]/trace/setting"

_SHORT = {
    ("GET", "/v2"): Operation("serverMetadata", "What the server is.", "ServerMetadata"),
    ("GET", "/v2/health/live"): Operation("live", "Whether the process answers.", "Live"),
    ("GET", "/v2/health/ready"): Operation(
        "ready", "Whether models can be asked.", "Ready", errors=(400, 503)
    ),
    ("GET", "/v2/models"): Operation("models", "The names of the ready models.", "ModelNames"),
    ("GET", _MODEL): Operation(
        "modelMetadata", "What a model takes and gives.", "ModelMetadata", errors=(404, 503)
    ),
    ("GET", f"{_MODEL}/ready"): Operation(
        "modelReady", "Whether a model can be asked.", "ModelReady", errors=(400, 404, 503)
    ),
    ("POST", f"{_MODEL}/infer"): Operation(
        "infer",
        "Run a model. In application/octet-stream the header Inference-Header-Content-Length says "
        "where JSON like the other content ends and the bytes of tensors begin.",
        "InferResponse",
        "InferRequest",
        (400, 404, 500, 501, 503),
        may_be_empty=False,
    ),
    ("POST", f"{_MODEL}/generate"): Operation(
        "generate",
        "Run a model that answers once, with flat objects.",
        "GenerateResponse",
        "GenerateRequest",
        (400, 404, 500, 501, 503),
        may_be_empty=False,
    ),
    ("POST", f"{_MODEL}/generate_stream"): Operation(
        "generateStream",
        "Run a model that answers any number of times: an event for each answer.",
        "Events",
        "GenerateRequest",
        (400, 404, 500, 501, 503),
        may_be_empty=False,
        type=EVENTS,
    ),
    ("POST", f"{_MODEL}/infer_stream"): Operation(
        "inferStream",
        "Run a model that answers any number of times: an event for each answer.",
        "InferEvents",
        "InferRequest",
        (400, 404, 500, 501, 503),
        may_be_empty=False,
        type=EVENTS,
    ),
    ("GET", f"{_MODEL}/config"): Operation(
        "modelConfig", "The configuration in force.", "ModelConfig", errors=(404, 503)
    ),
    ("GET", "/v2/models/stats"): Operation(
        "statistics", "What all models have done.", "Statistics"
    ),
    ("GET", f"{_MODEL}/stats"): Operation(
        "modelStatistics", "What a model has done.", "Statistics", errors=(400, 404)
    ),
    ("POST", "/v2/repository[/{repository}]/index"): Operation(
        "index", "Which models there are, and their states.", "Index", "IndexRequest", (400,)
    ),
    ("POST", f"{_LOADING}/load"): Operation(
        "load", "Load a model.", "Loaded", "LoadRequest", (400, 404, 500, 501, 503)
    ),
    ("POST", f"{_LOADING}/unload"): Operation(
        "unload", "Unload a model.", "Unloaded", "UnloadRequest", (400, 501, 503)
    ),
    ("GET", "/v2/systemsharedmemory[/region/{region}]/status"): Operation(
        "systemRegions", "The regions of POSIX shared memory.", "SystemRegions", errors=(404, 501)
    ),
    ("POST", "/v2/systemsharedmemory[/region/{region}]/register"): Operation(
        "addSystemRegion",
        "Register POSIX shared memory; without a name it is refused.",
        "",
        "SystemRegionRequest",
        (400, 500, 501),
        may_be_empty=False,
    ),
    ("POST", "/v2/systemsharedmemory[/region/{region}]/unregister"): Operation(
        "dropSystemRegion", "Forget a region, or all.", errors=(501,)
    ),
    ("GET", "/v2/cudasharedmemory[/region/{region}]/status"): Operation(
        "cudaRegions", "The regions of GPU memory.", "CudaRegions", errors=(404, 501)
    ),
    ("POST", "/v2/cudasharedmemory[/region/{region}]/register"): Operation(
        "addCudaRegion",
        "Register GPU memory; without a name it is refused.",
        "",
        "CudaRegionRequest",
        (400, 500, 501),
        may_be_empty=False,
    ),
    ("POST", "/v2/cudasharedmemory[/region/{region}]/unregister"): Operation(
        "dropCudaRegion", "Forget a region, or all.", errors=(501,)
    ),
    ("GET", _TRACING): Operation("traceSettings", "Which requests are traced.", "TraceSettings"),
    ("POST", _TRACING): Operation(
        "changeTraceSettings",
        "Change which requests are traced.",
        "TraceSettings",
        "TraceChange",
        (400, 501),
        may_be_empty=False,
    ),
    ("GET", "/v2/logging"): Operation("logSettings", "What is logged.", "LogSettings"),
    ("POST", "/v2/logging"): Operation(
        "changeLogSettings",
        "Change what is logged.",
        "LogSettings",
        "LogChange",
        (400, 501),
        may_be_empty=False,
    ),
    ("GET", "/v2/openapi.json"): Operation("openapi", "This document.", "Anything"),
    ("GET", "/v2/protos"): Operation("protos", "The .proto files of gRPC.", "ProtoFiles"),
    ("GET", "/v2/protos/{file}"): Operation(
        "proto", "One .proto file.", "Text", errors=(404,), type=TEXT
    ),
}


def operations() -> dict[tuple[str, str], Operation]:
    """Return every operation by verb and path, with and without the optional part of its path."""
    found: dict[tuple[str, str], Operation] = {}
    for (verb, path), operation in _SHORT.items():
        optional = re.search(r"\[(.*?)\]", path)
        if optional is None:
            found[verb, path] = operation
            continue
        [name] = re.findall(r"{(\w+)}", optional[1])
        longer = operation._replace(name=f"{operation.name}Of{name.capitalize()}")
        found[verb, path.replace(optional[0], "")] = operation
        found[verb, path.replace(optional[0], optional[1])] = longer
    return found


PARAMETERS: dict[str, Any] = {
    "model": "A model's name.",
    "version": "A version of the model, such as 3; without it, the highest that is ready.",
    "repository": "A repository's name. The index passes it over, load and unload refuse it.",
    "region": "The name of a region of shared memory.",
    "file": "A file's name, as /v2/protos lists them.",
}
