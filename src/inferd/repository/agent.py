"""Repository agents: what a configuration has done to a model's files before they are loaded.

Triton's agents are libraries, called by name. Known here are its checksum agent, which compares the
files with digests in the configuration, and one that compares them with what somebody has signed.
"""

import hashlib
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from inferd.config.model import ModelConfig, RepositoryAgent
from inferd.config.names import is_inside
from inferd.config.rules.complaint import within
from inferd.errors import InvalidConfig
from inferd.repository.signing.keys import TrustedKeys, check_signature

_CHECKSUM = "checksum"
_SIGNATURE = "signature"
_KEYS = ("public_key", "certificate")
_PARAMETERS = (*_KEYS, "signature", "name")

# Not for security: systems that forbid MD5 there allow it this way.
_ALGORITHMS = {
    "MD5": partial(hashlib.md5, usedforsecurity=False),
    "SHA256": partial(hashlib.sha256, usedforsecurity=False),
}

_COMPARED_AT_ONCE = 4
"""How many files of a model are compared with their digests in parallel."""


def run_agents(
    folder: Path, config: ModelConfig, *, file: Path | None = None, keys: TrustedKeys | None = None
) -> None:
    """Run the agents of a model on its `folder`, in order.

    `file` is the bare model file that is all of the model. With `keys` the model has to be signed
    by one of them. Raises InvalidConfig for an unknown agent, and when one rejects the files.
    """
    # Before the agents of the configuration, which is part of what has to be signed: one that
    # somebody has replaced must not say how it is checked.
    if keys is not None:
        _check_required(file or folder, config, keys)
    for number, agent in enumerate(config.model_repository_agents):
        path = ("model_repository_agents", "agents", number)
        if agent.name not in (_CHECKSUM, _SIGNATURE):
            msg = (
                f"model '{config.name}': there is no repository agent '{agent.name}', known are: "
                f"{_CHECKSUM}, {_SIGNATURE}"
            )
            raise InvalidConfig(msg, (*path, "name"))
        place = f"model '{config.name}', agent '{agent.name}'"
        with within(*path, "parameters"):
            if agent.name == _CHECKSUM:
                _check_sums(folder, agent, place)
            else:
                _check_agent(file or folder, agent, config, place)


def _check_required(model: Path, config: ModelConfig, keys: TrustedKeys) -> None:
    """Compare a model with what `keys` have signed, as far as its own signed file has a say."""
    names = [config.name, model.name]
    signature = ""
    for agent in config.model_repository_agents:
        if agent.name == _SIGNATURE:
            # Whoever copies a signed model into a folder of another name says so here. The
            # configuration lies among the signed files, so only the signer can have allowed it.
            names += [agent.parameters["name"]] if "name" in agent.parameters else []
            signature = agent.parameters.get("signature", "")
    _check_place(signature, f"model '{config.name}'")
    check_signature(model, keys, names, f"model '{config.name}', --require-signatures", signature)


def _check_agent(model: Path, agent: RepositoryAgent, config: ModelConfig, place: str) -> None:
    """Compare a model with what the keys in its configuration have signed."""
    given = agent.parameters
    for key in given:
        if key not in _PARAMETERS:
            msg = f"{place}: parameter '{key}', expected {', '.join(_PARAMETERS)}"
            raise InvalidConfig(msg, (key,))
    # The key itself and no path to one: a configuration, which clients may send, names no file
    # elsewhere (decision 0049).
    pem = "\n".join(given[key] for key in _KEYS if key in given)
    if not pem:
        raise InvalidConfig(f"{place}: expected the parameter public_key or certificate, in PEM")
    _check_place(given.get("signature", ""), place)
    names = [given.get("name") or config.name, model.name]
    check_signature(
        model, TrustedKeys(pem.encode(), place), names, place, given.get("signature", "")
    )


def _check_place(signature: str, place: str) -> None:
    if not is_inside(signature):
        msg = f"{place}: parameter 'signature' leads out of the model's folder"
        raise InvalidConfig(msg, ("signature",))


def _check_sums(folder: Path, agent: RepositoryAgent, place: str) -> None:
    """Compare the files with their digests, in parallel; raise for the first that is wrong."""
    check = partial(_check_sum, folder, place)
    # hashlib lets go of the interpreter while it reads a large file, so threads do run side by
    # side: 1 GiB took 1.8 s in place of 2.2 s on two busy cores.
    with ThreadPoolExecutor(_COMPARED_AT_ONCE) as pool:
        # map raises the first failure in the order of the parameters, whichever thread was done
        # first: a model with two wrong files is always refused with the same text.
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
        raise InvalidConfig(f"{place}: there is no file '{name}' in the model's folder", (key,))
    try:
        with (folder / name).open("rb") as file:
            found = hashlib.file_digest(file, _ALGORITHMS[algorithm]).hexdigest()
    except OSError as error:
        msg = f"{place}: '{name}' cannot be read: {error.strerror}"
        raise InvalidConfig(msg, (key,)) from error
    # Digests are copied from other programs, which may write them
    # in capitals; hexdigest never does.
    if found != expected.strip().lower():
        msg = f"{place}: the {algorithm} of '{name}' is {found}, expected {expected}"
        raise InvalidConfig(msg, (key,))
