"""The state of the server in a word, and why it is what it is."""

from inferd.core.metadata import ServerState
from inferd.engine.engine import Engine

OVERLOADED_S = 5
"""How long a server counts as overloaded after it has refused a request."""

_MOST_NAMED = 3


def state_of(engine: Engine, failed: list[tuple[str, str, str]], refused: int) -> tuple[str, str]:
    """Return the state and the reason, "" where there is nothing to say.

    `failed` are the name, version and reason of versions that are not ready, `refused` is how many
    requests were turned away in the last OVERLOADED_S.
    """
    state = engine.readiness.state()
    if state is ServerState.EXITING:
        count = engine.capacity.request_count
        return "draining", f"it shuts down; {count} inferences are under way"
    if state is ServerState.FAILED_TO_INITIALIZE:
        return "not ready", "a model repository could not be opened; the log says why"
    if state is ServerState.INITIALIZING:
        return "starting", "models are loading"
    if not engine.readiness.is_ready():
        if engine.readiness.lacks_models():
            return "not ready", "there is no model"
        return "not ready", _why(failed)
    if refused:
        plural = "request was" if refused == 1 else "requests were"
        return "overloaded", f"{refused} {plural} refused in the last {OVERLOADED_S} s"
    return "ready", ""


def _why(failed: list[tuple[str, str, str]]) -> str:
    named = [f"'{name}' {version}".rstrip() for name, version, _ in failed[:_MOST_NAMED]]
    if not named:
        return "a model cannot run at the moment"
    more = f" and {len(failed) - len(named)} more" if len(failed) > len(named) else ""
    verb = "is" if len(failed) == 1 else "are"
    return f"{', '.join(named)}{more} {verb} not ready"
