"""Changes of settings, without others who have to agree."""


def change(owner, *args):
    """Change settings of a log or of a tracer."""
    with owner.changing(*args):
        pass
