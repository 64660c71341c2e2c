"""The parameters of config.pbtxt that control whether and how a model runs in a worker process."""

from collections.abc import Mapping

from inferd.config.model import ModelConfig
from inferd.config.parameter import MAX_SHOWN, number
from inferd.errors import InvalidConfig

PROCESS_PARAMETER = "inferd_process"
"""Where a model runs: "server" or "worker"."""

PROCESS_SETTING = "process"
"""The setting of --backend-config for models without that parameter."""

TIMEOUT_PARAMETER = "inferd_execution_timeout_seconds"
"""The seconds an execution may take; a worker that takes longer is killed."""


def runs_in_server(
    config: ModelConfig, settings: Mapping[str, str], default: str = "worker"
) -> bool:
    """Return whether the model runs in the server's own process; `default` if nothing says so.

    Raises InvalidConfig.
    """
    what = f"parameter {PROCESS_PARAMETER}"
    where = config.parameters.get(PROCESS_PARAMETER)
    if where is None:
        what = f"setting {PROCESS_SETTING} of its backend"
        where = settings.get(PROCESS_SETTING, default)
    if where not in ("server", "worker"):
        msg = f"model '{config.name}': {what} is '{where}', expected server or worker"
        raise InvalidConfig(msg)
    return where == "server"


def timeout_s(config: ModelConfig) -> float:
    """Return how long an execution may take, 0 for no limit. Raises InvalidConfig."""
    return number(config, TIMEOUT_PARAMETER)


def setting(config: ModelConfig, settings: Mapping[str, str], name: str) -> float:
    """Return a numeric setting of the model's backend, 0 if it is not given.

    Raises InvalidConfig.
    """
    text = settings.get(name, "")
    try:
        found = float(text or 0)
    except ValueError:
        found = -1
    if not 0 <= found < 2**53:
        msg = (
            f"model '{config.name}': setting {name} of its backend is '{text[:MAX_SHOWN]}', "
            f"expected a number of 0 or more"
        )
        raise InvalidConfig(msg)
    return found
