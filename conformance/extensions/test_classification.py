"""The classification extension, over REST and gRPC."""

import pytest
from conformance.bodies import ok_body, one, prefixed
from conformance.checks import check_ok, check_refused, output
from conformance.points import point
from conformance.rest import Rest
from conformance.rpc import Rpc, one_typed, raw_ok, set_parameters
from tritonclient.grpc import service_pb2 as pb

GREATEST = ["5.000000:3", "4.000000:2:bird"]


def wanted(name: str, count: int, **parameters: object) -> list[dict]:
    return [{"name": name, "parameters": {"classification": count, **parameters}}]


def with_classes(request: pb.ModelInferRequest, name: str, count: int) -> pb.ModelInferRequest:
    set_parameters(request.outputs.add(name=name), classification=("int64_param", count))
    return request


@point(100, "SHOULD", 'classification 2: BYTES [1,2], "value:index" and the label if there is one')
def test_the_greatest_come_first(rest: Rest):
    found = output(rest.infer("m", ok_body(outputs=wanted("OUTPUT0", 2))), "OUTPUT0")
    assert (found["datatype"], found["shape"], found["data"]) == ("BYTES", [1, 2], GREATEST)


@point(100, "SHOULD", 'classification 2: BYTES [1,2], "value:index" and the label if there is one')
def test_classes_may_be_binary(rest: Rest):
    response = rest.infer("m", ok_body(outputs=wanted("OUTPUT0", 2, binary_data=True)))
    _, blobs = response.split()
    assert blobs == {"OUTPUT0": prefixed(*(text.encode() for text in GREATEST))}


@point(100, "SHOULD", 'classification 2: BYTES [1,2], "value:index" and the label if there is one')
def test_the_greatest_come_first_over_grpc(rpc: Rpc):
    response = rpc.infer(with_classes(raw_ok(), "OUTPUT0", 2))
    [tensor] = response.outputs
    assert (tensor.datatype, list(tensor.shape)) == ("BYTES", [1, 2])
    assert list(response.raw_output_contents) == [prefixed(*(one.encode() for one in GREATEST))]


@point(101, "SHOULD", "classification of a BYTES output: 400, and the server is alive")
def test_strings_have_no_classes(rest: Rest):
    body = one("BYTES", ["a", "b"], outputs=wanted("OUT_BYTES", 1))
    check_refused(rest.infer("all", body), naming="OUT_BYTES")
    check_ok(rest.get("/v2/health/live"))


@point(101, "SHOULD", "classification of a BYTES output: 400, and the server is alive")
def test_strings_have_no_classes_over_grpc(rpc: Rpc):
    request = with_classes(one_typed("BYTES", [b"a", b"b"]), "OUT_BYTES", 1)
    rpc.check_refused(request, naming="OUT_BYTES")
    assert rpc.call("ServerLive", pb.ServerLiveRequest()).live


@point("S201", "SHOULD", "classification 0 over REST: the plain tensor")
def test_no_classes_are_the_plain_tensor(rest: Rest):
    found = output(rest.infer("m", ok_body(outputs=wanted("OUTPUT0", 0))), "OUTPUT0")
    assert found["datatype"] == "FP32"


@point("S202", "SHOULD", "equal values by index, integers plain, no more classes than elements")
def test_equal_values_come_by_index(rest: Rest):
    body = one("INT32", [5, 9, 9], outputs=wanted("OUT_INT32", 9))
    found = output(rest.infer("all", body), "OUT_INT32")
    assert (found["shape"], found["data"]) == ([3], ["9:1", "9:2", "5:0"])


@point("S203", "SHOULD", "classification that is no count: refused")
@pytest.mark.parametrize("count", [-1, "1", 1.5, True, [1]])
def test_classification_is_a_count(rest: Rest, count: object):
    check_refused(rest.infer("m", ok_body(outputs=wanted("OUTPUT0", count))))


@point("S204", "SHOULD", "classification that is no int64_param of 1 or more: INVALID_ARGUMENT")
@pytest.mark.parametrize(
    "parameter", [("int64_param", 0), ("int64_param", -1), ("string_param", "1")]
)
def test_classification_is_a_count_over_grpc(rpc: Rpc, parameter: tuple):
    request = raw_ok()
    set_parameters(request.outputs.add(name="OUTPUT0"), classification=parameter)
    rpc.check_refused(request, naming="OUTPUT0")
