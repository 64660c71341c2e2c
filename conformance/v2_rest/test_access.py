"""APIs that only answer those who send a header (Triton's restricted APIs)."""

import pytest
from conformance.checks import check_error, check_ok
from conformance.points import SECRET, point
from conformance.rest import Rest


@point(122, "SHOULD", "a restricted API answers only with its header, else 403")
@pytest.mark.parametrize("path", ["/v2", "/v2/models/m"])
def test_a_restricted_api_wants_its_header(restricted: Rest, path: str):
    name, value = SECRET
    for headers in ([], [(name, "wrong")], [(name, value + "x")], [("x-" + name, value)]):
        refusal = restricted.get(path, headers)
        assert refusal.status == 403
        check_error(refusal)
    assert check_ok(restricted.get(path, [(name, value)]))["name"]


@point(122, "SHOULD", "a restricted API answers only with its header, else 403")
def test_other_apis_stay_open(restricted: Rest):
    assert restricted.get("/v2/health/live").status == 200
