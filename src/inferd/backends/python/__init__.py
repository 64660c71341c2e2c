"""The python backend: models defined as a class in a model.py."""
