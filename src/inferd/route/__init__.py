"""inferd route: many servers that act as one, behind HAProxy."""
