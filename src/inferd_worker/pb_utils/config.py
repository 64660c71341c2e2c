"""The configuration as a model sees it and, in auto_complete_config, changes it."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from .datatype import NUMBERS, NUMPY, config_name, name_of

TRITON_STRING_TO_NUMPY = {
    # bool is Triton's, and models compare it; np.bool_ is not equal.
    config_name(name): (bool if name == "BOOL" else dtype.type)
    for name, dtype in NUMPY.items()
    if name != "BF16"
}
"""Configuration datatype, such as TYPE_FP32, -> numpy type; TYPE_BF16 has none."""

_NUMPY_BY_NUMBER = {NUMBERS[name]: dtype.type for name, dtype in NUMPY.items() if name != "BF16"}


def triton_string_to_numpy(triton_type_string: str) -> Any:
    """Return the numpy type of a configuration's data_type. Raises KeyError."""
    return TRITON_STRING_TO_NUMPY[triton_type_string]


def triton_to_numpy_type(data_type: int) -> Any:
    """Return the numpy type of a DataType number. Raises KeyError."""
    return _NUMPY_BY_NUMBER[int(data_type)]


def numpy_to_triton_type(data_type: Any) -> int:
    """Return the DataType number of a numpy type; objects and bytes are strings."""
    return NUMBERS[name_of(np.dtype(data_type))]


def get_input_config_by_name(model_config: Any, name: str) -> Any:
    """Return an input's entry in the parsed configuration, or None."""
    return _named(model_config.get("input", ()), name)


def get_output_config_by_name(model_config: Any, name: str) -> Any:
    """Return an output's entry in the parsed configuration, or None."""
    return _named(model_config.get("output", ()), name)


def using_decoupled_model_transaction_policy(model_config: Any) -> bool:
    """Return whether the parsed configuration is that of a decoupled model."""
    return bool((model_config.get("model_transaction_policy") or {}).get("decoupled", False))


def _named(items: Any, name: str) -> Any:
    for item in items:
        if item["name"] == name:
            return item
    return None


class ModelConfig:
    """The configuration that auto_complete_config gets and returns, a dict or JSON."""

    def __init__(self, model_config: Any) -> None:
        self._config = json.loads(model_config) if isinstance(model_config, str) else model_config

    def as_dict(self) -> Any:
        """Return the configuration as parsed from JSON."""
        return self._config

    def set_max_batch_size(self, max_batch_size: int) -> None:
        """Set max_batch_size. Raises ValueError if the configuration has a larger one."""
        configured = self._config.get("max_batch_size", 0)
        if configured > max_batch_size:
            raise ValueError(
                f"the configuration has max_batch_size {configured}, the model takes at most "
                f"{max_batch_size}"
            )
        self._config["max_batch_size"] = max_batch_size

    def set_dynamic_batching(self) -> None:
        """Enable dynamic batching. Raises ValueError if another scheduler is configured."""
        for other in ("sequence_batching", "ensemble_scheduling"):
            if self._config.get(other):
                raise ValueError(
                    f"the configuration has {other}, so it can have no dynamic_batching"
                )
        # Not over one that is there: its settings are somebody's.
        self._config.setdefault("dynamic_batching", {})

    def add_input(self, input: dict[str, Any]) -> None:
        """Add an input: name, data_type, dims, and possibly optional. Raises ValueError."""
        self._add("input", input, {"name", "data_type", "dims", "optional"})

    def add_output(self, output: dict[str, Any]) -> None:
        """Add an output: name, data_type, dims. Raises ValueError."""
        self._add("output", output, {"name", "data_type", "dims"})

    def set_model_transaction_policy(self, transaction_policy: dict[str, bool]) -> None:
        """Set whether the model is decoupled.

        Raises ValueError for other keys, and if the configuration says something else.
        """
        if unknown := set(transaction_policy) - {"decoupled"}:
            raise ValueError(
                f"a transaction policy has the key 'decoupled' alone, got {sorted(unknown)}"
            )
        policy = self._config.setdefault("model_transaction_policy", {})
        if "decoupled" in transaction_policy:
            decoupled = transaction_policy["decoupled"]
            # JSON leaves nothing out of a message that was written: false was somebody's word.
            if policy.get("decoupled", decoupled) != decoupled:
                raise ValueError(
                    f"the configuration has decoupled {policy['decoupled']}, the model says "
                    f"{decoupled}"
                )
            policy["decoupled"] = decoupled

    def _add(self, kind: str, tensor: dict[str, Any], keys: set[str]) -> None:
        if unknown := set(tensor) - keys:
            raise ValueError(
                f"an {kind} has no {', '.join(sorted(unknown))}; it has {sorted(keys)}"
            )
        if missing := {"name", "data_type", "dims"} - set(tensor):
            raise ValueError(f"an {kind} needs {', '.join(sorted(missing))}")
        tensor = {**tensor, "dims": [int(dim) for dim in tensor["dims"]]}
        known = _named(self._config.get(kind, ()), tensor["name"])
        if known is None:
            self._config.setdefault(kind, []).append(tensor)
            return
        # config.pbtxt leaves the type out, and JSON then has the enum's zero value.
        if known.get("data_type", tensor["data_type"]) == "TYPE_INVALID":
            known["data_type"] = tensor["data_type"]
        for key in ("data_type", "dims"):
            had = known.get(key) or tensor[key]
            # JSON of protobuf writes int64 as texts.
            had = [int(dim) for dim in had] if key == "dims" else had
            if had != tensor[key]:
                raise ValueError(
                    f"{kind} '{tensor['name']}' has {key} {had} in the configuration, the model "
                    f"says {tensor[key]}"
                )
            known[key] = tensor[key]
        if tensor.get("optional"):
            known["optional"] = True
