"""What is said of a JSON value of another kind than expected, in words that clients compare."""

import re

import msgspec

_MISSING = re.compile(r"Object missing required field `(\w+)`.*")
_WRONG = re.compile(r"Expected `(\w+)(?: \| null)?`, got `[^`]*`(?: - at `\$(.*)`)?")
_MEMBER = re.compile(r"\.(\w+)")
_KINDS = {"array": "array", "str": "string", "int": "unsigned-integer", "bool": "boolean"}
"""The kinds by the words of msgspec; all integers of an inference request are unsigned."""


def not_a(kind: str) -> str:
    """Return the words for a value that is not of `kind`, such as "string" or "array"."""
    # Triton's word for numbers.
    return f"attempt to access JSON non-{kind} as {'double' if kind == 'number' else kind}"


def unreadable(name: str, kind: str) -> str:
    """Return the words for a member `name` whose value is not of `kind`."""
    return f"Unable to parse '{name}': {not_a(kind)}"


def why_unfit(error: msgspec.ValidationError) -> str:
    """Return the words for a value that `error` says to be of another kind; "" for none."""
    wrong = _WRONG.fullmatch(str(error))
    return not_a(_KINDS[wrong[1]]) if wrong is not None and wrong[1] in _KINDS else ""


def why_no_request(error: msgspec.ValidationError) -> str:
    """Return the words for JSON that is no inference request, as `error` tells; "" for none."""
    text = str(error)
    if missing := _MISSING.fullmatch(text):
        return _lacks(missing[1])
    wrong = _WRONG.fullmatch(text)
    if wrong is None:
        return ""
    expected, path = wrong[1], wrong[2] or ""
    names = _MEMBER.findall(path)
    if expected == "object":  # without its members: of the request, an input or an output
        if path == ".parameters":
            return "failed to get request params.: attempt to get members for non-object"
        return _lacks("name" if path.endswith("]") else "inputs") if "param" not in path else ""
    if expected not in _KINDS or not names:
        return ""
    if names[-1] == "classification":
        return f"Unable to set '{names[-1]}': {not_a(_KINDS[expected])}"
    return unreadable(names[-1], _KINDS[expected])


def _lacks(name: str) -> str:
    return f"Unable to parse '{name}': attempt to access non-existing object member '{name}'"
