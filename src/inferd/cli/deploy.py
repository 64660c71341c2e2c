"""inferd deploy: runs replicas of `inferd serve` on a Ray cluster, and shows how they are."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from inferd.cli.cluster.board import add_ray_arguments, changes, status_board
from inferd.cli.parser import CommandParser
from inferd.cli.terminal import interruptible, screen
from inferd.errors import InvalidConfig

if TYPE_CHECKING:
    from inferd.ray.connection import RayPlacement
    from inferd.ray.spec import DeploymentSpec
    from inferd.ray.status import DeploymentStatus

_DESCRIPTION = """\
Runs replicas of inferd serve on a Ray cluster, as FILE (models.toml) says: which models in which
groups, how many replicas, and what each needs. What runs already is changed to that: replicas that
differ are replaced, one after the other, without losing a request, and groups that FILE lacks end.
The command shows how that goes on until everything is as wanted.

  inferd deploy models.toml --ray 10.0.0.1:6379
  inferd deploy --status --ray auto
  inferd deploy --scale digits=3
  inferd deploy --down

ADDRESS is that of Ray's head (HOST:PORT, on a node of the cluster), ray://HOST:10001 from
elsewhere, or auto: the cluster that this machine is a node of, or what RAY_ADDRESS says.

The exit code is 0, 1 if not everything is as wanted, or the cluster cannot be reached, and 2 for
wrong arguments or a FILE that cannot be read.
"""

# Images are pulled and models loaded meanwhile.
TIMEOUT_S = 1800.0


def run(arguments: Sequence[str]) -> int:
    """Deploy, or do what else the arguments say. Return the exit code."""
    parser = _parser()
    try:
        given = parser.parse_args(arguments)
        _check(parser, given)
    except SystemExit as end:  # argparse has said what is wrong, or printed its help
        return int(end.code or 0)
    spec = None
    if given.file:
        from inferd.ray.spec_file import read_spec_file

        try:
            # Before Ray is connected to, which takes seconds.
            spec = read_spec_file(Path(given.file))
        except InvalidConfig as error:
            sys.stderr.write(f"inferd deploy: {error.message}\n")
            return 2
    return interruptible(lambda: _done(given, spec))


def _parser() -> CommandParser:
    parser = CommandParser("inferd deploy", _DESCRIPTION, says_usage=True)
    parser.add_argument("file", metavar="FILE", nargs="?", help="what is to run: models.toml")
    add_ray_arguments(parser)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--status", action="store_true", help="show how everything is")
    what.add_argument("--down", action="store_true", help="end all replicas")
    what.add_argument("--scale", metavar="GROUP=N", help="have N replicas, within the bounds")
    what.add_argument("--wake", metavar="GROUP", help="have a replica, if there is none")
    parser.switch("--replace", "replace replicas that do not differ")
    parser.switch("--no-wait", "begin it, and say no more")
    about = "how long to wait for the end [%(default)g]; the cluster goes on after that"
    parser.option("--timeout", "SECONDS", about, TIMEOUT_S, float)
    return parser


def _check(parser: argparse.ArgumentParser, given: argparse.Namespace) -> None:
    others = given.status or given.down or given.scale is not None or given.wake is not None
    if bool(given.file) == bool(others):
        parser.error("give a FILE, or one of --status, --down, --scale and --wake")
    if given.scale is not None:
        group, equals, count = given.scale.partition("=")
        if not (group and equals and count.isascii() and count.isdecimal()):
            parser.error(f"--scale is {given.scale!r}, expected GROUP=N")
    if not given.timeout > 0:
        parser.error(f"--timeout is {given.timeout:g}, expected seconds")


def _done(given: argparse.Namespace, spec: "DeploymentSpec | None") -> int:
    from inferd.ray.connection import RayPlacement
    from inferd.ray.spec import DEFAULT_NAME

    name = given.name or (spec.name if spec else DEFAULT_NAME)
    with RayPlacement(given.ray, name) as placement:
        if given.status:
            return _show(placement, given)
        if given.down:
            placement.remove()
            return 0
        if spec is not None:
            placement.deploy(spec, replace=given.replace)
        elif given.scale is not None:
            group, _, count = given.scale.partition("=")
            placement.scale(group, int(count))
        else:
            placement.wake(given.wake)
        return 0 if given.no_wait else _follow(placement, given)


def _show(placement: "RayPlacement", given: argparse.Namespace) -> int:
    if given.json:
        return _write_json(placement.status())
    with screen() as show:
        status = placement.status()
        show(status_board(status))
        if given.watch:
            for status in placement.watch():
                show(status_board(status))
    return 0 if status.is_settled else 1


def _follow(placement: "RayPlacement", given: argparse.Namespace) -> int:
    """Show how it goes on until all is as wanted, or never will be."""
    # A log gets lines for changes, a terminal a table in place.
    is_live = sys.stdout.isatty() and not given.json
    status = before = None
    with screen() as show:
        for status in placement.follow(given.timeout):
            if is_live:
                show(status_board(status))
            elif not given.json:
                sys.stdout.write("".join(f"{line}\n" for line in changes(before, status)))
                sys.stdout.flush()
            before = status
    assert status is not None
    if given.json:
        return _write_json(status)
    for warning in status.warnings:
        sys.stderr.write(f"inferd deploy: {warning}\n")
    if status.is_settled:
        return 0
    reasons = "; ".join(f"{each.name} {each.reason}" for each in status.groups if each.reason)
    sys.stderr.write(f"inferd deploy: not everything is as wanted: {reasons}\n")
    return 1


def _write_json(status: "DeploymentStatus") -> int:
    import msgspec

    sys.stdout.write(msgspec.json.encode(status).decode() + "\n")
    return 0 if status.is_settled else 1
