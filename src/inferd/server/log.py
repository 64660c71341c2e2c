"""The log of a process of the server, by its options; a supervisor, too, may import this."""

from pathlib import Path

from inferd.config.options.log import LogSettings
from inferd.config.sections.logs import LogsSection
from inferd.errors import InvalidConfig
from inferd.observe.allowed import AllowedFolder
from inferd.observe.log import Log


def server_log(config: LogsSection) -> Log:
    """Return the log, to be opened; clients may place its file in --log-directory."""
    same = {name: getattr(config, f"log_{name}") for name in LogSettings.__slots__}
    file = Path(config.log_file) if config.log_file else None
    folder = Path(config.log_directory) if config.log_directory else None
    return Log(LogSettings(**same | {"file": file}), AllowedFolder(folder, "--log-directory"))


def opened_log(config: LogsSection) -> Log:
    """Return the log, opened. Raises InvalidConfig."""
    log = server_log(config)
    try:
        log.open()
    except OSError as error:
        msg = f"--log-file: cannot open {config.log_file}: {error.strerror}"
        raise InvalidConfig(msg) from error
    return log
