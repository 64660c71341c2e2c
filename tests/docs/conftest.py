"""Runs the pages that say what to type."""
