"""The folder on a worker's sys.path: it needs only Python 3.9 and numpy, nothing of inferd."""
