"""What a test asserts of an answer again and again: a refusal, an output, its values."""

import math
from typing import Any

from conformance.rest import Response

REFUSED = range(400, 500)


def check_error(response: Response) -> str:
    """Assert that a failed answer has the protocol's error object, and return its text."""
    content_type = response.header("content-type")
    assert content_type == "application/json", f"an error's Content-Type is {content_type!r}"
    body = response.json()
    assert isinstance(body, dict), f"an error's body is {body!r}"
    text = body.get("error")
    assert isinstance(text, str) and text, f"an error's body is {body!r}"
    return text


def check_refused(response: Response, status: int = 400, naming: str = "") -> str:
    """Assert an error with `status` whose text has `naming` in it; return the text."""
    assert response.status == status, f"expected {status}, got {describe(response)}"
    text = check_error(response)
    assert naming in text, f"the error does not name {naming!r}: {text}"
    return text


def check_ok(response: Response) -> dict[str, Any]:
    """Assert 200 and return the JSON part of the body."""
    assert response.status == 200, f"expected 200, got {describe(response)}"
    return response.split()[0]


def describe(response: Response) -> str:
    """Return status and the start of the body, for a failure's message."""
    return f"{response.status} {response.body[:300]!r}"


def output(response: Response, name: str) -> dict[str, Any]:
    """Assert 200 and one output called `name`; return it."""
    body = check_ok(response)
    found = [one for one in body["outputs"] if one["name"] == name]
    assert len(found) == 1, f"expected one output {name} in {body}"
    one: dict[str, Any] = found[0]
    return one


def values(response: Response, name: str) -> list[Any]:
    """Return the JSON data of an output, flat."""
    return flat(output(response, name)["data"])


def flat(data: Any) -> list[Any]:
    """Return nested lists as one."""
    if not isinstance(data, list):
        return [data]
    return [element for part in data for element in flat(part)]


def same(left: list[Any], right: list[Any]) -> bool:
    """Compare element by element, types included (1, 1.0 and true differ), NaN equal to NaN."""
    return len(left) == len(right) and all(
        type(a) is type(b)
        and (a == b or (isinstance(a, float) and math.isnan(a) and math.isnan(b)))
        for a, b in zip(left, right, strict=True)
    )
