"""Foreign: the command lines of other servers, as KServe's stock runtimes start them.

Such a command line begins with the name of that server's program, or has a flag that only that
server has; its flags are then replaced by ours. Triton's flags are ours already, and so are the
variables of MLServer; of these only the words before the flags are dropped. A flag that is in no
table is left as it is: it is one of ours, or is refused by its name.

Where another server would answer otherwise than we do, the settings of our backends say that it be
as there.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from typing import NamedTuple

from inferd.config.parameter_names import DEFAULT_OUTPUTS, MODEL_CLASS

_Translation = str | Callable[[str], list[str]]
"""The flag of ours that takes the same value, "" if nothing here does; or what makes of a value, ""
if there is none, the flags that mean the same."""

_Setting = Callable[[str], list[str]]
"""Takes the value of a flag or variable; returns what --backend-config would say for it."""


class Foreign(NamedTuple):
    """Another server: its `programs`, the `marks` by which its flags are known, and what they mean.

    `settings` are further flags, and `variables` those of the environment, that are settings of our
    backends; `answers` are the settings by which models answer as they do there. `program_verb` is
    the word that follows the program. `missing` is what its own clients may call and is not served
    here, "" if there is nothing.
    """

    title: str
    programs: tuple[str, ...]
    marks: tuple[str, ...] = ()
    flags: Mapping[str, _Translation] = {}
    settings: Mapping[str, _Setting] = {}
    variables: Mapping[str, _Setting] = {}
    answers: tuple[str, ...] = ()
    program_verb: str = ""
    missing: str = ""


class Understood(NamedTuple):
    """The arguments of `inferd serve` that say the same, and what to tell whoever wrote them.

    `backend_config` counts where --backend-config, the variable or the file do not say otherwise.
    """

    arguments: list[str]
    warnings: list[str]
    backend_config: tuple[str, ...] = ()


_WITHOUT_EFFECT = ""


def _polled(value: str) -> list[str]:
    """Return the options for looking at the repository each `value` seconds; 0 means never."""
    # In these servers 0 turns polling off; ours is off unless asked for.
    if value == "0":
        return []
    return ["--model-control-mode=poll", f"--repository-poll-secs={value}"]


def _threads(value: str) -> list[str]:
    return [f"{backend},num_threads={value}" for backend in ("xgboost", "lightgbm")]


def _probabilities(value: str) -> list[str]:
    """Return what makes estimators that know probabilities answer with them, as there."""
    is_on = value.lower() == "true"
    return [f"sklearn,{DEFAULT_OUTPUTS}=predict_proba"] if is_on else []


FOREIGN = (
    Foreign("Triton", ("tritonserver", "trtserver")),
    Foreign("MLServer", ("mlserver",), program_verb="start"),
    Foreign(
        "KServe's own servers",
        # The programs in KServe's images.
        ("sklearnserver", "xgbserver", "lgbserver", "catboostserver"),
        # Flags that no other server has, for command lines without a program's name.
        ("model-dir", "nthread", "enable-docs-url", "max-asyncio-workers"),
        {
            "enable-grpc": "allow-grpc",
            "max-threads": _WITHOUT_EFFECT,
            "max-asyncio-workers": _WITHOUT_EFFECT,
            "enable-docs-url": _WITHOUT_EFFECT,
            "enable-latency-logging": _WITHOUT_EFFECT,
        },
        settings={"nthread": _threads},
        variables={"PREDICT_PROBA": _probabilities},
        # There, whatever saved the file: xgboost.Booster and catboost.CatBoost, not a classifier.
        answers=(f"xgboost,{MODEL_CLASS}=xgboost.core.Booster", f"catboost,{MODEL_CLASS}=CatBoost"),
        missing="its V1 protocol (/v1/models/NAME:predict)",
    ),
    Foreign(
        "OpenVINO Model Server",
        ("ovms",),
        ("model-path", "rest-port"),
        {
            "model-path": "model-repository",
            "port": "grpc-port",
            "rest-port": "http-port",
            "grpc-bind-address": "grpc-address",
            "rest-bind-address": "http-address",
            "file-system-poll-wait-seconds": _polled,
            "grpc-workers": _WITHOUT_EFFECT,
            "rest-workers": _WITHOUT_EFFECT,
            "cache-dir": _WITHOUT_EFFECT,  # of compiled models; ours is that of the responses
        },
        missing="TensorFlow Serving's API (/v1/models/NAME:predict) and /v3",
    ),
    Foreign(
        "TensorFlow Serving",
        ("tensorflow_model_server",),
        ("model-base-path", "rest-api-port"),
        {
            "model-base-path": "model-repository",
            "port": "grpc-port",
            "rest-api-port": "http-port",
            "max-num-load-retries": "model-load-retry-count",
            "file-system-poll-wait-seconds": _polled,
            "rest-api-timeout-in-ms": _WITHOUT_EFFECT,
        },
        missing="its API (/v1/models/NAME:predict, and tensorflow.serving over gRPC)",
    ),
)


def is_program(word: str) -> bool:
    """Tell whether `word` names the program of another server, and no folder of models."""
    return _by_program(word) is not None


def understand(arguments: Sequence[str], environ: Mapping[str, str]) -> Understood:
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
    return _translated(found, words, environ)


def _by_program(word: str) -> Foreign | None:
    name = PurePath(word).name
    found = next((one for one in FOREIGN if name in one.programs), None)
    # A folder of models may have a program's name.
    return None if found is None or os.path.isdir(word) else found


def _name(word: str) -> str:
    """Return the name of the flag that `word` is, or begins with; "" if it is none."""
    flag = word.partition("=")[0]
    return flag[2:].replace("_", "-") if flag.startswith("--") else ""


def _translated(foreign: Foreign, words: list[str], environ: Mapping[str, str]) -> Understood:
    arguments, idle, settings = [], [], list(foreign.answers)
    for name, setting in foreign.variables.items():
        settings += setting(environ.get(name, ""))
    while words:
        word = words.pop(0)
        name = _name(word)
        if name not in foreign.flags and name not in foreign.settings:
            arguments.append(word)
            continue
        flag, equals, value = word.partition("=")
        # The value may be the next word, as in our own flags.
        if not equals and words and not words[0].startswith("--"):
            value = words.pop(0)
        if name in foreign.settings:
            settings += foreign.settings[name](value)
            continue
        translation = foreign.flags[name]
        if callable(translation):
            arguments += translation(value)
        elif translation == _WITHOUT_EFFECT:
            idle.append(flag)
        else:
            arguments.append(f"--{translation}={value}" if value else f"--{translation}")
    return Understood(arguments, _warnings(foreign, idle, settings), tuple(settings))


def _warnings(foreign: Foreign, idle: list[str], settings: list[str]) -> list[str]:
    warnings = []
    if foreign.missing:
        warnings.append(
            f"the arguments are those of {foreign.title}: of what it serves, {foreign.missing} is "
            f"not served here; clients use V2, at /v2/models/NAME/infer and over gRPC"
        )
    if settings:
        shown = " ".join(f"--backend-config={setting}" for setting in settings)
        warnings.append(f"models answer as they do there, as if the arguments had {shown}")
    if idle:
        warnings.append(f"accepted, but without effect here: {', '.join(idle)}")
    return warnings
