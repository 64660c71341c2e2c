"""Names: case, versions, and what a URL may do to them."""

from typing import Any

import pytest
from conformance.bodies import OUTPUT0, body_with, ok_body, one
from conformance.checks import check_ok, check_refused, values
from conformance.points import point
from conformance.rest import Rest


@point("S64", "MUST", "OIP overview: all strings are case-sensitive; paths and models")
@pytest.mark.parametrize(
    "path", ["/V2", "/v2/Health/live", "/v2/Models/m", "/v2/models/M", "/v2/models/m/Ready"]
)
def test_paths_and_models_have_their_case(rest: Rest, path: str):
    check_refused(rest.get(path), 404)


@point("S65", "MUST", "OIP overview: all strings are case-sensitive; tensors and datatypes")
@pytest.mark.parametrize(
    "fields", [{"name": "input0"}, {"datatype": "fp32"}, {"datatype": "TYPE_FP32"}]
)
def test_tensors_and_datatypes_have_their_case(rest: Rest, fields: dict[str, Any]):
    check_refused(rest.infer("m", body_with(0, **fields)))


@point("S66", "MUST", "OIP overview: all strings are case-sensitive; keys, outputs, parameters")
def test_keys_and_parameters_have_their_case(rest: Rest):
    outputs = [{"name": "OUTPUT0", "parameters": {"Binary_Data": True}}]
    body = ok_body(outputs=outputs, ID="42", parameters={"Binary_Data_Output": True})
    response = rest.infer("m", body)
    assert values(response, "OUTPUT0") == OUTPUT0
    assert "id" not in response.json()
    check_refused(rest.infer("m", ok_body(outputs=[{"name": "output0"}])))


@point("S67", "SHOULD", "V2 REST, versions/v10: v and digits are the version of that number")
def test_v_and_digits_are_a_version(rest: Rest):
    assert check_ok(rest.infer("m/versions/v1", ok_body()))["model_version"] == "1"
    assert check_ok(rest.get("/v2/models/m/versions/v3/ready"))["ready"] is True
    assert check_ok(rest.get("/v2/models/m/versions/v3"))["versions"] == ["3"]


@point("S68", "MUST", "any other version token: 404 with the error object")
@pytest.mark.parametrize("token", ["9", "v9", "abc", "1.0", "V1", "vv1", "v", "0", "-1", "1 "])
def test_an_unknown_version_token_is_not_found(rest: Rest, token: str):
    path = f"m/versions/{token.replace(' ', '%20')}"
    check_refused(rest.get(f"/v2/models/{path}"), 404)
    check_refused(rest.get(f"/v2/models/{path}/ready"), 404)
    check_refused(rest.infer(path, ok_body()), 404)


@point("S69", "MUST", "a version of twenty digits: 400 or 404")
def test_a_version_beyond_64_bits_is_refused(rest: Rest):
    response = rest.infer("m/versions/99999999999999999999", ok_body())
    check_refused(response, 400 if response.status == 400 else 404)


@point("S70", "SHOULD", "metadata of one version lists that version alone")
def test_metadata_of_a_version_lists_it_alone(rest: Rest):
    assert check_ok(rest.get("/v2/models/m/versions/1"))["versions"] == ["1"]


@point("S71", "SHOULD", "one trailing slash is tolerated (OIP writes /v2/)")
@pytest.mark.parametrize(
    "path",
    ["/v2/", "/v2/health/live/", "/v2/health/ready/", "/v2/models/m/", "/v2/models/m/ready/"],
)
def test_a_trailing_slash_is_tolerated(rest: Rest, path: str):
    assert check_ok(rest.get(path)) == check_ok(rest.get(path.rstrip("/")))


@point("S72", "MUST", "a percent-encoded slash belongs to the name")
@pytest.mark.parametrize("path", ["m%2Fready", "m%2fversions%2F1", "%2Fm", "x%2Fm"])
def test_an_encoded_slash_separates_nothing(rest: Rest, path: str):
    check_refused(rest.get(f"/v2/models/{path}"), 404)


@point("S73", "SHOULD", "percent-encoding in versions and in the infer path")
def test_infer_paths_are_percent_decoded(rest: Rest):
    assert check_ok(rest.infer("%6d/versions/%31", ok_body()))["model_version"] == "1"


@point("S74", "SHOULD", "a query string is ignored")
@pytest.mark.parametrize("query", ["?", "?a=b", "?a=/v2/models/nope", "?format=binary"])
def test_a_query_is_ignored(rest: Rest, query: str):
    assert check_ok(rest.get(f"/v2/models/m{query}"))["name"] == "m"
    body = b'{"inputs":[{"name":"IN_INT8","shape":[1],"datatype":"INT8","data":[1]}]}'
    response = rest.request("POST", f"/v2/models/all/infer{query}", body)
    assert values(response, "OUT_INT8") == [1]


@point("S75", "MUST", "names of any characters stay well-formed JSON in errors")
@pytest.mark.parametrize("name", ["%22%5C", "%C3%A9", "%00", "%FF", "a%0D%0AX-Y:%20z", "%", "%zz"])
def test_odd_names_make_well_formed_errors(rest: Rest, name: str):
    response = rest.get(f"/v2/models/{name}")
    check_refused(response, 400 if response.status == 400 else 404)
    assert response.header("x-y") is None


@point("S76", "SHOULD", "V1's :predict is no part of this: 404 with the error object")
def test_v1_predict_is_not_found(rest: Rest):
    check_refused(rest.request("POST", "/v1/models/m:predict", b'{"instances":[1]}'), 404)


@point("S77", "SHOULD", "STRING and BYTES alone are aliases: other TRTIS names are refused")
@pytest.mark.parametrize("datatype", ["TYPE_STRING", "String", "bytes", ""])
def test_other_names_of_bytes_are_refused(rest: Rest, datatype: str):
    body = one("BYTES", ["a"])
    body["inputs"][0]["datatype"] = datatype
    check_refused(rest.infer("all", body))
