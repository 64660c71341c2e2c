"""The program of a server under test: it serves what its arguments say until its input ends.

python -m inferd.tune.served MODEL_REPOSITORY

Its first line of output is the URL; whoever reads it loads models, with the settings to be tried.
"""

import sys


def main() -> int:
    """Serve, on ports that the system chooses, and only for this machine."""
    import inferd

    server = inferd.Server(
        model_repository=[sys.argv[1]],
        model_control_mode="explicit",
        http_address="127.0.0.1",
        grpc_address="127.0.0.1",
        allow_metrics=False,
        log_info=False,
        log_warning=False,
    )
    with server:
        print(server.http_url, server.grpc_url, flush=True)  # noqa: T201  for the parent
        sys.stdin.buffer.read()
    return 0


if __name__ == "__main__":
    sys.exit(main())
