"""inferd serve: reads the options and becomes the server."""

import os
import sys
from collections.abc import Sequence
from dataclasses import replace

from inferd.cli.command_line.flags import read_command_line
from inferd.cli.command_line.foreign import understand
from inferd.config.sources import read_settings
from inferd.config.workers import worker_count
from inferd.errors import InvalidConfig


def run(arguments: Sequence[str]) -> int:
    """Serve until a signal. Return 2 for wrong options, else as inferd.server.process.run does."""
    try:
        understood = understand(arguments, os.environ)
        line = read_command_line(understood.arguments)
        if line.wants_help:
            from inferd.cli.help import serve_help

            sys.stdout.write(serve_help())
            return 0
        settings = read_settings(line.flags, os.environ)
        if not settings.config.model_repository:
            raise InvalidConfig("name at least one model repository: inferd serve PATH")
        usual = understood.backend_config
        # First, so that what the user says overrides it.
        config = replace(settings.config, backend_config=(*usual, *settings.config.backend_config))
        count = worker_count(config)
    except InvalidConfig as error:
        sys.stderr.write(f"inferd serve: {error.message}\nSee inferd serve --help.\n")
        return 2
    warnings = (*understood.warnings, *line.warnings, *settings.warnings)
    from inferd.server.systemd.sockets import are_sockets_passed

    # One process, and sockets opened by systemd, also need somebody who holds them while it is
    # replaced.
    if count > 1 or are_sockets_passed(os.environ, os.getpid()):
        from inferd.server.supervisor import run as supervise

        return supervise(config, count, warnings)
    from inferd.server.process import run as serve

    return serve(config, warnings)
