#!/usr/bin/python3
"""Ends with 0 if the server in this container is live, with 1 if not: for HEALTHCHECK.

Kubernetes has probes of its own, and does not run this.
"""

import os
import sys
import urllib.error
import urllib.request

port = os.environ.get("INFERD_HTTP_PORT", "8000")
try:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/health/live", timeout=4) as answer:
        sys.exit(answer.status != 200)
except (urllib.error.URLError, OSError) as error:
    sys.stderr.write(f"the server does not answer: {error}\n")
    sys.exit(1)
