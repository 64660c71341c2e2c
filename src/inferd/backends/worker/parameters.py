"""The parameters of config.pbtxt that control whether and how a model runs in a worker process."""

from collections.abc import Mapping

from inferd.config.model import ModelConfig
from inferd.config.parameter import MAX_SHOWN, number
from inferd.config.parameter_names import EXECUTION_TIMEOUT, PROCESS
from inferd.core.interfaces import BackendContext
from inferd.errors import InvalidConfig

PROCESS_SETTING = "process"
"""The setting of --backend-config for models without that parameter."""

RETRY_PARAMETER = "inferd_retry_lost_requests"
"""If "true", requests run once more if their worker process has ended."""

MEMORY_PARAMETER = "inferd_memory_limit_bytes"
"""The most bytes of data that a worker process may have."""

_OFF = ("", "0", "false")


def runs_in_server(config: ModelConfig, context: BackendContext, default: str = "worker") -> bool:
    """Return whether the model runs in the server's own process; `default` if nothing says so.

    One whose configuration has a parameter that only a worker can keep runs in a worker, unless it
    says "server" itself. If workers are confined, whatever may be code runs in one:
    models that do by default, and those with operators of their own. Raises InvalidConfig.
    """
    what = f"parameter {PROCESS}"
    where = config.parameters.get(PROCESS)
    if where is None:
        what = f"setting {PROCESS_SETTING} of its backend"
        where = context.settings.get(PROCESS_SETTING, default)
        # The backend's setting is for all models; what one of them needs to be kept goes before it.
        if where == "server" and _parameter_for_worker(config):
            return False
    if where not in ("server", "worker"):
        msg = f"model '{config.name}': {what} is '{where}', expected server or worker"
        raise InvalidConfig(msg, ("parameters", PROCESS))
    may_be_code = default == "worker" or config.model_operations
    if context.confinement is not None and where == "server" and may_be_code:
        if PROCESS in config.parameters or PROCESS_SETTING in context.settings:
            msg = (
                f"model '{config.name}': {what} is server, but a model that may be code runs in a "
                f"worker process with --confine-workers=on"
            )
            raise InvalidConfig(msg, ("parameters", PROCESS))
        return False
    return where == "server"


def check_in_server(config: ModelConfig, what: str = "") -> None:
    """Raise InvalidConfig for a model in the server with parameters that need a worker process.

    `what` is something else of it that needs one, if anything does.
    """
    if name := _parameter_for_worker(config):
        what = what or f"parameter {name}"
    if what:
        msg = (
            f"model '{config.name}': its {what} needs a process of its own, but {PROCESS} is server"
        )
        raise InvalidConfig(msg, ("parameters", PROCESS))


def _parameter_for_worker(config: ModelConfig) -> str:
    """Return the name of a parameter of the model that only a worker can keep, "" without any."""
    for name in (EXECUTION_TIMEOUT, MEMORY_PARAMETER, RETRY_PARAMETER):
        if config.parameters.get(name, "").lower() not in _OFF:
            return name
    return ""


def timeout_s(config: ModelConfig) -> float:
    """Return how long an execution may take, 0 for no limit. Raises InvalidConfig."""
    return number(config, EXECUTION_TIMEOUT)


def memory_bytes(config: ModelConfig) -> int:
    """Return how many bytes of data a worker may have, 0 for no limit. Raises InvalidConfig."""
    return int(number(config, MEMORY_PARAMETER))


def setting(config: ModelConfig, settings: Mapping[str, str], name: str) -> float:
    """Return a numeric setting of the model's backend, 0 if it is not given.

    Raises InvalidConfig.
    """
    text = settings.get(name, "")
    try:
        found = float(text or 0)
    except ValueError:
        found = -1
    # Also false for NaN; above 2^53, a float does not hold each whole number.
    if not 0 <= found < 2**53:
        raise InvalidConfig(
            f"model '{config.name}': setting {name} of its backend is '{text[:MAX_SHOWN]}', "
            f"expected a number of 0 or more"
        )
    return found
