"""What a confined process may do: files by Landlock, all else by capabilities and a seccomp filter.

It runs before the program that is confined, on the server's own Python, and needs no package.
"""
