"""Foreign: the command lines of other servers, as KServe's stock runtimes start them.

Such a command line begins with the name of that server's program, or has a flag that only that
server has; its flags are then replaced by ours. Triton's flags are ours already, and so are the
variables of MLServer; of these only the words before the flags are dropped. A flag that is in no
table is left as it is: it is one of ours, or is refused by its name.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import PurePath
from typing import NamedTuple

_Translation = Callable[[str], list[str]]
"""Takes the value of a flag, "" if it has none; returns the flags of ours that mean the same."""


class Foreign(NamedTuple):
    """Another server: its `programs`, the `marks` by which its flags are known, and what they mean.

    `program_verb` is the word that follows the program. `missing` is what its own clients may call
    and is not served here, "" if there is nothing.
    """

    title: str
    programs: tuple[str, ...]
    marks: tuple[str, ...] = ()
    flags: Mapping[str, _Translation] = {}
    program_verb: str = ""
    missing: str = ""


class Understood(NamedTuple):
    """The arguments of `inferd serve` that say the same, and what to tell whoever wrote them."""

    arguments: list[str]
    warnings: list[str]


def _to(*flags: str) -> _Translation:
    return partial(_valued, flags)


def _valued(flags: tuple[str, ...], value: str) -> list[str]:
    return [f"--{flag}{value}" if value else f"--{flag.removesuffix('=')}" for flag in flags]


def _without_effect(_value: str) -> list[str]:
    return []


def _polled(value: str) -> list[str]:
    """Return the options for looking at the repository each `value` seconds; 0 means never."""
    if value == "0":
        return []
    return ["--model-control-mode=poll", f"--repository-poll-secs={value}"]


FOREIGN = (
    Foreign("Triton", ("tritonserver", "trtserver")),
    Foreign("MLServer", ("mlserver",), program_verb="start"),
    Foreign(
        "KServe's own servers",
        ("sklearnserver", "xgbserver", "lgbserver", "catboostserver"),
        ("model-dir", "nthread", "enable-docs-url", "max-asyncio-workers"),
        {
            "enable-grpc": _to("allow-grpc="),
            "nthread": _to(
                "backend-config=xgboost,num_threads=", "backend-config=lightgbm,num_threads="
            ),
            "max-threads": _without_effect,
            "max-asyncio-workers": _without_effect,
            "enable-docs-url": _without_effect,
            "enable-latency-logging": _without_effect,
        },
        missing="its V1 protocol (/v1/models/NAME:predict)",
    ),
    Foreign(
        "OpenVINO Model Server",
        ("ovms",),
        ("model-path", "rest-port"),
        {
            "model-path": _to("model-repository="),
            "port": _to("grpc-port="),
            "rest-port": _to("http-port="),
            "grpc-bind-address": _to("grpc-address="),
            "rest-bind-address": _to("http-address="),
            "file-system-poll-wait-seconds": _polled,
            "grpc-workers": _without_effect,
            "rest-workers": _without_effect,
        },
        missing="TensorFlow Serving's API (/v1/models/NAME:predict) and /v3",
    ),
    Foreign(
        "TensorFlow Serving",
        ("tensorflow_model_server",),
        ("model-base-path", "rest-api-port"),
        {
            "model-base-path": _to("model-repository="),
            "port": _to("grpc-port="),
            "rest-api-port": _to("http-port="),
            "max-num-load-retries": _to("model-load-retry-count="),
            "file-system-poll-wait-seconds": _polled,
            "rest-api-timeout-in-ms": _without_effect,
        },
        missing="its API (/v1/models/NAME:predict, and tensorflow.serving over gRPC)",
    ),
)


def is_program(word: str) -> bool:
    """Tell whether `word` names the program of another server, and no folder of models."""
    return _by_program(word) is not None


def understand(arguments: Sequence[str]) -> Understood:
    """Return `arguments`, those of another server replaced by ours; others stay as they are."""
    words = list(arguments)
    found = _by_program(words[0]) if words else None
    if found is not None:
        del words[0]
        if words and words[0] == found.program_verb:
            del words[0]
    else:
        given = {_name(word) for word in words}
        found = next((one for one in FOREIGN if given & set(one.marks)), None)
    if found is None:
        return Understood(words, [])
    return _translated(found, words)


def _by_program(word: str) -> Foreign | None:
    name = PurePath(word).name
    found = next((one for one in FOREIGN if name in one.programs), None)
    return None if found is None or os.path.isdir(word) else found


def _name(word: str) -> str:
    """Return the name of the flag that `word` is, or begins with; "" if it is none."""
    flag = word.partition("=")[0]
    return flag[2:].replace("_", "-") if flag.startswith("--") else ""


def _translated(foreign: Foreign, words: list[str]) -> Understood:
    arguments, idle = [], []
    while words:
        word = words.pop(0)
        translate = foreign.flags.get(_name(word))
        if translate is None:
            arguments.append(word)
            continue
        flag, equals, value = word.partition("=")
        if not equals and words and not words[0].startswith("--"):
            value = words.pop(0)
        if translate is _without_effect:
            idle.append(flag)
        arguments += translate(value)
    warnings = []
    if foreign.missing:
        warnings.append(
            f"the arguments are those of {foreign.title}: of what it serves, {foreign.missing} is "
            f"not served here; clients use V2, at /v2/models/NAME/infer and over gRPC"
        )
    if idle:
        warnings.append(f"accepted, but without effect here: {', '.join(idle)}")
    return Understood(arguments, warnings)
