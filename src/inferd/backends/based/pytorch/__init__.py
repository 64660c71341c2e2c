"""The Python-based backend "pytorch", for worker processes: it imports nothing of inferd."""
