"""Python-based backends that inferd has itself: a folder with a model.py for each."""
