"""Lies in the model's folder."""

NAME = "beside"
