"""Code in fetched models that no name of a file tells: a configuration says that there is some."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from inferd.config.checks import CONFIG_FILE
from inferd.config.model import ModelConfig
from inferd.config.parameter import is_on
from inferd.config.parameter_names import ALLOW_NATIVE, TRUSTED
from inferd.config.pbtxt import decode_pbtxt, parse_pbtxt
from inferd.errors import InferdError
from inferd.repository.contents import MAX_CONFIG_BYTES, read_limited
from inferd.repository.foreign import MLFLOW_FILE, SETTINGS_FILE, read_foreign


def configured_code(folder: Path) -> str:
    """Return the path of a configuration below `folder` that has code run, "" if there is none."""
    for file, config in _configs(folder):
        # Whatever default_model_filename calls it: Python's backend runs any file.
        if config.backend == "python" or config.parameters.get(TRUSTED) or _is_native(config):
            return file.relative_to(folder).as_posix()
    return ""


def _is_native(config: ModelConfig) -> bool:
    with suppress(InferdError):
        return is_on(config, ALLOW_NATIVE)
    return False


def _configs(folder: Path) -> Iterator[tuple[Path, ModelConfig]]:
    """Yield what is below `folder` and can be read; what cannot be read cannot be loaded either."""
    for file in sorted(folder.rglob("*")):
        with suppress(InferdError, OSError):
            # --model-config-name chooses one of those in configs/.
            if file.name == CONFIG_FILE or (file.parent.name, file.suffix) == ("configs", ".pbtxt"):
                content = read_limited(file, MAX_CONFIG_BYTES, file.name)
                yield file, parse_pbtxt(decode_pbtxt(content, file.name), file.name)
            elif file.name in (SETTINGS_FILE, MLFLOW_FILE):
                yield file, read_foreign(file.parent, ModelConfig(""))[0]
