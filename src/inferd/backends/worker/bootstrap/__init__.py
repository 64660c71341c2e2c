"""What goes onto sys.path of a worker process: nothing of inferd, only numpy and Python 3.9."""
