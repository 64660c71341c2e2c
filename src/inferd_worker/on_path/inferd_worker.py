"""Makes this the package inferd_worker: its modules are those around this folder.

The folder above them would do as well, but it has all that is installed beside inferd, which an
environment of another Python must not see.
"""

import os

__path__ = [os.path.dirname(os.path.dirname(os.path.abspath(__file__)))]
