"""The folder on a worker's sys.path: names for the package around it, and nothing else."""
