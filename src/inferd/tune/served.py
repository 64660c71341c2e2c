"""The program of a server under test: it serves what its arguments say until its input ends.

python -m inferd.tune.served MODEL_REPOSITORY

Its first line of output is the URL; whoever reads it loads models, with the settings to be tried.
"""

import sys


def main() -> int:
    """Serve, on ports that the system chooses, and only for this machine."""
    # Within main: the module is named on a command line, and errors of the import are its own.
    import inferd

    server = inferd.Server(
        model_repository=[sys.argv[1]],
        # Nothing is loaded before the client names it, with the configuration to be tried.
        model_control_mode="explicit",
        # No model is to be reached by others while it is tried.
        http_address="127.0.0.1",
        grpc_address="127.0.0.1",
        allow_metrics=False,
        log_info=False,
        log_warning=False,
    )
    with server:
        print(server.http_url, server.grpc_url, flush=True)  # noqa: T201  for the parent
        # The end of its parent ends its input, however the parent ends.
        sys.stdin.buffer.read()
    return 0


if __name__ == "__main__":
    sys.exit(main())
