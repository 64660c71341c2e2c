"""Where the places come from."""
