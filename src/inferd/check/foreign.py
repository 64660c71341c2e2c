"""Models in folders of other servers that are served: as what, and what is otherwise here."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from inferd.check.archive import bento_module
from inferd.check.finding import Finding
from inferd.check.model import ModelCheck
from inferd.config.model import ModelConfig
from inferd.config.platform import reported_platform
from inferd.repository.foreign import MLFLOW_FILE, SETTINGS_FILE

_NO_V1 = "clients of /v1/models/{name}:predict have to use V2, /v2/models/{name}/infer"

_IDLE_SETTINGS = {
    "parallel_workers": "say instance_group { count: N } in a config.pbtxt beside it",
    "warm_workers": "",
    "cache_enabled": "say response_cache { enable: true } in a config.pbtxt beside it",
}
_IDLE_PARAMETERS = {
    "content_type": "clients say what their data is by its datatype",
    "environment_path": "install what the model needs where inferd runs",
    "environment_tarball": "install what the model needs where inferd runs",
    "inference_pool_gid": "",
}
"""Settings of MLServer's that nothing looks at, and what to do instead."""


def add_foreign_notes(check: ModelCheck) -> None:
    """Say of a model from a folder of another server as what it is served."""
    config, model = check.config, check.model
    if config is None or check.is_refused:
        return
    folder = model.folder
    # In the order in which repositories look for these signs: a folder may have several.
    if (folder / SETTINGS_FILE).is_file():
        _note(check, config, "MLServer", "")
        _add_idle_settings(check, folder)
    elif (folder / MLFLOW_FILE).is_file():
        _note(check, config, "MLflow", "nothing of its conda.yaml or requirements.txt is installed")
    elif module := bento_module(folder):
        _note(check, config, "BentoML", f"{module} saved it; its service is not run")
    # Only a SavedModel without version folders above it has the folder itself as its file.
    elif config.default_model_filename == ".":
        _note(check, config, "TensorFlow Serving", _NO_V1.format(name=config.name))
    elif model.file is not None and model.owns_folder:
        _note(check, config, "KServe", _NO_V1.format(name=config.name))


def _note(check: ModelCheck, config: ModelConfig, server: str, more: str) -> None:
    versions = ", ".join(map(str, check.model.versions))
    text = (
        f"a folder as {server} has it: served as model '{config.name}', version {versions}, "
        f"platform {reported_platform(config)}"
    )
    check.add_note(f"{text}; {more}" if more else text, "foreign")


def _add_idle_settings(check: ModelCheck, folder: Path) -> None:
    settings = _settings(folder)
    given = settings.get("parameters")
    parameters: Mapping[str, object] = given if isinstance(given, dict) else {}
    for known, found in ((_IDLE_SETTINGS, settings), (_IDLE_PARAMETERS, parameters)):
        for name, fix in known.items():
            # A setting that is false or empty asks for nothing.
            if found.get(name):
                text = f"{name} has no effect in inferd"
                place = folder / SETTINGS_FILE
                check.add(
                    Finding("warning", "foreign", text, place, model=check.model.name, fix=fix)
                )


def _settings(folder: Path) -> Mapping[str, object]:
    """Return MLServer's settings, which the server has just read."""
    try:
        document = msgspec.json.decode((folder / SETTINGS_FILE).read_bytes())
    except (OSError, msgspec.MsgspecError):
        return {}
    return document if isinstance(document, dict) else {}
