"""The settings of the logging and trace extensions by plain rules."""

from typing import Any

from conformance.reference.models import LOG, TRACE, Refused, Server

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


def trace_settings(
    server: Server, model: str, wanted: dict[str, list[str]] | None = None
) -> dict[str, list[str]]:
    """Return a model's trace settings, "" for those of all, after changing what `wanted` names."""
    if model and model not in server.models:
        msg = f"there is no model '{model}'"
        raise Refused(msg)
    named = {name: texts for name, texts in (wanted or {}).items() if name in TRACE}
    for name, texts in named.items():
        if len(texts) > 1 and (name != "trace_level" or "OFF" in texts):
            msg = f"{name} is {texts}"
            raise Refused(msg)
        if name in ("trace_file", "trace_mode") and texts != TRACE[name]:
            msg = f"{name} is the operator's to choose"
            raise Refused(msg, "unsupported")
    given = server.trace.get(model, {}) | named
    server.trace[model] = {name: texts for name, texts in given.items() if texts}
    return TRACE | server.trace.get("", {}) | server.trace.get(model, {})


def trace_document(wanted: Any) -> dict[str, list[str]]:
    """Return the settings of a JSON document as lists of texts, none for null."""
    if not isinstance(wanted, dict):
        msg = "the settings are no object"
        raise Refused(msg)
    found = {}
    for name in wanted.keys() & TRACE.keys():
        value = wanted[name]
        if value is not None and not isinstance(value, list if name == "trace_level" else str):
            msg = f"{name} is {value!r}"
            raise Refused(msg)
        found[name] = [value] if isinstance(value, str) else value or []
    return found
