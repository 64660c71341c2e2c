"""The containers of KServe's stock ClusterServingRuntimes, as its releases 0.15 to 0.20 have them.

Arguments and variables are word for word those of config/runtimes in KServe's repository, with
`{{.Name}}` and `{{.Labels.modelClass}}` for KServe to fill in.
"""

import http.client
import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from plugins import with_plugins
from server_process import SERVE, Process

ON_LOOPBACK = {f"INFERD_{name}_ADDRESS": "127.0.0.1" for name in ("HTTP", "GRPC")}


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


def call(port, path, body=None):
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        client.request("GET" if body is None else "POST", path, body and json.dumps(body))
        answer = client.getresponse()
        return answer.status, json.loads(answer.read() or b"null")
    finally:
        client.close()


def started(container, environ):
    """Start the process of a container whose image has `inferd serve` as its entry point."""
    environ = with_plugins() | ON_LOOPBACK | dict(container.env) | environ
    if container.command:  # the image has links of such names to inferd
        [link] = container.command
        return Process(*container.args, command=(), program=link, environ=environ)
    return Process(*container.args, command=SERVE, environ=environ)


def served(container, environ, name, request):
    """Start the container, and return its answer to a request and what it has said until then."""
    server = started(container, environ)
    try:
        port = server.wait_ready()
        assert call(port, "/v2/health/ready")[0] == 200
        status, answer = call(port, f"/v2/models/{name}/infer", request)
        assert status == 200, answer
        server.process.terminate()
        assert server.end() == 0
    finally:
        server.process.kill()
        server.process.wait()
        server.process.stdout.close()
    return np.array(answer["outputs"][0]["data"]), server.said
