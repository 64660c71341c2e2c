"""The settings of the logging extension by plain rules."""

from typing import Any

from conformance.reference.models import LOG, Refused

FIELDS = {bool: "bool_param", int: "uint32_param", str: "string_param"}
"""Type -> the field of a gRPC setting's value that carries it."""


def change_log(settings: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Change all settings `wanted` names, or raise Refused and change none."""
    named = {name: value for name, value in wanted.items() if name in LOG and value is not None}
    for name, value in named.items():
        if type(value) is not type(LOG[name]) or (name == "log_verbose_level" and value < 0):
            msg = f"{name} is {value!r}"
            raise Refused(msg)
        if name == "log_file" and value != settings["log_file"]:
            msg = f"{name} is the operator's to choose"
            raise Refused(msg)
    settings |= named
