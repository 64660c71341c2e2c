"""python -m inferd."""

import sys

from inferd.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
