"""A server of the conformance suite's models."""

from pathlib import Path

from server_process import LIVE, ON_FREE_PORTS, Process

MODELS = Path(__file__).parents[2] / "conformance" / "repos" / "v2"


class Served:
    """Where a server listens."""

    def __init__(self, http_port, grpc_port, tls=""):
        self.http_url = f"http{tls}://127.0.0.1:{http_port}"
        self.grpc_url = f"grpc{tls}://127.0.0.1:{grpc_port}"

    def url(self, protocol):
        return self.grpc_url if protocol == "grpc" else self.http_url


def serve(*arguments, models=MODELS):
    """Yield a Served; the server ends with the generator."""
    process = Process(models, *ON_FREE_PORTS, *arguments)
    try:
        live = process.wait_for(LIVE.replace("http:", "https?:"))
        process.wait_for(r"\bready$")
        yield Served(live[1], live[2], "s" if "https:" in live[0] else "")
    finally:
        process.process.terminate()
        process.end()
        process.process.stdout.close()
