"""inferd config: shows the configuration in force of a model, from its files or from a server."""

import argparse
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from inferd.cli.parser import CommandParser
from inferd.cli.remote.server import add_server_arguments, client_of, code_of, failure_text, url_of
from inferd.errors import InferdError, InvalidConfig

if TYPE_CHECKING:
    from inferd.check.model import ModelCheck
    from inferd.config.model import ModelConfig

_DESCRIPTION = """\
Shows the configuration of a model that is in force: what its config.pbtxt says, and, marked with
+, what was filled in from the model's file and by default. MODEL is the folder or the file of a
model, or its name in a --repository. Nothing is loaded; of some files only their frameworks can
tell inputs and outputs.

With --url the configuration is that of a server, compared with the file if the model is found.
"""
_EPILOG = """\
The exit code is 0, or 1 if there is no such model or its configuration is wrong, 2 for wrong
arguments.

  inferd config models/resnet
  inferd config resnet --repository models --format=json
  inferd config models/resnet --write     makes models/resnet/config.pbtxt, with comments
  inferd config resnet --url=grpc://localhost:8001
"""
_STYLES = {"+": "green", "-": "red", " ": ""}


def run(arguments: Sequence[str]) -> int:
    """Show a configuration. Return 0, 1 without one, 2 for wrong arguments."""
    given = parser().read(arguments)
    if isinstance(given, int):
        return given
    try:
        if given.write and given.url:
            raise InvalidConfig("--write is for a model's folder, not for a server")
        return _remote(given) if given.url else _local(given)
    except InferdError as error:
        sys.stderr.write(f"inferd config: {error.message}\n")
        return 1


def parser() -> CommandParser:
    """Return what reads the arguments."""
    made = CommandParser("inferd config", _DESCRIPTION, _EPILOG)
    made.add_argument("model", metavar="MODEL", help="a model's folder, file or name")
    made.option("--repository", "PATH", "where a model of that name is")
    made.option("--version", "N", "the version on the server", "")
    made.add_argument(
        "--format", choices=("pbtxt", "json"), help="only the configuration, in that form"
    )
    made.switch("--write", "make a config.pbtxt, with comments, in its folder")
    made.switch("--force", "replace one that is there already")
    add_server_arguments(made)
    return made


def _local(given: argparse.Namespace) -> int:
    check = _check(given)
    errors = [one for one in check.findings if one.level == "error"]
    # Warnings do not keep a configuration from being shown.
    if check.config is None or errors:
        from inferd.check.report import write_text

        write_text(sorted(check.findings, key=lambda one: one.order), 1, sys.stderr)
        return 1
    if given.write:
        return _write(check, check.config, is_forced=given.force)
    from inferd.check.in_force import said_by

    _show(check.config, said_by(check), given.format)
    if not check.is_complete:
        sys.stderr.write(
            "inferd config: only the model's framework can tell its inputs and outputs; a server "
            "shows them: --url\n"
        )
    return 0


def _check(given: argparse.Namespace) -> "ModelCheck":
    from inferd.check.places import check_model
    from inferd.engine.loading.load import gpu_count
    from inferd.repository.local import Reading
    from inferd.repository.repositories import check_not_fetched, fetched_path

    if given.write:
        check_not_fetched(given.repository or given.model)
    reading = Reading(gpu_count=gpu_count())
    if given.repository:
        return check_model(fetched_path(given.repository), reading, given.model)
    return check_model(fetched_path(given.model), reading)


def _show(config: "ModelConfig", said: "ModelConfig", form: str | None) -> None:
    from inferd.check.in_force import diff
    from inferd.config.pbtxt import to_json, to_pbtxt

    if form == "json":
        _write_json(to_json(config))
    elif form == "pbtxt":
        sys.stdout.write(to_pbtxt(config))
    else:
        lines = diff(said, config)
        if not _write_rich(lines):
            sys.stdout.writelines(f"{sign} {text}\n" for sign, text in lines)


def _write_rich(lines: Sequence[tuple[str, str]]) -> bool:
    """Write with colours; return False where there is no terminal, or rich is not installed."""
    if not sys.stdout.isatty() or os.environ.get("TERM") == "dumb":
        return False
    try:
        from rich.console import Console
        from rich.text import Text
    except ImportError:
        return False
    console = Console(file=sys.stdout, highlight=False)
    for sign, text in lines:
        console.print(Text(f"{sign} {text}", style=_STYLES[sign]), soft_wrap=True)
    return True


def _write(check: "ModelCheck", config: "ModelConfig", *, is_forced: bool) -> int:
    """Write config.pbtxt into the model's folder, whole or not at all."""
    from inferd.check.in_force import commented
    from inferd.config.checks import CONFIG_FILE
    from inferd.config.pbtxt import parse_pbtxt
    from inferd.values.output import write_whole

    if not check.model.owns_folder:
        msg = f"'{check.model.file}' is a file without a folder of its own: make one, NAME/1/"
        raise InvalidConfig(msg)
    file = check.model.folder / CONFIG_FILE
    if file.exists() and not is_forced:
        raise InvalidConfig(f"{file} is there already; --force replaces it, with its comments")
    text = commented(check, config)
    # A file that cannot be read back must not be written, whatever the model's names are.
    parse_pbtxt(text, str(file))
    write_whole(file, text.encode())
    sys.stdout.write(f"written: {file}\n")
    return 0


def _remote(given: argparse.Namespace) -> int:
    from inferd.config.pbtxt import parse_json

    try:
        with client_of(given) as client:
            document = client.config(given.model, given.version)
    except InferdError as error:
        sys.stderr.write(f"inferd config: {failure_text(error, url_of(given))}\n")
        return code_of(error)
    import msgspec

    try:
        config = parse_json(msgspec.json.encode(document), f"the configuration of {given.url}")
    except InvalidConfig:  # of another server, with fields that are not known here
        _write_json(document)
        return 0
    from inferd.check.in_force import said_by

    # Without a file there is nothing to compare with, so all is as said.
    said = said_by(_check(given)) if given.repository else config
    _show(config, said, given.format)
    return 0


def _write_json(document: dict[str, object]) -> None:
    import msgspec

    sys.stdout.write(msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n")
