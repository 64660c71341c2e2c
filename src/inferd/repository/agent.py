"""Repository agents: what a configuration has done to a model's files before they are loaded.

Triton's agents are libraries, called by name. The only one known here is its checksum agent, which
compares the files with digests in the configuration.
"""

import hashlib
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from inferd.config.model import ModelConfig, RepositoryAgent
from inferd.config.rules.complaint import within
from inferd.config.rules.inside import is_inside
from inferd.errors import InvalidConfig

_CHECKSUM = "checksum"

# Not for security: systems that forbid MD5 there allow it this way.
_ALGORITHMS = {
    "MD5": partial(hashlib.md5, usedforsecurity=False),
    "SHA256": partial(hashlib.sha256, usedforsecurity=False),
}

_COMPARED_AT_ONCE = 4
"""How many files of a model are compared with their digests in parallel."""


def run_agents(folder: Path, config: ModelConfig) -> None:
    """Run the agents of a model on its `folder`, in order.

    Raises InvalidConfig for an unknown agent, and when an agent rejects the files.
    """
    for number, agent in enumerate(config.model_repository_agents):
        path = ("model_repository_agents", "agents", number)
        if agent.name != _CHECKSUM:
            msg = (
                f"model '{config.name}': there is no repository agent '{agent.name}', known are: "
                f"{_CHECKSUM}"
            )
            raise InvalidConfig(msg, (*path, "name"))
        with within(*path, "parameters"):
            _check_sums(folder, agent, f"model '{config.name}', agent '{agent.name}'")


def _check_sums(folder: Path, agent: RepositoryAgent, place: str) -> None:
    """Compare the files with their digests, in parallel; raise for the first that is wrong."""
    check = partial(_check_sum, folder, place)
    with ThreadPoolExecutor(_COMPARED_AT_ONCE) as pool:
        for _ in pool.map(check, agent.parameters, agent.parameters.values()):
            pass


def _check_sum(folder: Path, place: str, key: str, expected: str) -> None:
    """Compare the file in `key`, "MD5:<path in the model's folder>", with the digest `expected`."""
    algorithm, _, name = key.partition(":")
    if algorithm not in _ALGORITHMS or not name or not is_inside(name):
        kinds = " or ".join(f"{one}:FILE" for one in _ALGORITHMS)
        msg = f"{place}: parameter '{key}', expected {kinds}, FILE in the model's folder"
        raise InvalidConfig(msg, (key,))
    if not (folder / name).is_file():  # opening a pipe would block until somebody writes
        msg = f"{place}: there is no file '{name}' in the model's folder"
        raise InvalidConfig(msg, (key,))
    try:
        with (folder / name).open("rb") as file:
            found = hashlib.file_digest(file, _ALGORITHMS[algorithm]).hexdigest()
    except OSError as error:
        msg = f"{place}: '{name}' cannot be read: {error.strerror}"
        raise InvalidConfig(msg, (key,)) from error
    if found != expected.strip().lower():
        msg = f"{place}: the {algorithm} of '{name}' is {found}, expected {expected}"
        raise InvalidConfig(msg, (key,))
