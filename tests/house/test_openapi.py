"""The OpenAPI document against the server: the same routes, and answers as it says."""

import http.client
import json
import re
from pathlib import Path

import jsonschema
import pytest
from server_thread import server_in_thread

from inferd.api.routes import HttpRoutes
from inferd.config.server import ServerConfig
from inferd.engine.engine import Engine
from inferd.wire.documents import openapi
from inferd.wire.v2.rest.codec import JsonRules

DOCUMENT = json.loads(openapi())
REPOSITORY = Path(__file__).parents[2] / "conformance/repos/v2"
VERBS = ("get", "post", "put", "delete", "patch")
OPERATIONS = {
    (verb.upper(), path): entry[verb]
    for path, entry in DOCUMENT["paths"].items()
    for verb in VERBS
    if verb in entry
}
QUESTION = {"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [2], "data": [1, 2.5]}]}


def table():
    rules = JsonRules(half_floats=True, non_finite="tokens", max_json_bytes=2**20)
    return HttpRoutes(Engine(), rules, not_ready_status=400).table


def test_each_route_is_in_the_document_and_the_reverse():
    assert sorted(OPERATIONS) == sorted((route.verb, route.path) for route in table())


def test_operations_belong_to_the_group_that_may_be_restricted():
    groups = {(route.verb, route.path): [route.api] for route in table()}
    assert {key: operation["tags"] for key, operation in OPERATIONS.items()} == groups


def test_each_operation_has_a_name_of_its_own_and_a_text():
    names = [operation["operationId"] for operation in OPERATIONS.values()]
    assert len(names) == len(set(names))
    assert all(operation["description"].endswith(".") for operation in OPERATIONS.values())


def test_the_names_in_a_path_are_its_parameters():
    for path, entry in DOCUMENT["paths"].items():
        named = [one["name"] for one in entry.get("parameters", [])]
        assert named == re.findall(r"{(\w+)}", path)


def test_what_is_referred_to_is_there_and_used():
    schemas = DOCUMENT["components"]["schemas"]
    referred = re.findall(r'"\$ref": ?"#/components/schemas/(\w+)"', json.dumps(DOCUMENT))
    assert set(referred) == set(schemas)


def validator(schema):
    whole = {**schema, "components": DOCUMENT["components"]}
    jsonschema.Draft202012Validator.check_schema(whole)
    return jsonschema.Draft202012Validator(whole)


@pytest.mark.parametrize("name", DOCUMENT["components"]["schemas"])
def test_each_schema_is_one(name):
    validator({"$ref": f"#/components/schemas/{name}"})


@pytest.fixture(scope="module")
def ask():
    """ask(verb, path, body) returns status, Content-Type and body of a real server's answer."""
    config = ServerConfig(http_port=0, allow_grpc=False, model_repository=(str(REPOSITORY),))
    with server_in_thread(config) as server:

        def send(verb, path, body):
            connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=30)
            connection.request(verb, path, None if body is None else json.dumps(body))
            answer = connection.getresponse()
            found = answer.status, answer.headers["content-type"], answer.read()
            connection.close()
            return found

        yield send


def filled(path, **names):
    given = {"model": "single", "version": "1", "repository": "r", "file": "health.proto", **names}
    return re.sub(r"{(\w+)}", lambda name: given.get(name[1], "none"), path)


@pytest.mark.parametrize(("verb", "path"), sorted(OPERATIONS))
@pytest.mark.parametrize("model", ["single", "none"])
def test_answers_are_as_the_document_says(ask, verb, path, model):
    operation = OPERATIONS[verb, path]
    takes = operation.get("requestBody", {"required": False})
    body = (QUESTION if "/infer" in path else {}) if takes["required"] else None
    status, content_type, text = ask(verb, filled(path, model=model), body)
    said = operation["responses"].get(str(status)) or operation["responses"]["default"]
    if "content" not in said:
        assert text == b""
        return
    schema = said["content"][content_type]["schema"]
    value = text.decode() if content_type.startswith("text/") else json.loads(text)
    validator(schema).validate(value)


def test_a_good_inference_is_answered_as_the_document_says(ask):
    status, _, text = ask("POST", "/v2/models/single/infer", QUESTION)
    assert status == 200
    validator({"$ref": "#/components/schemas/InferResponse"}).validate(json.loads(text))


def test_requests_the_conformance_suite_sends_fit_the_schema():
    request = validator({"$ref": "#/components/schemas/InferRequest"})
    request.validate({**QUESTION, "id": None, "parameters": {"p": 1.5, "sequence_id": "a"}})
    request.validate({**QUESTION, "outputs": [{"name": "O", "parameters": {"binary_data": True}}]})
    for wrong in ({}, {"inputs": {}}, {**QUESTION, "id": 1}, {**QUESTION, "parameters": {"p": []}}):
        with pytest.raises(jsonschema.ValidationError):
            request.validate(wrong)
