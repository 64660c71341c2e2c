"""Records with more of their fields than their makers take."""


def with_fields(record, **fields):
    """Return `record` with these `fields` set."""
    for name, value in fields.items():
        setattr(record, name, value)
    return record
