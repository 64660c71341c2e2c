"""The access log: in which forms its lines may be."""

ACCESS_LOG_FORMATS = ("text", "json", "common")

STANDARD_ERROR = "-"
"""In place of the name of a file."""
