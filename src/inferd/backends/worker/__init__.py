"""A model in a process of its own: the process, the line to it, and the instance it is."""
