"""Control: which models are loaded, and in what order that changes while the server runs."""
