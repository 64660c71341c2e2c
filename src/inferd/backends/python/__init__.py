"""The python backend: models that are a class in a model.py."""
