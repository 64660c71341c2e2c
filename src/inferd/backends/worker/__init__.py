"""Models in processes of their own: the process, the line to it, and its instance."""
