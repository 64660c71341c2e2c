from inferd.errors import Code
from inferd.http.grpc.status import GRPC_STATUS


def test_every_reason_has_a_status():
    assert set(GRPC_STATUS) == set(Code)
