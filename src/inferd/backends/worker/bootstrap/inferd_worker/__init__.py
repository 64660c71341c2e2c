"""The code that runs in a worker process. It needs only Python 3.9 and numpy."""
