"""The configuration in force: what config.pbtxt says, and what was filled in beside it."""

import difflib
from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from operator import itemgetter

from inferd.check.model import ModelCheck
from inferd.config.model import ModelConfig, Optimization, VersionPolicy
from inferd.config.pbtxt import to_pbtxt


def diff(said: ModelConfig, in_force: ModelConfig) -> list[tuple[str, str]]:
    """Return the lines of the configuration `in_force`, compared with what was `said`.

    Before each stands its sign: "+" where it was filled in, "-" where it was replaced.
    """
    before, after = to_pbtxt(said).splitlines(), to_pbtxt(in_force).splitlines()
    return [
        (line[0], line[2:])
        # ndiff's usual junk would leave out empty lines and blanks.
        for line in difflib.ndiff(before, after, linejunk=None, charjunk=None)
        # Lines with "?" show where two lines differ, for the eye.
        if line[0] in " +-"
    ]


def said_by(check: ModelCheck) -> ModelConfig:
    """Return what the configuration file of a model says, nothing if there is none."""
    said = check.file.config if check.file is not None else None
    return said if said is not None else ModelConfig("")


_COMMENTS = {
    "name": "the name of the model's folder",
    "platform": "what the model's file is; it may be left out",
    "backend": "what runs the model; it follows from the file, and may be left out",
    "version_policy": "which of the version folders are served",
    "max_batch_size": "the most rows that run together; 0: there is no batch dim",
    "input": "what a request has to have; dims without the batch dim, -1 for any size",
    "output": "what an answer has",
    "dynamic_batching": "requests that wait run together; without numbers the server finds them",
    "sequence_batching": "requests of one sequence run in order, on one instance",
    "instance_group": "how many copies of the model there are, and where",
    "default_model_filename": "the file in each version folder",
    "parameters": "settings of the backend",
    "ensemble_scheduling": "the models that are called, and their tensors",
    "optimization": "what the framework may do",
}
_LEFT_TO_SERVER = ("version_policy", "optimization", "instance_group", "default_model_filename")
"""Fields that are better filled in where the model is served: they are written as comments."""


def commented(check: ModelCheck, in_force: ModelConfig) -> str:
    """Return a config.pbtxt with what is in force, and comments for whoever goes on from there.

    Fields that only repeat what the server fills in on any machine are commented out.
    """
    said = said_by(check)
    lines = [f"# The configuration of '{in_force.name}', as inferd completes it: inferd config."]
    if not check.is_complete:
        lines.append("# Inputs and outputs are known to the framework only: list them here.")
    own = {top for top, _ in _blocks(to_pbtxt(said))}
    blocks = _blocks(to_pbtxt(_plain(in_force)))
    # Fields of one name are together.
    for name, group in groupby(blocks, key=itemgetter(0)):
        lines.append("")
        if comment := _COMMENTS.get(name):
            lines.append(f"# {comment}")
        is_ours = name in _LEFT_TO_SERVER and name not in own
        lines += [f"# {line}" if is_ours else line for _, block in group for line in block]
    return "\n".join(lines) + "\n"


def _plain(config: ModelConfig) -> ModelConfig:
    """Return `config` without defaults that nobody writes."""
    bare = Optimization(input_pinned_memory=True, output_pinned_memory=True)
    usual = config.optimization == bare
    dynamic = config.dynamic_batching
    if dynamic is not None and dynamic.is_filled:
        dynamic = replace(dynamic, preferred_batch_size=())
    policy = config.version_policy
    return replace(
        config,
        optimization=Optimization() if usual else config.optimization,
        dynamic_batching=dynamic,
        version_policy=None if policy == VersionPolicy(latest=1) else policy,
    )


def _blocks(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each field at the top of a text as protobuf writes it, with its lines."""
    block: list[str] = []
    for line in text.splitlines():
        block.append(line)
        # protobuf's printer indents what is inside a message by two spaces.
        if not line.startswith(" ") and not line.endswith("{"):
            yield block[0].split(":")[0].split(" ")[0], block
            block = []
