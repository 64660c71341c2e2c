"""Health over REST (V2 REST: Server Live, Server Ready, Model Ready)."""

from conformance.checks import REFUSED, check_error, check_ok
from conformance.points import point
from conformance.rest import Rest


@point(1, "MUST", "GET /v2/health/live: 200")
def test_a_running_server_is_live(rest: Rest):
    assert rest.get("/v2/health/live").status == 200


@point(2, "MUST", "GET /v2/health/live: JSON with live=true")
def test_the_live_answer_says_so_in_json(rest: Rest):
    response = rest.get("/v2/health/live")
    assert response.json()["live"] is True
    assert response.header("content-type") == "application/json"


@point(3, "MUST", "GET /v2/health/ready with all models loaded: 200, ready=true")
def test_a_server_with_all_models_loaded_is_ready(rest: Rest):
    assert check_ok(rest.get("/v2/health/ready"))["ready"] is True


@point(4, "MUST", "GET /v2/health/ready with a model that failed, strict readiness: not 2xx")
def test_a_server_with_a_failed_model_is_not_ready(unready: Rest):
    assert unready.get("/v2/health/ready").status >= 400


@point(5, "MUST", "GET /v2/models/m/ready: 200; name, ready=true")
def test_a_loaded_model_is_ready(rest: Rest):
    body = check_ok(rest.get("/v2/models/m/ready"))
    assert body["name"] == "m"
    assert body["ready"] is True


@point(6, "MUST", "GET /v2/models/m/versions/1/ready: 200")
def test_a_loaded_version_is_ready(rest: Rest):
    assert rest.get("/v2/models/m/versions/1/ready").status == 200


@point(7, "MUST", "GET /v2/models/nope/ready: 4xx")
def test_an_unknown_model_is_not_ready(rest: Rest):
    response = rest.get("/v2/models/nope/ready")
    assert response.status in REFUSED
    check_error(response)


@point(8, "MUST", "GET /v2/models/m/versions/9/ready: 4xx")
def test_an_unknown_version_is_not_ready(rest: Rest):
    response = rest.get("/v2/models/m/versions/9/ready")
    assert response.status in REFUSED
    check_error(response)
