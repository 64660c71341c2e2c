"""The code that runs in a worker process. It needs only Python 3.9 and numpy.

A process has the folder `on_path` on its sys.path.
"""
