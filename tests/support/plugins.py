"""Has processes that tests start find the plug-in of this folder, the backend `faulty`."""

import os
from pathlib import Path


def with_plugins():
    """Return this process's environment, in which Python looks for packages here, too."""
    given = os.environ.get("PYTHONPATH")
    folders = [str(Path(__file__).parent), *([given] if given else [])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(folders)}
