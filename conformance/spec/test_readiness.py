"""What a server says when it, or one of its models, is not ready."""

import pytest
from conformance.bodies import ok_body
from conformance.checks import check_error, check_ok, check_refused
from conformance.points import point
from conformance.rest import Rest


@point("S8", "MUST", "V2 REST, $ready_model_response: exactly name and ready")
@pytest.mark.parametrize("path", ["mymodel", "mymodel/versions/2"])
def test_the_model_ready_answer(rest: Rest, path: str):
    assert check_ok(rest.get(f"/v2/models/{path}/ready")) == {"name": "mymodel", "ready": True}


@point("S9", "MUST", "V2 REST, Model Ready: an unknown model is 404 with name, ready=false, error")
@pytest.mark.parametrize(("path", "name"), [("nope", "nope"), ("m/versions/9", "m")])
def test_the_not_ready_answer_of_an_unknown_model(rest: Rest, path: str, name: str):
    response = rest.get(f"/v2/models/{path}/ready")
    check_refused(response, 404)
    assert response.json()["name"] == name
    assert response.json()["ready"] is False


@point("S10", "SHOULD", "V2 REST, Model Ready: a model that failed to load is 400, ready=false")
def test_the_not_ready_answer_of_a_failed_model(unready: Rest):
    response = unready.get("/v2/models/broken/ready")
    check_refused(response, 400)
    assert response.json()["name"] == "broken"
    assert response.json()["ready"] is False


@point("S11", "MUST", "V2 REST, Server Ready: not ready is an error with live and ready false")
def test_the_not_ready_answer_of_the_server(unready: Rest):
    response = unready.get("/v2/health/ready")
    assert response.status in (400, 503)
    check_error(response)
    assert response.json()["ready"] is False
    assert response.json()["live"] is False


@point("S12", "MUST", "V2 REST, Server Live: live although a model failed, the others answer")
def test_a_failed_model_stops_nothing_else(unready: Rest):
    assert check_ok(unready.get("/v2/health/live"))["live"] is True
    assert check_ok(unready.get("/v2/models/single/ready"))["ready"] is True


@point("S13", "SHOULD", "metadata and inference on a model that failed to load: 404")
def test_a_failed_model_is_not_found(unready: Rest):
    check_refused(unready.get("/v2/models/broken"), 404, naming="broken")
    check_refused(unready.infer("broken", ok_body()), 404, naming="broken")
