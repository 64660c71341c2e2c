"""Sending logged requests again, and comparing what comes back with the logged answers."""
