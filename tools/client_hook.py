"""Copies the client and its codecs into the wheel of inferd-client, under a name of their own.

The client's modules become inferd_client, the codecs that the contract "The client's codecs stand
alone" lists in .importlinter become inferd_client._codec (docs/decisions/0026-client-codecs.md).
"""

import configparser
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).resolve().parent.parent
CONTRACT = "importlinter:contract:client-codecs"
NAME = "inferd_client"
NOT_COPIED = {"trtis.py"}  # it needs the configuration of models

_CLIENT = re.compile(r"\binferd\.client\b")
_CODEC = re.compile(r"\binferd\.(?=[a-z_]+\b)")


class ClientHook(BuildHookInterface):
    """Fills the wheel."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Copy, and have the wheel include the copies."""
        del version
        self._folder = Path(tempfile.mkdtemp(prefix="inferd-client-"))
        copy_into(self._folder)
        for made in self._folder.rglob("*"):
            if made.is_file():
                build_data["force_include"][str(made)] = str(made.relative_to(self._folder))

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Delete the copies, which are in the wheel now."""
        del version, build_data, artifact_path
        shutil.rmtree(self._folder)


def copy_into(folder: Path) -> None:
    """Write the package into `folder`."""
    source = ROOT / "src" / "inferd"
    for path in (source / "client").rglob("*.py"):
        if path.name not in NOT_COPIED:
            _copy(path, folder / NAME / path.relative_to(source / "client"))
    for module in codec_modules():
        path = source.joinpath(*module.split(".")[1:])
        if path.is_dir():
            for data in path.glob("*.binpb"):
                _copy(data, folder / NAME / "_codec" / data.relative_to(source))
            path /= "__init__.py"
        else:
            path = path.with_suffix(".py")
        target = folder / NAME / "_codec" / path.relative_to(source)
        _copy(path, target)
        while target.parent != folder / NAME:
            target = target.parent
            (target / "__init__.py").touch()
    _copy(source / "py.typed", folder / NAME / "py.typed")
    shutil.copy(ROOT / "LICENSE", folder / NAME / "LICENSE")


def codec_modules() -> list[str]:
    """Return the modules of inferd that the client needs."""
    contracts = configparser.ConfigParser()
    contracts.read(ROOT / ".importlinter")
    return contracts[CONTRACT]["source_modules"].split()


def renamed(text: str) -> str:
    """Return the text of a module with the names that it has in the copy."""
    return _CODEC.sub(f"{NAME}._codec.", _CLIENT.sub(NAME, text))


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.suffix == ".py":
        target.write_text(renamed(source.read_text(encoding="utf-8")), encoding="utf-8")
    else:
        shutil.copy(source, target)
