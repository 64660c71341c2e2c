"""The connections of one port, and how they all come to an end."""

from inferd.http.endpoint import Endpoint
from inferd.http.turns import Connection, Turns
from inferd.memory.capacity import Capacity


class Noting(Connection):
    """A connection that notes what it is to do, and closes when told to abort."""

    def __init__(self, endpoint):
        self.endpoint, self.log = endpoint, []
        endpoint.connections.add(self)

    def check_time(self, now):
        self.log.append(now)

    def drain(self):
        self.log.append("drain")

    def abort(self):
        self.log.append("abort")
        self.endpoint.forget(self)


def endpoint_with(count):
    endpoint = Endpoint(Capacity(), Turns(), 5.0)
    return endpoint, [Noting(endpoint) for _ in range(count)]


async def test_a_sweep_tells_all_connections_the_time():
    endpoint, connections = endpoint_with(2)
    endpoint.sweep(7.0)
    assert endpoint.now == 7.0
    assert [one.log for one in connections] == [[7.0], [7.0]]


async def test_it_waits_until_the_last_connection_has_gone():
    endpoint, connections = endpoint_with(2)
    endpoint.drain()
    assert endpoint.is_draining and not await endpoint.wait_until_empty(0)
    endpoint.cut()  # these know nothing better than to abort
    assert await endpoint.wait_until_empty(0)
    assert [one.log for one in connections] == [["drain", "abort"]] * 2


async def test_with_no_connection_there_is_nothing_to_wait_for():
    endpoint, _ = endpoint_with(0)
    endpoint.abort()
    assert await endpoint.wait_until_empty(0)
