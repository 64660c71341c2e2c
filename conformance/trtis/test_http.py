"""The TensorRT Inference Server API over HTTP: health, status, inference, control.

The rules are those of its document, "Inference Server API" (18.11), here called the document, and
what its later versions up to 20.03 (1.13) do on the wire.
"""

import json
from typing import Any

import pytest
from conformance.old import (
    BODY,
    DIFFERENCES,
    GOOD,
    INPUTS,
    OUTPUTS,
    SUMS,
    OldRest,
    check_ok,
    check_refused,
    code,
    floats,
    from_text,
    header_of,
    kind,
    split,
    status_of,
    string,
)
from conformance.points import point
from conformance.rest import Rest
from google.protobuf import json_format

OLD = (
    'batch_size: 2 input { name: "INPUT0" byte_size: 16 } input { name: "INPUT1" byte_size: 16 } '
    'output { name: "OUTPUT1" byte_size: 16 } output { name: "OUTPUT0" byte_size: 16 }'
)
"""A header as 0.8 to 0.10 write it."""
CLASSES = f'batch_size: 1 {INPUTS} output {{ name: "OUTPUT0" cls {{ count: 3 }} }}'
RANKED = [(1, 6.0, "bee"), (3, 4.25, ""), (2, 2.0, "bird"), (0, 1.5, "ant")]
"""The classes of SUMS, greatest first."""


def classes_of(output: Any) -> list[list[tuple[int, float, str]]]:
    return [[(one.idx, one.value, one.label) for one in each.cls] for each in output.batch_classes]


# --- health ---


@point("T1", "MUST", "GET /api/health/live: 200 when requests can be processed (document, Health)")
def test_live(rest: Rest):
    assert rest.get("/api/health/live").status == 200


@point("T2", "MUST", "GET /api/health/ready: 200 when inference can be asked (document, Health)")
def test_ready(rest: Rest):
    assert rest.get("/api/health/ready").status == 200


@point("T3", "MUST", "health answers have an empty body (0.8)")
def test_health_has_no_body(rest: Rest):
    assert rest.get("/api/health/live").body == b""


@point("T4", "MUST", "strict readiness: a model that failed makes ready not 200 (document, Health)")
def test_not_ready(unready: Rest):
    assert unready.get("/api/health/ready").status == 400


@point(
    "T5", "MUST", "a no of the health check says SUCCESS in NV-Status: the question was answered"
)
def test_not_ready_is_a_success(unready: Rest):
    assert status_of(unready.get("/api/health/ready")).code == code("SUCCESS")


@point("T6", "MUST", "a server whose model failed is live all the same (document, Health)")
def test_not_ready_is_live(unready: Rest):
    assert unready.get("/api/health/live").status == 200


# --- NV-Status, methods, paths ---


@point(
    "T7", "MUST", "NV-Status is a RequestStatus in protobuf text with code and server_id (document)"
)
def test_nv_status(rest: Rest):
    status = status_of(rest.get("/api/health/live"))
    assert status.code == code("SUCCESS")
    assert status.server_id


@point("T8", "SHOULD", "request_id in NV-Status grows from request to request")
def test_request_ids_grow(rest: Rest):
    numbers = [status_of(rest.get("/api/health/live")).request_id for _ in range(3)]
    assert 0 < numbers[0] < numbers[1] < numbers[2]


@point("T9", "MUST", "a wrong method is 405 (0.8)")
def test_wrong_method(rest: Rest):
    assert rest.request("POST", "/api/health/live").status == 405


@point("T10", "MUST", "405 has no NV-Status (0.8)")
def test_wrong_method_has_no_status(rest: Rest):
    response = rest.request("GET", "/api/infer/m")
    assert (response.status, response.header("nv-status")) == (405, None)


@point("T11", "MUST", "an unknown path is 400, never 404 (0.8)")
def test_unknown_path(rest: Rest):
    assert rest.get("/api/nothing").status == 400


@point("T12", "SHOULD", "an unknown path says INVALID_ARG in NV-Status")
def test_unknown_path_says_why(rest: Rest):
    assert status_of(rest.get("/api/nothing")).code == code("INVALID_ARG")


@point("T13", "MUST", "another health than live and ready is 400 (1.0)")
def test_unknown_health(rest: Rest):
    assert rest.get("/api/health/well").status == 400


# --- status ---


@point("T14", "MUST", "GET /api/status: ServerStatus in text (document, Status)")
def test_status_in_text(rest: Rest):
    response = rest.get("/api/status/m")
    check_ok(response)
    assert list(from_text("ServerStatus", response.body.decode()).model_status) == ["m"]


@point("T15", "MUST", "?format=binary: ServerStatus as a message (document, Status)")
def test_status_in_binary(old: OldRest):
    assert list(old.status("m").model_status) == ["m"]


@point("T16", "SHOULD", "?format=json: ServerStatus in JSON with the fields' names (1.10)")
def test_status_in_json(rest: Rest):
    response = rest.get("/api/status/m?format=json")
    assert "model_status" in json.loads(response.body)
    assert json_format.Parse(response.body, kind("ServerStatus")()).ready_state == 2


@point("T17", "MUST", "the status of the server has all models (document, Status)")
def test_status_has_all_models(old: OldRest):
    assert {"m", "mymodel", "all", "seq"} <= set(old.status().model_status)


@point("T18", "MUST", "the status of an unknown model is 400 and INVALID_ARG (0.8)")
def test_status_of_an_unknown_model(rest: Rest):
    check_refused(rest.get("/api/status/none"), "INVALID_ARG")


@point("T19", "MUST", "ServerStatus has id, version and uptime_ns (0.8)")
def test_status_of_the_server(old: OldRest):
    told = old.status("m")
    assert told.id
    assert told.version
    assert told.uptime_ns > 0


@point("T20", "MUST", "ready_state is SERVER_READY when all have loaded (0.8)")
def test_state_of_the_server(old: OldRest):
    assert old.status("m").ready_state == 2


@point("T21", "MUST", "version_status has a MODEL_READY entry for each version that serves (0.8)")
def test_state_of_versions(old: OldRest):
    versions = old.status("m").model_status["m"].version_status
    assert {number: row.ready_state for number, row in versions.items()} == {1: 1, 3: 1}


@point("T22", "MUST", "the configuration has max_batch_size; clients need it (0.8)")
def test_config_max_batch_size(old: OldRest):
    assert old.status("m").model_status["m"].config.max_batch_size == 8


@point("T23", "MUST", "the configuration has inputs: name, data_type, dims without batch (0.8)")
def test_config_inputs(old: OldRest):
    config = old.status("m").model_status["m"].config
    rows = [(one.name, one.data_type, list(one.dims)) for one in config.input]
    assert rows == [("INPUT0", 11, [4]), ("INPUT1", 11, [4])]


@point("T24", "MUST", "the configuration has outputs: name, data_type, dims without batch (0.8)")
def test_config_outputs(old: OldRest):
    config = old.status("m").model_status["m"].config
    rows = [(one.name, one.data_type, list(one.dims)) for one in config.output]
    assert rows == [("OUTPUT0", 11, [4]), ("OUTPUT1", 11, [4])]


@point("T25", "MUST", "strings are TYPE_STRING, 13 (0.11)")
def test_config_strings(old: OldRest):
    assert old.status("text").model_status["text"].config.input[0].data_type == 13


@point("T26", "SHOULD", "the configuration names the file of labels (0.8)")
def test_config_labels(old: OldRest):
    assert old.status("m").model_status["m"].config.output[0].label_filename == "labels.txt"


@point("T27", "SHOULD", "the configuration in force has at least one instance group (0.8)")
def test_config_instance_group(old: OldRest):
    groups = old.status("m").model_status["m"].config.instance_group
    assert groups[0].count >= 1


@point("T136", "SHOULD", "preferred batch sizes that nobody gave are shown as 4 and 8 (0.8)")
def test_config_preferred_sizes(old: OldRest):
    batching = old.status("late").model_status["late"].config.dynamic_batching
    assert list(batching.preferred_batch_size) == [4, 8]


def version_after(old: OldRest, batch: int) -> tuple[Any, Any]:
    """Return the status of version 1 of model m before and after an inference."""
    before = old.status("m").model_status["m"].version_status[1]
    header = GOOD.replace("batch_size: 1", f"batch_size: {batch}").replace(
        "batch_byte_size: 16", ""
    )
    check_ok(old.infer("m/1", header, BODY * batch))
    return before, old.status("m").model_status["m"].version_status[1]


@point("T28", "MUST", "model_inference_count grows by the batch size (0.8)")
def test_inference_count(old: OldRest):
    before, after = version_after(old, 3)
    assert after.model_inference_count - before.model_inference_count == 3


@point("T29", "MUST", "model_execution_count grows by one for an execution (0.8)")
def test_execution_count(old: OldRest):
    before, after = version_after(old, 2)
    assert after.model_execution_count - before.model_execution_count == 1


@point("T30", "MUST", "infer_stats are by batch size: success, compute and queue are counted (0.8)")
def test_infer_stats(old: OldRest):
    before, after = version_after(old, 5)
    for part in ("success", "compute", "queue"):
        counts = [getattr(one.infer_stats[5], part).count for one in (before, after)]
        assert counts[1] - counts[0] == 1
    assert after.infer_stats[5].success.total_time_ns > 0


@point("T31", "MUST", "V2's statistics and the old status tell the same of one model")
def test_statistics_agree(old: OldRest, rest: Rest):
    _, after = version_after(old, 4)
    [row] = rest.get("/v2/models/m/versions/1/stats").json()["model_stats"]
    assert row["inference_count"] == after.model_inference_count
    assert row["execution_count"] == after.model_execution_count


# --- inference: raw outputs ---


@point(
    "T32", "MUST", "raw outputs stand in the body in the order of the header (document, Inference)"
)
def test_outputs_in_order(old: OldRest):
    response = old.infer("m", GOOD, BODY)
    check_ok(response)
    assert response.body.startswith(floats(*SUMS, *DIFFERENCES))


@point("T33", "MUST", "outputs come in the order in which they are asked for (document, Inference)")
def test_outputs_as_asked(old: OldRest):
    swapped = 'output { name: "OUTPUT1" } output { name: "OUTPUT0" }'
    response = old.infer("m", f"batch_size: 1 {INPUTS} {swapped}", BODY)
    assert response.body.startswith(floats(*DIFFERENCES, *SUMS))


@point("T34", "MUST", "the body ends with InferResponseHeader in text (document, Inference)")
def test_trailer_in_text(old: OldRest):
    _, tail = split(old.infer("m", GOOD, BODY))
    told = from_text("InferResponseHeader", tail.decode())
    assert (told.model_name, [one.name for one in told.output]) == ("m", ["OUTPUT0", "OUTPUT1"])


@point("T35", "MUST", "?format=binary: the body ends with it as a message (document, Inference)")
def test_trailer_in_binary(old: OldRest):
    _, tail = split(old.infer("m?format=binary", GOOD, BODY))
    told = kind("InferResponseHeader").FromString(tail)
    assert (told.model_name, [one.name for one in told.output]) == ("m", ["OUTPUT0", "OUTPUT1"])


@point("T36", "MUST", "NV-InferResponse says what the end of the body says (1.2)")
def test_nv_infer_response(old: OldRest):
    response = old.infer("m?format=binary", f"{GOOD} id: 5", BODY)
    _, tail = split(response)
    assert kind("InferResponseHeader").FromString(tail) == header_of(response)


@point("T37", "MUST", "the content type of an inference is application/octet-stream (1.0)")
def test_content_type(old: OldRest):
    response = old.infer("m", GOOD, BODY)
    assert response.header("content-type") == "application/octet-stream"


@point("T38", "MUST", "raw dims are without the batch dim (0.11)")
def test_dims(old: OldRest):
    told = header_of(old.infer("m", GOOD, BODY))
    assert [list(one.raw.dims) for one in told.output] == [[4], [4]]


@point("T39", "MUST", "batch_byte_size covers the whole batch (0.11)")
def test_batch_byte_size(old: OldRest):
    header = GOOD.replace("batch_size: 1", "batch_size: 2").replace("batch_byte_size: 16", "")
    told = header_of(old.infer("m", header, BODY * 2))
    assert [one.raw.batch_byte_size for one in told.output] == [32, 32]


@point("T40", "MUST", "batch_size in the answer is that of the request (0.8)")
def test_batch_size(old: OldRest):
    header = GOOD.replace("batch_size: 1", "batch_size: 2").replace("batch_byte_size: 16", "")
    assert header_of(old.infer("m", header, BODY * 2)).batch_size == 2


@point("T41", "MUST", "the id is echoed (1.0)")
def test_id(old: OldRest):
    assert header_of(old.infer("m", f"{GOOD} id: 18446744073709551615", BODY)).id == 2**64 - 1


@point("T42", "MUST", "without a version the numerically greatest answers (document, Inference)")
def test_latest_version(old: OldRest):
    assert header_of(old.infer("m", GOOD, BODY)).model_version == 3


@point("T43", "MUST", "/api/infer/MODEL/VERSION asks that version (document, Inference)")
def test_version(old: OldRest):
    assert header_of(old.infer("m/1", GOOD, BODY)).model_version == 1


@point("T44", "MUST", "outputs that are not asked for do not come (0.8)")
def test_no_more_outputs(old: OldRest):
    raw, _ = split(old.infer("m", f'batch_size: 1 {INPUTS} output {{ name: "OUTPUT1" }}', BODY))
    assert raw == [floats(*DIFFERENCES)]


@point("T45", "MUST", "the name of the header NV-InferRequest has no case")
def test_header_name(rest: Rest):
    response = rest.request("POST", "/api/infer/m", BODY, [("nv-inferREQUEST", GOOD)])
    check_ok(response)


@point("T46", "MUST", "dims that are fixed need not be given (0.11)")
def test_dims_are_optional(old: OldRest):
    header = f'batch_size: 1 input {{ name: "INPUT0" }} input {{ name: "INPUT1" }} {OUTPUTS}'
    check_ok(old.infer("m", header, BODY))


@point("T47", "MUST", "the body has the inputs in the order of the header (document, Inference)")
def test_inputs_in_order(old: OldRest):
    header = f'batch_size: 1 input {{ name: "INPUT1" }} input {{ name: "INPUT0" }} {OUTPUTS}'
    raw, _ = split(old.infer("m", header, BODY))
    assert raw == [floats(*SUMS), floats(*(-one for one in DIFFERENCES))]


@point("T48", "MUST", "an element of TYPE_STRING is its length in 4 bytes and itself (0.11)")
def test_strings(old: OldRest):
    body = string("grün".encode())
    header = (
        f'batch_size: 1 input {{ name: "INPUT0" batch_byte_size: {len(body)} }} '
        'output { name: "OUTPUT0" }'
    )
    assert split(old.infer("text", header, body))[0] == [body]


@point("T49", "MUST", "variable dims are those of the request (0.11)")
def test_variable_dims(old: OldRest):
    header = 'batch_size: 1 input { name: "INPUT0" dims: 3 } output { name: "OUTPUT0" }'
    response = old.infer("single", header, floats(1, 2, 3))
    assert list(header_of(response).output[0].raw.dims) == [3]


@point("T50", "SHOULD", "a header block of almost 64 KiB is taken")
def test_long_header(old: OldRest):
    check_ok(old.infer("m", f"{GOOD}{' ' * 64_000}", BODY))


@point(
    "T51",
    "MUST",
    "protobuf text may be written in all its ways: <>, lists, comments' marks, escapes",
)
def test_text_in_all_its_ways(old: OldRest):
    header = (
        'batch_size:0x1,input<name:\'INPUT0\'dims:[4]>;input:{name:"INP" "UT1"}'
        'output{name:"OUTPUT\\060"}'
    )
    raw, _ = split(old.infer("m", header, BODY))
    assert raw == [floats(*SUMS)]


@point("T52", "MUST", "V2 and the old API share a connection")
def test_one_connection(rest: Rest):
    new = json.dumps(
        {"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1], "data": [1.5]}]}
    ).encode()
    with rest.connect() as connection:
        for _ in range(2):
            headers = [("NV-InferRequest", GOOD)]
            connection.send(rest.message("POST", "/api/infer/m", BODY, headers))
            check_ok(connection.read_response())
            connection.send(rest.message("POST", "/v2/models/single/infer", new))
            assert connection.read_response().json()["outputs"][0]["data"] == [1.5]


@point("T53", "MUST", "correlation_id and flags make a sequence: START, on, END (1.0)")
def test_sequence(old: OldRest):
    header = 'batch_size: 1 input { name: "INPUT" } output { name: "OUTPUT" } correlation_id: 71'
    for flags in (1, 0, 2):
        check_ok(old.infer("seq", f"{header} flags: {flags}", b"\1\0\0\0"))


# --- classes ---


@point("T54", "MUST", "cls: the top count classes, greatest first (document, Inference)")
def test_classes(old: OldRest):
    [output] = header_of(old.infer("m", CLASSES, BODY)).output
    assert [one[0] for one in classes_of(output)[0]] == [1, 3, 2]


@point("T55", "MUST", "a class has index, value and label (0.8)")
def test_what_a_class_has(old: OldRest):
    [output] = header_of(old.infer("m", CLASSES, BODY)).output
    assert classes_of(output) == [RANKED[:3]]


@point("T56", "MUST", "an output as classes has no bytes in the body (0.8)")
def test_classes_have_no_bytes(old: OldRest):
    response = old.infer("m", CLASSES, BODY)
    assert from_text("InferResponseHeader", response.body.decode()) == header_of(response)


@point("T57", "MUST", "each item of a batch has its classes (0.8)")
def test_classes_of_a_batch(old: OldRest):
    header = CLASSES.replace("batch_size: 1", "batch_size: 2").replace("batch_byte_size: 16", "")
    body = floats(1, 2, 3, 4, 8, 0, 0, 0) + floats(*(0,) * 8)
    [output] = header_of(old.infer("m", header.replace("count: 3", "count: 1"), body)).output
    assert [each[0][:2] for each in classes_of(output)] == [(3, 4.0), (0, 8.0)]


@point("T58", "MUST", "a count above the number of classes gives all of them (0.8)")
def test_too_many_classes(old: OldRest):
    [output] = header_of(old.infer("m", CLASSES.replace("3", "900"), BODY)).output
    assert classes_of(output) == [RANKED]


@point("T59", "SHOULD", "a count of 0 gives the raw output (1.13)")
def test_no_classes(old: OldRest):
    assert split(old.infer("m", CLASSES.replace("count: 3", "count: 0"), BODY))[0] == [
        floats(*SUMS)
    ]


# --- clients from before 0.11 ---


@point("T60", "MUST", "byte_size in inputs and outputs, as the document has it, is understood")
def test_old_header(old: OldRest):
    response = old.infer("m", OLD, BODY * 2)
    check_ok(response)
    first, last = floats(*VALUES_OF_TWO[0]), floats(*VALUES_OF_TWO[1])
    assert response.body.startswith(last + first)


VALUES_OF_TWO = (
    tuple(
        a + b
        for a, b in zip((1, 2, 3, 4, 0.5, 4, -1, 0.25), (1, 2, 3, 4, 0.5, 4, -1, 0.25), strict=True)
    ),
    (0.0,) * 8,
)
"""OUTPUT0 and OUTPUT1 of a batch of two whose inputs are the same."""


@point("T61", "MUST", "a client of the document is answered without NV-InferResponse (0.8)")
def test_old_answer(old: OldRest):
    response = old.infer("m", OLD, BODY * 2)
    check_ok(response)
    assert response.header("nv-inferresponse") is None


@point("T62", "MUST", "it is told byte_size of one item, not dims (0.8)")
def test_old_raw(old: OldRest):
    tail = old.infer("m", OLD, BODY * 2).body[64:]
    assert tail.split().count(b"byte_size:") == 2
    assert b"dims" not in tail


@point("T63", "MUST", "an output's byte_size beside cls is the tensor's (document's example)")
def test_old_classes(old: OldRest):
    header = (
        'batch_size: 1 input { name: "INPUT0" byte_size: 16 } '
        'input { name: "INPUT1" byte_size: 16 } '
        'output { name: "OUTPUT0" byte_size: 16 cls { count: 1 } }'
    )
    told = from_text("InferResponseHeader", old.infer("m", header, BODY).body.decode())
    assert classes_of(told.output[0]) == [RANKED[:1]]


@point("T64", "MUST", "an output's byte_size that is not the tensor's is INVALID_ARG")
def test_old_output_size(old: OldRest):
    check_refused(
        old.infer("m", OLD.replace('"OUTPUT0" byte_size: 16', '"OUTPUT0" byte_size: 12'), BODY * 2),
        "INVALID_ARG",
    )


# --- errors ---


@point("T65", "MUST", "an inference that failed has an empty body (1.0)")
def test_error_has_no_body(old: OldRest):
    response = old.infer("m", GOOD, BODY[:-1])
    assert (response.status, response.body) == (400, b"")


@point("T66", "MUST", "its NV-InferResponse has the id, and nothing else (1.0)")
def test_error_has_the_id(old: OldRest):
    response = old.infer("m", f"{GOOD} id: 9", BODY[:-1])
    assert response.header("nv-inferresponse") == "id: 9"


INVALID = "INVALID_ARG"
TEXT = 'batch_size: 1 input { name: "INPUT0" batch_byte_size: 5 } output { name: "OUTPUT0" }'
REFUSALS = [
    ("T67", "no NV-InferRequest", "m", None, BODY, INVALID),
    ("T68", "a header that is no protobuf text", "m", "batch_size = 1", BODY, INVALID),
    ("T69", "a field that does not exist", "m", f"{GOOD} nothing: 1", BODY, INVALID),
    ("T70", "an unknown model (0.9)", "none", GOOD, BODY, "UNAVAILABLE"),
    ("T71", "an unknown version (0.9)", "m/2", GOOD, BODY, "UNAVAILABLE"),
    ("T72", "a version that is no number", "m/one", GOOD, BODY, INVALID),
    ("T73", "batch_size 0", "m", GOOD.replace("size: 1 ", "size: 0 ", 1), BODY, INVALID),
    (
        "T74",
        "a batch above max_batch_size",
        "m",
        GOOD.replace("size: 1 ", "size: 9 ", 1),
        BODY,
        INVALID,
    ),
    (
        "T75",
        "a batch of 2 for a model without batching",
        "single",
        'batch_size: 2 input { name: "INPUT0" dims: 1 } output { name: "OUTPUT0" }',
        BODY[:8],
        INVALID,
    ),
    (
        "T76",
        "too few inputs",
        "m",
        f'batch_size: 1 input {{ name: "INPUT0" }} {OUTPUTS}',
        BODY[:16],
        INVALID,
    ),
    ("T77", "an unknown input", "m", GOOD.replace("INPUT1", "OTHER"), BODY, INVALID),
    ("T78", "an unknown output", "m", GOOD.replace("OUTPUT1", "OTHER"), BODY, INVALID),
    ("T79", "an input twice", "m", GOOD.replace("INPUT1", "INPUT0"), BODY, INVALID),
    ("T80", "an output twice", "m", GOOD.replace("OUTPUT1", "OUTPUT0"), BODY, INVALID),
    ("T81", "wrong dims", "m", GOOD.replace("dims: 4", "dims: 2 dims: 2"), BODY, INVALID),
    (
        "T82",
        "variable dims that are not given",
        "single",
        'batch_size: 1 input { name: "INPUT0" } output { name: "OUTPUT0" }',
        BODY[:4],
        INVALID,
    ),
    (
        "T83",
        "a batch_byte_size that is not the tensor's",
        "m",
        GOOD.replace("16", "12"),
        BODY,
        INVALID,
    ),
    ("T84", "a body that is too short", "m", GOOD, BODY[:-1], INVALID),
    ("T85", "a body that is too long", "m", GOOD, BODY + b"1", INVALID),
    ("T86", "a string that is cut short", "text", TEXT, b"\xff\0\0\0a", INVALID),
    ("T87", "another number of strings", "text", TEXT.replace("5", "8"), b"\0" * 8, INVALID),
    (
        "T88",
        "classes of strings",
        "text",
        TEXT.replace("5", "4").replace('"OUTPUT0"', '"OUTPUT0" cls { count: 1 }'),
        b"\0" * 4,
        INVALID,
    ),
    (
        "T89",
        "an unknown region of shared memory (1.5)",
        "m",
        GOOD.replace("dims: 4 batch_byte_size: 16", 'shared_memory { name: "none" byte_size: 16 }'),
        BODY[16:],
        "NOT_FOUND",
    ),
    (
        "T90",
        "a sequence that has not begun (1.0)",
        "seq",
        'batch_size: 1 input { name: "INPUT" } output { name: "OUTPUT" } correlation_id: 4711',
        b"\0" * 4,
        INVALID,
    ),
    (
        "T91",
        "a sequence model asked without correlation_id (1.0)",
        "seq",
        'batch_size: 1 input { name: "INPUT" } output { name: "OUTPUT" } flags: 1',
        b"\0" * 4,
        INVALID,
    ),
    (
        "T92",
        "a batch of 2 for a sequence model (1.0)",
        "seq",
        'batch_size: 2 input { name: "INPUT" } output { name: "OUTPUT" } correlation_id: 7 flags:1',
        b"\0" * 8,
        INVALID,
    ),
    (
        "T93",
        "byte_size of the old API beside dims of the new",
        "m",
        GOOD.replace("dims: 4 ", "dims: 4 byte_size: 16 ", 1),
        BODY,
        INVALID,
    ),
]


@pytest.mark.parametrize(
    ("model", "header", "body", "reason"),
    [
        pytest.param(*what, id=number, marks=point(number, "MUST", f"{text}: 400, {what[-1]}"))
        for number, text, *what in REFUSALS
    ],
)
def test_a_refusal(old: OldRest, model: str, header: str | None, body: bytes, reason: str):
    if header is None:
        check_refused(old.rest.request("POST", f"/api/infer/{model}", body), reason)
    else:
        check_refused(old.infer(model, header, body), reason)


@point("T135", "SHOULD", "what HTTP itself forbids is 4xx, and INVALID_ARG in NV-Status")
def test_no_http(rest: Rest):
    with rest.connect() as connection:
        connection.send(b"POST /api/infer/m HTTP/1.1\r\nContent-Length: many\r\n\r\n")
        response = connection.read_response()
    assert 400 <= response.status < 500
    assert status_of(response).code == code("INVALID_ARG")


# --- control ---


@point("T94", "MUST", "load in another mode than explicit: UNAVAILABLE (1.9)")
def test_load_is_refused(rest: Rest):
    check_refused(rest.request("POST", "/api/modelcontrol/load/m"), "UNAVAILABLE")


@point("T95", "MUST", "POST /api/modelcontrol/load/MODEL and unload (1.5)")
def test_load_and_unload(explicit: Rest):
    for verb, name in (("load", None), ("unload", "UNAVAILABLE")):
        check_ok(explicit.request("POST", f"/api/modelcontrol/{verb}/m"))
        response = OldRest(explicit).infer("m", GOOD, BODY)
        if name:
            check_refused(response, name)
        else:
            check_ok(response)


@point("T96", "MUST", "loading an unknown model: INTERNAL (1.5)")
def test_load_of_an_unknown_model(explicit: Rest):
    check_refused(explicit.request("POST", "/api/modelcontrol/load/none"), "INTERNAL")


@point("T97", "MUST", "GET /api/repository/index: the names of all models (1.9)")
def test_index(rest: Rest):
    response = rest.get("/api/repository/index?format=binary")
    told = kind("ModelRepositoryIndex").FromString(response.body)
    assert {"m", "seq"} <= {one.name for one in told.models}


@point("T98", "MUST", "an object that cannot be opened is no region: INTERNAL (1.6)")
def test_region_that_is_not_there(rest: Rest):
    path = "/api/sharedmemorycontrol/register/r//no_such_object/0/16"
    check_refused(rest.request("POST", path), "INTERNAL")


@point("T99", "MUST", "unregistering an unknown region is a success (1.13)")
def test_unregister_nothing(rest: Rest):
    check_ok(rest.request("POST", "/api/sharedmemorycontrol/unregister/nothing"))


@point("T100", "SHOULD", "profiling is refused: UNSUPPORTED (0.8)")
def test_profile(rest: Rest):
    check_refused(rest.get("/api/profile?cmd=start"), "UNSUPPORTED")
