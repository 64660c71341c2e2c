"""Lies beside model.py."""

NAME = "helper"
