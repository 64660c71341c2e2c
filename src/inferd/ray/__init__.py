"""Ray as placement: where replicas of `inferd serve` run, and how many; never a hop of a request.

A controller (a detached actor) decides, replicas (an actor each, with a server process beside it)
serve on their own sockets, and `inferd.ray.source` tells `inferd route` where these are. What is
decided is pure: see `inferd.ray.deployment`. Ray itself is imported only by what runs it, when it
does.
"""
