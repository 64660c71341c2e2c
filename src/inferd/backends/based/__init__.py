"""Python-based backends that come with inferd: a folder with a model.py for each."""
