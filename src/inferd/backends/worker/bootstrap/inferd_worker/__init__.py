"""The other end of the line: what runs in a worker process. Python 3.9 and numpy suffice."""
