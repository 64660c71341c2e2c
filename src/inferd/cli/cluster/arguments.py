"""The arguments of commands about a deployment on Ray."""

import argparse
import os


def add_ray_arguments(parser: argparse.ArgumentParser) -> None:
    """Add those that say which deployment is meant, and how it is shown."""
    parser.add_argument(
        "--ray",
        metavar="ADDRESS",
        # Ray's own variable.
        default=os.environ.get("RAY_ADDRESS") or "auto",
        help="the cluster [%(default)s]",
    )
    parser.add_argument("--name", metavar="NAME", help="the deployment [inferd]")
    parser.add_argument("--watch", action="store_true", help="go on showing it, until Ctrl-C")
    parser.add_argument("--json", action="store_true", help="JSON, a line each time")
