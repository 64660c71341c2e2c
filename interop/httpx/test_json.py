"""Plain JSON as people send it: httpx's own encoding, nested or flat, over HTTP/1.1 and HTTP/2."""

import asyncio
import ssl

import httpx
import pytest

DIGIT = [0, 0, 5, 13, 9, 1, 0, 0, 0, 0, 13, 15, 10, 15, 5, 0, 0, 3, 15, 2, 0, 11, 8, 0, 0, 4, 12, 0,
         0, 8, 8, 0, 0, 5, 8, 0, 0, 9, 8, 0, 0, 4, 11, 0, 1, 12, 7, 0, 0, 2, 14, 5, 10, 12, 0, 0, 0,
         0, 6, 13, 10, 0, 0, 0]  # fmt: skip

WAYS = {
    "HTTP/1.1": ("two_ports", {}),
    "HTTP/1.1 on one port": ("one_port", {}),
    "HTTP/2 by prior knowledge": ("one_port", {"http1": False, "http2": True}),
    "HTTP/1.1 over TLS": ("tls", {}),
    "HTTP/2 over TLS": ("tls", {"http2": True}),
}


@pytest.fixture(params=WAYS)
def way(request, addresses):
    """The address and the options of each way to ask."""
    name, options = WAYS[request.param]
    verify = ssl.create_default_context(cafile=addresses[name].ca)
    return {"base_url": addresses[name].url, "verify": verify, "timeout": 30, **options}


@pytest.fixture
def client(way):
    """A client for each way to ask."""
    with httpx.Client(**way) as client:
        yield client


def tensor(data, shape, datatype="FP32", name="INPUT0"):
    return {"name": name, "shape": shape, "datatype": datatype, "data": data}


def infer(client, model, *inputs, **more):
    return client.post(f"/v2/models/{model}/infer", json={"inputs": inputs, **more})


def test_the_version_is_the_one_agreed_on(client, way):
    answer = client.get("/v2/health/ready")
    assert answer.http_version == ("HTTP/2" if way.get("http2") else "HTTP/1.1")
    assert answer.json()["ready"] is True


def test_the_digit_is_recognised(client):
    metadata = client.get("/v2/models/digits").json()
    [wanted] = metadata["inputs"]
    image = tensor(DIGIT, [1, *wanted["shape"][1:]], wanted["datatype"], wanted["name"])
    answer = infer(client, "digits", image)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()["model_name"] == "digits"


@pytest.mark.parametrize("data", [[[1, 2.5], [3, 4]], [1, 2.5, 3, 4]])
def test_numbers_may_be_nested_or_flat_whole_or_not(client, data):
    [output] = infer(client, "echo_FP32", tensor(data, [2, 2])).json()["outputs"]
    assert (output["shape"], output["data"]) == ([2, 2], [1.0, 2.5, 3.0, 4.0])


def test_text_comes_back_as_text(client):
    texts = ["", "a", "日本🚀", '"\\\n']
    [output] = infer(client, "echo_BYTES", tensor(texts, [2, 2], "BYTES")).json()["outputs"]
    assert output["data"] == texts


def test_extra_keys_and_nulls_that_frameworks_add_do_no_harm(client):
    body = {
        "id": None,
        "model_name": "echo_FP32",
        "model_version": None,
        "parameters": None,
        "inputs": [{**tensor([1], [1, 1]), "parameters": None, "tags": ["x"]}],
        "outputs": None,
    }
    answer = client.post("/v2/models/echo_FP32/infer", json=body).json()
    assert answer["outputs"][0]["data"] == [1.0]


def test_headers_query_and_content_types_of_generic_clients_do_no_harm(client):
    body = '{"inputs": [{"name": "INPUT0", "shape": [1, 1], "datatype": "FP32", "data": [1]}]}'
    for content_type in ("application/json; charset=utf-8", "text/plain", ""):
        headers = {"content-type": content_type, "accept": "*/*", "cookie": "a=b", "x-api-key": "k"}
        path = "/v2/models/echo_FP32/infer?trace=1"
        answer = client.post(path, content=body, headers=headers)
        assert answer.json()["outputs"][0]["data"] == [1.0]


def test_a_body_of_unknown_length_is_read(client):
    def pieces():
        yield b'{"inputs": [{"name": "INPUT0", "shape": [1, 100000], "datatype": "FP32", "data": ['
        yield b",".join(b"%d" % number for number in range(100_000))
        yield b"]}]}"

    answer = client.post("/v2/models/echo_FP32/infer", content=pieces())
    assert answer.json()["outputs"][0]["data"] == [float(number) for number in range(100_000)]


def test_compressed_answers_are_read(client):
    answer = infer(client, "echo_FP32", tensor([0.0] * 10_000, [1, 10_000]))
    assert answer.headers["content-encoding"] == "gzip"
    assert answer.json()["outputs"][0]["data"] == [0.0] * 10_000


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/v2/models/nobody/infer", {"inputs": []}, 404),
        ("POST", "/v2/models/echo_FP32/infer", {"inputs": []}, 400),
        ("POST", "/v2/models/echo_FP32/infer", [1], 400),
        ("POST", "/v2/models/echo_FP32/infer", {"inputs": [tensor(["a"], [1, 1])]}, 400),
        ("GET", "/v2/models/echo_FP32/infer", None, 405),
        ("GET", "/nowhere", None, 404),
    ],
)
def test_errors_say_what_is_wrong_in_json(client, method, path, body, status):
    answer = client.request(method, path, json=body)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()["error"]


async def test_many_requests_at_once_get_their_own_answers(way):
    async with httpx.AsyncClient(**way) as client:

        async def ask(number):
            body = {"id": str(number), "inputs": [tensor([number] * 9, [3, 3])]}
            answer = (await client.post("/v2/models/echo_FP32/infer", json=body)).json()
            return answer["id"], answer["outputs"][0]["data"]

        found = await asyncio.gather(*(ask(number) for number in range(200)))
    assert found == [(str(number), [float(number)] * 9) for number in range(200)]
