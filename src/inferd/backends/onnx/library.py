"""Libraries: compiled custom operators of a model, named by its configuration.

They must lie in the model's folder, which the configuration check enforces: a client that sends a
configuration must not make the server load other files. Triton accepts absolute paths as well.
"""

from pathlib import Path
from typing import Any

from inferd.backends.onnx.instance import error_text, failures
from inferd.config.model import ModelConfig
from inferd.config.parameter import check_native
from inferd.core.interfaces import ModelFiles
from inferd.errors import BackendFailed, InvalidConfig


def find_libraries(files: ModelFiles, config: ModelConfig) -> list[Path]:
    """Return the libraries of a model. Raises InvalidConfig if one is missing.

    Raises Unsupported unless the configuration allows compiled code.
    """
    found = []
    for name in config.model_operations:
        file = files.folder / name
        if not file.is_file():
            msg = (
                f"model '{config.name}': there is no file '{name}' in the model's folder, which "
                f"model_operations names as a library of operators"
            )
            raise InvalidConfig(msg)
        check_native(config, f"the library of operators '{name}' is compiled code")
        found.append(file)
    return found


def register(options: Any, libraries: list[Path], files: ModelFiles, config: ModelConfig) -> None:
    """Register the operators of `libraries` in session `options`. Raises BackendFailed."""
    for file in libraries:
        try:
            # dlopen looks a name without a slash up in the system's folders, not in ours.
            options.register_custom_ops_library(str(file.absolute()))
        except failures()[1] as error:
            msg = (
                f"model '{config.name}': ONNX Runtime cannot load the library of operators "
                f"'{file.relative_to(files.folder)}': {words(error, files)}"
            )
            raise BackendFailed(msg) from error


def words(error: Exception, files: ModelFiles) -> str:
    """Return ONNX Runtime's error text, without the path to the model's folder."""
    text = error_text(error)
    # ONNX Runtime tells the path as it was given, made absolute, or behind symbolic links.
    # Clients read these texts, and where the server keeps its models is none of their business.
    for folder in (files.folder, files.folder.absolute(), files.folder.resolve()):
        text = text.replace(f"{folder}/", "")
    return text
