"""Loads, unloads, registrations and requests at the same moment: some are refused, none fails."""

import json
import threading

import grpc
import pytest
from target import SERVICE, field_of, grpc_request

ROUNDS = 40
BODY = json.dumps(
    {"inputs": [{"name": "IN", "datatype": "FP32", "shape": [1, 1], "data": [1]}]}
).encode()


def at_once(*works):
    """Run each of `works` in a thread, and raise what one of them has raised."""
    failures = []
    barrier = threading.Barrier(len(works))

    def run(work):
        barrier.wait()
        try:
            for number in range(ROUNDS):
                work(number)
        except BaseException as error:  # noqa: BLE001  told by the thread of the test
            failures.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for failure in failures:
        raise failure


@pytest.mark.slow
def test_sagemakers_loads_unloads_and_calls_do_not_trip_over_each_other(another_target):
    target = another_target("--sagemaker-multi-model=true")
    url = str(target.repository / "echo")

    def ask(method, path, body=None, allowed=()):
        status, answer = target.ask(method, path, body, port="SageMaker")
        assert status in (200, *allowed), (method, path, status, answer)

    loads = json.dumps({"model_name": "one", "url": url})
    at_once(
        lambda _: ask("POST", "/models", loads, (409,)),
        lambda _: ask("POST", "/models", loads, (409,)),
        lambda _: ask("DELETE", "/models/one", None, (404,)),
        lambda _: ask("POST", "/models/one/invoke", BODY, (404, 503)),
        lambda _: ask("GET", "/models"),
        lambda _: ask("GET", "/models/one", None, (404,)),
    )
    ask("DELETE", "/models/one", None, (404,))
    ask("POST", "/models", loads)
    ask("POST", "/models/one/invoke", BODY)
    target.check_sound()


@pytest.mark.slow
def test_a_model_that_comes_and_goes_answers_or_is_not_there(target):
    def change(verb):
        status, answer = target.ask("POST", f"/v2/repository/models/text/{verb}", b"{}")
        assert status == 200, answer

    tensor = {"name": "IN", "datatype": "BYTES", "shape": [1], "data": ["a"]}
    body = json.dumps({"inputs": [tensor]})
    given = field_of(1, b"IN") + field_of(2, b"BYTES") + field_of(3, b"\1")
    message = field_of(1, b"text") + field_of(5, given) + field_of(7, b"\1\0\0\0a")
    gone = (grpc.StatusCode.OK, grpc.StatusCode.NOT_FOUND, grpc.StatusCode.UNAVAILABLE)

    def infer(_):
        status, answer = target.ask("POST", "/v2/models/text/infer", body)
        assert status in (200, 404, 503), answer
        status, answer = target.ask("POST", "/api/infer/text", b"\1\0\0\0a", OLD)
        assert status in (200, 400), answer
        code, details = target.call(SERVICE + "ModelInfer", message)
        assert code in gone, details

    def look(_):
        for path in ("", "/config", "/stats", "/ready", "/versions/1"):
            status, answer = target.ask("GET", f"/v2/models/text{path}")
            assert status in (200, 400, 404, 503), answer

    at_once(lambda _: change("load"), lambda _: change("unload"), infer, infer, look)
    change("load")
    assert target.ask("POST", "/v2/models/text/infer", body)[0] == 200


OLD = {"NV-InferRequest": 'batch_size: 1 input { name: "IN" dims: [ 1 ] } output { name: "OUT" }'}


@pytest.mark.slow
def test_a_region_that_comes_goes_and_shrinks_costs_its_own_requests_alone(target, shared):
    memory = shared(1 << 16)
    path = "/v2/systemsharedmemory/region/race"
    register = json.dumps({"key": memory.key, "offset": 0, "byte_size": 1 << 16})
    place = {"shared_memory_region": "race", "shared_memory_byte_size": 1 << 15}
    tensor = {"name": "IN", "datatype": "FP32", "shape": [1, 1 << 13]}
    there = {"name": "OUT", "parameters": place | {"shared_memory_offset": 1 << 15}}
    body = json.dumps({"inputs": [tensor | {"parameters": place}], "outputs": [there]})
    given = b"".join(
        field_of(4, field_of(1, name.encode()) + field_of(2, value))
        for name, value in (
            ("shared_memory_region", field_of(3, b"race")),
            ("shared_memory_byte_size", field_of(2, 1 << 15)),
        )
    )
    message = grpc_request(b"\1\x80\x40", None, of_input=given)
    gone = (grpc.StatusCode.OK, grpc.StatusCode.NOT_FOUND, grpc.StatusCode.INVALID_ARGUMENT)

    def infer(_):
        status, answer = target.ask("POST", "/v2/models/echo/infer", body)
        assert status in (200, 400, 404), answer
        code, details = target.call(SERVICE + "ModelInfer", message)
        assert code in gone, details

    def come(_):
        assert target.ask("POST", f"{path}/register", register)[0] in (200, 400)

    def go(_):
        assert target.ask("POST", f"{path}/unregister")[0] == 200

    def shrink(number):
        memory.resize((1 << 16) if number % 2 else 4096)

    before = target.descriptors()
    at_once(come, go, shrink, infer, infer)
    go(0)
    assert target.descriptors() <= before + 4
    assert target.ask("GET", "/v2/systemsharedmemory/status")[1] == b"[]"
