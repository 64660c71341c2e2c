"""Options of what is served: where models lie, which of them load, when and how."""

from dataclasses import dataclass
from functools import partial

from inferd.config.options.option import COUNT, SECONDS, TIMEOUT, option

_models = partial(option, group="Models")


@dataclass(frozen=True, kw_only=True)
class ModelsSection:
    """What is loaded, from where, when and how."""

    model_repository: tuple[str, ...] = _models(
        (),
        "Folder of model folders, or the same in a cloud (s3://, gs://, as://), a hub (hf://), a "
        "registry (oci://) or at a link (https://...#sha256=...); or one model: its folder, or its "
        "file. Same as PATH. May be repeated.",
        word="PATH",
        aliases=("model-store", "model-dir"),
        also="MODELS_DIR",  # of MLServer's image
    )
    model_name: str | None = _models(
        None,
        "Name of the model, if PATH is one model and not a folder of several.",
        shown="that of its configuration; of a folder INFERENCE_SERVICE_NAME, else its own",
    )
    model_control_mode: str = _models(
        "none",
        "none: all models load at start. explicit: those of --load-model load at start, others "
        "when a client asks. poll: all load at start, and changes in the repository are followed.",
        choices=("none", "poll", "explicit"),
        old_switches={"allow-poll-model-repository": "poll", "allow-model-control": "explicit"},
    )
    load_model: tuple[str, ...] = _models(
        (), "Model to load at start in explicit mode; * alone means all. May be repeated."
    )
    repository_poll_secs: float = _models(
        15.0, "How often poll mode checks the repository; 0: never.", **SECONDS
    )
    model_repository_links: str = _models(
        "inside",
        "Links that a load by request may follow: only those that stay inside the repository, or "
        "any. Models loaded at start or by polling may link anywhere.",
        choices=("inside", "any"),
    )
    model_upload_max_bytes: int = _models(
        1073741824,
        "Limit on the model files that clients send with load requests, for all models together.",
        minimum=0,
    )
    require_signatures: tuple[str, ...] = _models(
        (),
        "PEM file of a public key, or of the certificate of an authority: only models that it has "
        "signed are loaded, and clients send no configurations and files. May be repeated.",
        word="FILE",
    )
    fetch_directory: str | None = _models(
        None,
        "Folder in which models of hubs, registries and links are stored.",
        shown="~/.cache/inferd/models",
    )
    fetch_max_bytes: int = _models(
        200 << 30,
        "Limit on one model of a hub, a registry or a link, as it is fetched and unpacked.",
        minimum=1,
    )
    offline: bool = _models(
        False, "Serve models of hubs, registries and links only if they are in --fetch-directory."
    )
    # Triton exits; here the healthy models are served, and readiness shows that others failed.
    exit_on_error: bool | None = _models(
        None,
        "End with code 1 when a model fails to load at start. If false, the server also stays up, "
        "but is not live, when a model repository is missing.",
        shown="only when a model repository is missing",
    )
    strict_readiness: bool = _models(True, "The server is ready only when all its models are.")
    # Triton is ready without a model; then a wrong path, or an empty mount, takes traffic.
    allow_empty: bool = _models(
        False,
        "The server is ready even if it has no model. In explicit mode, where clients load models, "
        "it always is.",
    )
    disable_auto_complete_config: bool = _models(
        False,
        "Use config.pbtxt as it is; fill in nothing from the model file.",
        # The old flag has the same meaning and is not inverted.
        old_flags={"strict-model-config": "{}"},
    )
    model_config_name: str | None = _models(
        None, "Use the model's configs/NAME.pbtxt instead of config.pbtxt, if it exists."
    )
    model_load_thread_count: int = _models(
        4,
        "Number of model versions that load at the same time, and of instances of each.",
        is_raised=True,  # as in Triton
        **COUNT,
    )
    model_load_retry_count: int = _models(
        0, "Number of times a failed load is tried again.", minimum=0
    )
    model_load_timeout_secs: float = _models(
        3600.0, "A load of a model version that takes longer fails.", **TIMEOUT
    )
    model_unload_timeout_secs: float = _models(
        300.0,
        "How long running requests may take to finish when their version is unloaded or replaced.",
        **SECONDS,
    )
