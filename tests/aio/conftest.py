"""Servers on the test's own loop: see tests/support/http_site.py."""

from http_site import (  # noqa: F401  these are fixtures, and the hook that runs coroutines
    add_model,
    binary,
    certificate,
    identity,
    infer,
    models,
    post,
    pytest_pyfunc_call,
    scripted,
    serving,
    tls_context,
)
