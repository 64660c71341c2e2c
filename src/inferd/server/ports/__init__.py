"""Ports: those that processes share, and those of cloud platforms."""
