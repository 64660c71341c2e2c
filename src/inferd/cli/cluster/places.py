"""inferd places: shows where the replicas of a deployment on Ray serve."""

import argparse
import sys
from collections.abc import Sequence

from inferd.cli.cluster.board import add_ray_arguments, places_board
from inferd.cli.parser import CommandParser
from inferd.cli.terminal import interruptible, screen

_DESCRIPTION = """\
Shows the places where replicas of a deployment on Ray serve, as fronts are to know them: those that
are ready, and those that drain, which get no new requests. A group that has none, but had, is
asleep: inferd route wakes it when somebody asks for its models.
"""


def run(arguments: Sequence[str]) -> int:
    """Print the places. Return the exit code."""
    parser = CommandParser("inferd places", _DESCRIPTION, says_usage=True)
    add_ray_arguments(parser)
    given = parser.read(arguments)
    if isinstance(given, int):
        return given
    return interruptible(lambda: _show(given))


def _show(given: argparse.Namespace) -> int:
    import msgspec

    from inferd.ray.connection import RayPlacement
    from inferd.ray.spec import DEFAULT_NAME

    with RayPlacement(given.ray, given.name or DEFAULT_NAME) as placement, screen() as show:
        version = 0
        while True:
            # A long poll: it returns when something has changed, or after ten seconds.
            version, places = placement.places(version, 10.0 if version else 0.0)
            if given.json:
                sys.stdout.write(msgspec.json.encode(places).decode() + "\n")
                sys.stdout.flush()
            else:
                show(places_board(places))
            if not given.watch:
                return 0
