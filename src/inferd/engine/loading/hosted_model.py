"""Hosted models: what a worker process opens for a HostedBackend, which refers to these names.

The worker uses the same backend as the server would, and requests reach it in the same form.
"""

import json
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

from inferd.config.model import ModelConfig
from inferd.config.pbtxt import parse_json, to_json
from inferd.core.completing import marked, marks_of
from inferd.core.interfaces import (
    Backend,
    BackendContext,
    ConnectedBackend,
    ModelFiles,
    Opened,
    Placement,
)
from inferd.engine.loading.scheduling import as_joined

Load = dict[str, Any]
"""What `hosted` has told of the model and its place, by name."""

_CONVERSION = "inferd.backends.estimator.conversion.conversion:converted_for"


def complete_hosted(load: Load) -> str:
    """Return the configuration completed from the model's file, and its marks, as JSON.

    Raises InferdError.
    """
    completed = _backend(load).complete(_files(load), _config(load))
    return json.dumps({"config": to_json(completed), "marks": marks_of(completed)})


def convert_hosted(load: Load) -> str:
    """Write the model, converted to ONNX, to the file `converted`; return how it differs.

    Raises InferdError.
    """
    files, config = _files(load), _config(load)
    library: Any = _backend(load)
    # Imported only for the models that are converted: the converter's packages take long to import.
    convert = EntryPoint("", _CONVERSION, "").load()
    content, said = convert(library.load(files, config), files.folder, config)
    Path(load["converted"]).write_bytes(content)
    return str(said)


def open_hosted(load: Load) -> Opened:
    """Return the opened instance. Raises InferdError."""
    backend, config = _backend(load), _config(load)
    instance = backend.open(_files(load), config, Placement(*load["place"]))
    return as_joined(config, backend, instance)


def _backend(load: Load) -> Backend:
    backend: Backend = EntryPoint("", load["target"], "").load()()
    if isinstance(backend, ConnectedBackend):
        backend.connect(BackendContext(settings=load["settings"]))
    return backend


def _files(load: Load) -> ModelFiles:
    folder, version_folder, file = (Path(load[key]) for key in ("folder", "version_folder", "file"))
    return ModelFiles(folder, load["version"], version_folder, file)


def _config(load: Load) -> ModelConfig:
    config = replace(parse_json(load["config"], "config"), name=load["model"])
    # Marks are no part of the protocol's messages, so they travel beside them.
    return marked(config, load["marks"])
