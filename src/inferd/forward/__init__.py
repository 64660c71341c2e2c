"""Forwarding: what reaches a process of the server that does not own it runs in the one that does.

The *origin* is the process that the client is connected to: it decodes the request, checks it,
counts it and answers. The *owner* runs it.
"""
