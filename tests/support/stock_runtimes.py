"""The containers of KServe's stock ClusterServingRuntimes, as its releases 0.15 to 0.20 have them.

Arguments and variables are word for word those of config/runtimes in KServe's repository, with
`{{.Name}}` and `{{.Labels.modelClass}}` for KServe to fill in.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class Container(NamedTuple):
    """What a runtime's container is started with; `command` replaces the image's entry point."""

    args: tuple[str, ...] = ()
    env: Mapping[str, str] = MappingProxyType({})
    command: tuple[str, ...] = ()

    def filled(self, models, model_class=""):
        """Return the container for the service `iris`, with its models elsewhere, on any ports."""
        words = {
            "{{.Name}}": "iris",
            "{{.Labels.modelClass}}": model_class,
            "/mnt/models": str(models),
            "8080": "0",
            "9000": "0",
        }

        def replaced(text):
            for old, new in words.items():
                text = text.replace(old, new)
            return text

        env = {name: replaced(value) for name, value in self.env.items()}
        return self._replace(args=tuple(map(replaced, self.args)), env=env)


_KSERVE = ("--model_name={{.Name}}", "--model_dir=/mnt/models", "--http_port=8080")

STOCK = {
    "kserve-tritonserver": Container(
        (
            "tritonserver",
            "--model-store=/mnt/models",
            "--grpc-port=9000",
            "--http-port=8080",
            "--allow-grpc=true",
            "--allow-http=true",
        )
    ),
    "kserve-mlserver": Container(
        env={
            "MLSERVER_MODEL_IMPLEMENTATION": "{{.Labels.modelClass}}",
            "MLSERVER_HTTP_PORT": "8080",
            "MLSERVER_GRPC_PORT": "9000",
            "MODELS_DIR": "/mnt/models",
        }
    ),
    "kserve-sklearnserver": Container(_KSERVE),
    "kserve-xgbserver": Container((*_KSERVE, "--nthread=1")),
    "kserve-lgbserver": Container((*_KSERVE, "--nthread=1")),
    "kserve-catboostserver": Container(_KSERVE),
    "kserve-openvino": Container(
        (
            "--model_name={{.Name}}",
            "--model_path=/mnt/models",
            "--port=9000",
            "--rest_port=8080",
            "--file_system_poll_wait_seconds=0",
        )
    ),
    "kserve-tensorflow-serving": Container(
        (
            "--model_name={{.Name}}",
            "--port=9000",
            "--rest_api_port=8080",
            "--model_base_path=/mnt/models",
            "--rest_api_timeout_in_ms=60000",
        ),
        command=("/usr/bin/tensorflow_model_server",),
    ),
}

MLSERVER_DEFAULTS = {"MLSERVER_MODEL_NAME": "{{.Name}}", "MLSERVER_MODEL_URI": "/mnt/models"}
"""What KServe's webhook adds to the container of MLServer, if the model comes from storage."""
