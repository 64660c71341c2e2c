"""Options of cloud platforms: the calls of SageMaker and Vertex AI."""

from dataclasses import dataclass
from functools import partial

from inferd.config.options.option import PORT, option

_cloud = partial(option, group="Cloud platforms")


@dataclass(frozen=True, kw_only=True)
class CloudSection:
    """Ports of cloud platforms."""

    allow_sagemaker: bool = _cloud(False, "Serve SageMaker's /ping and /invocations.")
    sagemaker_address: str | None = _cloud(
        None, "Address SageMaker's port binds.", shown="that of HTTP"
    )
    sagemaker_port: int = _cloud(
        8080, "Port of SageMaker's calls.", also="SAGEMAKER_BIND_TO_PORT", **PORT
    )
    sagemaker_safe_port_range: str | None = _cloud(
        None,
        "LOW-HIGH: all ports of the server must be in this range.",
        also="SAGEMAKER_SAFE_PORT_RANGE",
    )
    sagemaker_default_model: str | None = _cloud(
        None,
        "Model that /invocations calls.",
        shown="the only model",
        also="SAGEMAKER_TRITON_DEFAULT_MODEL_NAME",
    )
    sagemaker_inference_type: str = _cloud(
        "infer",
        "What /invocations does: V2 inference, or a call of the generate extension.",
        choices=("infer", "generate", "generate_stream"),
        also="SAGEMAKER_TRITON_INFERENCE_TYPE",
    )
    sagemaker_multi_model: bool = _cloud(
        False,
        "SageMaker decides which models are loaded; --model-control-mode is then explicit.",
        also="SAGEMAKER_MULTI_MODEL",
    )
    # Vertex AI sets AIP_MODE=PREDICTION; see vertex_ai_defaults in config/sources.py.
    allow_vertex_ai: bool = _cloud(
        False,
        "Serve Vertex AI's calls. AIP_MODE=PREDICTION sets this; HTTP and gRPC are then off unless "
        "you ask for them.",
    )
    vertex_ai_address: str | None = _cloud(
        None,
        "Address Vertex AI's port binds.",
        shown="that of HTTP; 0.0.0.0 with AIP_MODE=PREDICTION",
    )
    vertex_ai_port: int = _cloud(8080, "Port of Vertex AI's calls.", also="AIP_HTTP_PORT", **PORT)
    vertex_ai_health_route: str = _cloud(
        "/health", "Path of Vertex AI's health checks.", word="PATH", also="AIP_HEALTH_ROUTE"
    )
    vertex_ai_predict_route: str = _cloud(
        "/predict", "Path of Vertex AI's predictions.", word="PATH", also="AIP_PREDICT_ROUTE"
    )
    vertex_ai_default_model: str | None = _cloud(
        None, "Model that Vertex AI's calls use if they name none.", shown="the only model"
    )
