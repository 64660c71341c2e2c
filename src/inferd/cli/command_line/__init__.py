"""The command line of `inferd serve`: its flags, and those of other servers in their place."""
