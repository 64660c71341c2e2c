"""Which signature of a SavedModel OpenVINO runs: it offers no choice, and would not tell."""

from pathlib import Path

from inferd.config.model import ModelConfig
from inferd.errors import Unsupported
from inferd.formats.protobuf import fields, text, view

_FILE = "saved_model.pb"
_SERVING, _SERVE_TAG, _INIT = "serving_default", "serve", "__saved_model_init_op"
_META_GRAPHS, _META_INFO, _TAGS, _SIGNATURES, _KEY = 2, 1, 4, 5, 1  # numbers of fields


def check_choice(file: Path, config: ModelConfig) -> None:
    """Raise Unsupported if `config` wants another part of a SavedModel than OpenVINO runs.

    It runs serving_default, or the only signature, of the graph tagged "serve"; of several other
    signatures it runs all at once. A `file` of another format passes. Raises Malformed.
    """
    if not (file / _FILE).is_file():
        return
    graphs = [
        _graph(view(value))
        for number, _, value in fields(memoryview((file / _FILE).read_bytes()))
        if number == _META_GRAPHS
    ]
    tags, names = next((one for one in graphs if _SERVE_TAG in one[0]), (graphs or [([], [])])[0])
    runs = _SERVING if _SERVING in names or len(names) != 1 else names[0]
    tag = config.parameters.get("TF_GRAPH_TAG") or _SERVE_TAG
    wanted = config.parameters.get("TF_SIGNATURE_DEF") or runs
    if tag not in (_SERVE_TAG, *tags):
        _refuse(config, f"graph tagged '{_SERVE_TAG}', not '{tag}'")
    if wanted != runs or runs not in names:
        has = ", ".join(f"'{name}'" for name in names) or "none"
        _refuse(config, f"signature '{runs}', the file has {has}, the model wants '{wanted}'")


def _graph(message: memoryview) -> tuple[list[str], list[str]]:
    """Return the tags of a MetaGraphDef, and the names of its signatures."""
    tags, names = [], []
    for number, _, value in fields(message):
        if number == _META_INFO:
            tags += _texts(view(value), _TAGS)
        elif number == _SIGNATURES:
            names += _texts(view(value), _KEY)
    # That one is not for clients: TensorFlow runs it when it loads the model.
    return tags, [name for name in names if name != _INIT]


def _texts(message: memoryview, wanted: int) -> list[str]:
    return [text(value) for number, _, value in fields(message) if number == wanted]


def _refuse(config: ModelConfig, what: str) -> None:
    raise Unsupported(
        f"model '{config.name}': OpenVINO runs only the {what}; "
        f"with TensorFlow installed, any can be chosen"
    )
