"""The generate extension: flat objects in and out, and streams of events."""

import json
from typing import Any

import pytest
from conformance.bodies import OUTPUT0, OUTPUT1, ok_body
from conformance.checks import check_error, check_ok, check_refused
from conformance.points import point
from conformance.rest import Response, Rest

SAID = {"model_name": "gen", "model_version": "1", "text_output": "hi"}


def generate(rest: Rest, model: str, body: Any, *headers: tuple, stream: bool = False) -> Response:
    path = f"/v2/models/{model}/generate" + ("_stream" if stream else "")
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    return rest.request("POST", path, text, headers)


def repeated(*numbers: int, **more: Any) -> dict[str, Any]:
    return {"IN": list(numbers), "DELAY": [0] * len(numbers), "WAIT": 0, **more}


def events(response: Response) -> list[Any]:
    assert response.status == 200, response
    assert response.header("content-type") == "text/event-stream; charset=utf-8"
    *found, rest = response.body.decode().split("\n\n")
    assert rest == "" and all(event.startswith("data: ") for event in found), response.body
    return [json.loads(event[6:]) for event in found]


@point(119, "SHOULD", 'generate {"text_input":"hi"}: text_output is a scalar')
@pytest.mark.parametrize("model", ["gen", "gen/versions/1"])
@pytest.mark.parametrize("value", ["hi", ["hi"], [["hi"]]])
def test_a_text_is_answered_by_a_text(rest: Rest, model: str, value: Any):
    assert check_ok(generate(rest, model, {"text_input": value})) == SAID


@point(120, "SHOULD", "generate_stream with three answers: three data: events")
def test_each_answer_is_an_event(rest: Rest):
    found = events(generate(rest, "repeat", repeated(7, 8, 9), stream=True))
    model = {"model_name": "repeat", "model_version": "1"}
    assert found == [{"IDX": i, "OUT": n, **model} for i, n in enumerate((7, 8, 9))]


@point("S211", "SHOULD", "generate: the keys come in alphabetical order, the id if it was given")
def test_keys_come_in_alphabetical_order(rest: Rest):
    response = generate(rest, "gen", {"text_input": "hi", "id": "77"})
    assert list(json.loads(response.body).items()) == [("id", "77"), *SAID.items()]


@point("S212", "SHOULD", "generate: other members, and those of parameters, are parameters: 200")
@pytest.mark.parametrize(
    "body",
    [
        {"text_input": "hi", "n": 1, "t": 0.5, "s": "x", "b": True},
        {"text_input": "hi", "parameters": {"n": 1}},
        {"parameters": {"text_input": "hi"}},
    ],
)
def test_other_members_are_parameters(rest: Rest, body: dict):
    assert check_ok(generate(rest, "gen", body)) == SAID


@point("S213", "SHOULD", "generate: a parameter that is null, an object or an array: 400")
@pytest.mark.parametrize("value", [None, {}, [1]])
def test_a_parameter_is_a_string_number_or_boolean(rest: Rest, value: Any):
    check_refused(generate(rest, "gen", {"text_input": "hi", "x": value}), naming="x")


@point("S214", "SHOULD", "generate: the elements decide the shape, larger outputs are flat arrays")
def test_the_shape_follows_from_the_elements(rest: Rest):
    body = {"INPUT0": [[1, 2], [3, 4]], "INPUT1": [1, 1, 1, 1]}
    found = check_ok(generate(rest, "m", body))
    assert (found["OUTPUT0"], found["OUTPUT1"]) == (OUTPUT0, OUTPUT1)


@point("S215", "SHOULD", "generate: elements that do not fill the shape: 400")
@pytest.mark.parametrize("value", [["a", "b"], []])
def test_elements_that_do_not_fit_are_refused(rest: Rest, value: list):
    check_refused(generate(rest, "gen", {"text_input": value}), naming="text_input")


@point("S216", "SHOULD", "generate: malformed bodies and values of another type: 400")
@pytest.mark.parametrize("body", [[], "text", {"text_input": 1}, {}, {"parameters": 1}])
@pytest.mark.parametrize("stream", [False, True])
def test_other_bodies_are_refused(rest: Rest, body: Any, *, stream: bool):
    check_refused(generate(rest, "gen", body, stream=stream))


@point("S235", "SHOULD", "generate: a member given twice: 400")
@pytest.mark.parametrize(
    "body", [b'{"text_input":"a","text_input":"b"}', b'{"text_input":"a","n":1,"n":1}']
)
@pytest.mark.parametrize("stream", [False, True])
def test_members_given_twice_are_refused(rest: Rest, body: bytes, *, stream: bool):
    check_refused(generate(rest, "gen", body, stream=stream))


@point("S217", "SHOULD", "generate: an unknown model or version: 404")
@pytest.mark.parametrize("model", ["nope", "gen/versions/9"])
@pytest.mark.parametrize("stream", [False, True])
def test_unknown_models_are_not_found(rest: Rest, model: str, *, stream: bool):
    check_refused(generate(rest, model, {"text_input": "hi"}, stream=stream), 404)


@point(
    "S218", "SHOULD", "generate: a model that gives another number of answers than one: an error"
)
@pytest.mark.parametrize("numbers", [(), (1, 2)])
def test_generate_takes_one_answer(rest: Rest, numbers: tuple):
    response = generate(rest, "repeat", repeated(*numbers))
    assert response.status >= 400
    check_error(response)


@point("S219", "SHOULD", "generate: a decoupled model that answers once: 200")
def test_a_decoupled_model_may_answer_once(rest: Rest):
    assert check_ok(generate(rest, "repeat", repeated(7)))["OUT"] == 7


@point("S220", "SHOULD", "generate_stream: no answer: 200 without events")
def test_no_answer_is_no_event(rest: Rest):
    assert events(generate(rest, "repeat", repeated(), stream=True)) == []


@point("S221", "SHOULD", "generate: a body that is not in the coding it names: 400")
def test_a_body_that_is_not_in_its_coding_is_refused(rest: Rest):
    coding = ("Content-Encoding", "gzip")
    check_refused(generate(rest, "gen", {"text_input": "hi"}, coding))


@point("S222", "SHOULD", "generate with an array of inputs: an inference request, answered as one")
@pytest.mark.parametrize("stream", [False, True])
def test_an_inference_request_is_answered_as_one(rest: Rest, *, stream: bool):
    response = generate(rest, "m", ok_body(), stream=stream)
    body = events(response)[0] if stream else check_ok(response)
    assert [tensor["data"] for tensor in body["outputs"]] == [OUTPUT0, OUTPUT1]


@point("S223", "SHOULD", "infer on a decoupled model: 501")
def test_infer_cannot_carry_a_decoupled_model(rest: Rest):
    tensors = {"IN": ("INT32", [1]), "DELAY": ("UINT32", [0]), "WAIT": ("UINT32", [0])}
    inputs = [
        {"name": name, "datatype": datatype, "shape": [1], "data": data}
        for name, (datatype, data) in tensors.items()
    ]
    check_refused(rest.infer("repeat", {"inputs": inputs}), 501)
