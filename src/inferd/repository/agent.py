"""Repository agents: what a configuration has done with a model's files before they are loaded.

Triton's are libraries, called by name. The one that is known here is its checksum: the files are
what the configuration says they are.
"""

import hashlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from inferd.config.checks import is_inside
from inferd.config.model import ModelConfig, RepositoryAgent
from inferd.errors import InvalidConfig

_ALGORITHMS = {"MD5": "md5", "SHA256": "sha256"}

_COMPARED_AT_ONCE = 4
"""So many files of one model are compared with their digests side by side."""


def run_agents(folder: Path, config: ModelConfig) -> None:
    """Have the agents of a model look at its `folder`, in their order.

    Raises InvalidConfig for an agent that is not known, and for what one does not let pass.
    """
    for agent in config.model_repository_agents:
        run = _AGENTS.get(agent.name)
        if run is None:
            msg = (
                f"model '{config.name}': there is no repository agent '{agent.name}', known are: "
                f"{', '.join(_AGENTS)}"
            )
            raise InvalidConfig(msg)
        run(folder, agent, f"model '{config.name}', agent '{agent.name}'")


def _check_sums(folder: Path, agent: RepositoryAgent, place: str) -> None:
    """Compare the files with their digests, some side by side; the first that is wrong is told."""

    def check(given: tuple[str, str]) -> None:
        _check_sum(folder, *given, place)

    with ThreadPoolExecutor(_COMPARED_AT_ONCE) as pool:
        for _ in pool.map(check, agent.parameters.items()):
            pass


def _check_sum(folder: Path, key: str, expected: str, place: str) -> None:
    """Compare the file of `key`, "MD5:<path in the model's folder>", with the digest `expected`."""
    algorithm, _, name = key.partition(":")
    if algorithm not in _ALGORITHMS or not name or not is_inside(name):
        kinds = " or ".join(f"{one}:FILE" for one in _ALGORITHMS)
        msg = f"{place}: parameter '{key}', expected {kinds}, FILE in the model's folder"
        raise InvalidConfig(msg)
    if not (folder / name).is_file():  # opening a pipe would wait for who writes it
        msg = f"{place}: there is no file '{name}' in the model's folder"
        raise InvalidConfig(msg)
    try:
        with (folder / name).open("rb") as file:
            found = hashlib.file_digest(file, _digest_of(algorithm)).hexdigest()
    except OSError as error:
        msg = f"{place}: '{name}' cannot be read: {error.strerror}"
        raise InvalidConfig(msg) from error
    if found != expected.strip().lower():
        msg = f"{place}: the {algorithm} of '{name}' is {found}, expected {expected}"
        raise InvalidConfig(msg)


def _digest_of(algorithm: str) -> "Callable[[], hashlib._Hash]":
    # Not a matter of security, says MD5 to systems that forbid it there.
    return lambda: hashlib.new(_ALGORITHMS[algorithm], usedforsecurity=False)


_AGENTS: dict[str, Callable[[Path, RepositoryAgent, str], None]] = {"checksum": _check_sums}
