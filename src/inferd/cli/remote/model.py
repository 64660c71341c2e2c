"""What the configuration of a model on a server says, where a server tells it."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from inferd.client import Client


def is_batched_model(client: "Client", model: str, version: str) -> bool:
    """Return whether the first dim of a model's inputs is a batch, as its configuration says."""
    return int(_config(client, model, version).get("max_batch_size", 0)) > 0


def is_decoupled_model(client: "Client", model: str, version: str) -> bool:
    """Return whether a model gives any number of answers, as its configuration says."""
    policy = _config(client, model, version).get("model_transaction_policy") or {}
    return bool(policy.get("decoupled"))


def _config(client: "Client", model: str, version: str) -> dict[str, Any]:
    """Return the configuration; of a server without this extension an empty one."""
    from inferd.client.errors import BadAnswer, ServerError

    try:
        return client.config(model, version)
    except (BadAnswer, ServerError):
        return {}
