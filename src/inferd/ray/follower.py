"""Follower: a process that writes the places of a deployment, a line of JSON for each change.

Ray ends a process that has lost its head for too long, or finds another one there: not by an error,
but at once. `inferd route` must survive that, so what follows Ray for it is a process of its own,
which ends when its standard input does. Each line of that is the name of a group to be woken.

    python -m inferd.ray.follower ADDRESS NAME
"""

import os
import sys
import threading
from contextlib import suppress

import msgspec

from inferd.errors import InferdError
from inferd.ray.connection import RayPlacement

WAIT_S = 10.0
"""How long a question waits for a change, before it is asked again."""

MARK = "inferd: "
"""What the line begins with that says why it ends."""


def main() -> int:
    """Follow the places until there is an error, and write that."""
    address, name = sys.argv[1:]
    # The places have a descriptor of their own from here on: what Ray's C++ code prints goes to
    # descriptor 1, past sys.stdout, and would be among them.
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # Ray writes to its standard output, too
    version = 0
    try:
        with RayPlacement(address, name) as placement:
            # A thread, as the main one waits in a question for ten seconds.
            threading.Thread(target=_wake, args=(placement,), daemon=True).start()
            while True:
                # The first time without waiting: the front has no place at all yet.
                last, places = placement.places(version, WAIT_S if version else 0.0)
                if last != version:
                    output.write(msgspec.json.encode(places).decode() + "\n")
                    output.flush()
                version = last
    except InferdError as error:
        # On a line of its own, whatever Ray has begun to write there.
        sys.stderr.write(f"\n{MARK}{error.message}\n")
        sys.stderr.flush()
        return 1


def _wake(placement: RayPlacement) -> None:
    """Wake each group that is named in a line of the input; end the process with that."""
    for line in sys.stdin:
        with suppress(InferdError):  # it is gone, or the head is away: the next request tries again
            placement.wake(line.strip())
    # The end of the input is the end of the front, however it ended; the
    # main thread cannot be woken out of Ray.
    os._exit(0)


if __name__ == "__main__":
    # Threads of Ray, which waits for its head, would keep the process from ending.
    os._exit(main())
