import pytest

from inferd.ray.cluster import NodeResources, waiting_for

NODES = [
    NodeResources("a", {"CPU": 4, "memory": 8 * 2**30}),
    NodeResources("b", {"CPU": 2, "GPU": 1, "memory": 2 * 2**30}),
]


@pytest.mark.parametrize(
    ("needs", "nodes", "free", "said"),
    [
        ({"CPU": 1}, [], {}, "waits for 1 CPU: there is no node"),
        ({"CPU": 8}, NODES, {}, "waits for 8 CPU: no node has more than 4 CPU"),
        ({"CPU": 1, "TPU": 1}, NODES, {}, "waits for 1 CPU, 1 TPU: no node has any TPU"),
        (
            {"memory": 2**34},
            NODES,
            {},
            "waits for 16 GiB memory: no node has more than 8 GiB memory",
        ),
        ({"CPU": 3, "GPU": 1}, NODES, {}, "waits for 3 CPU, 1 GPU: no node has all of it"),
        (
            {"CPU": 2},
            NODES,
            {"CPU": 1},
            "waits for 2 CPU: taken by others on a, b (free in all: 1 CPU)",
        ),
    ],
)
def test_what_a_replica_waits_for_is_said(needs, nodes, free, said):
    assert waiting_for(needs, nodes, free) == said


def test_of_many_nodes_some_are_named():
    nodes = [NodeResources(f"n{number}", {"CPU": 1}) for number in range(9)]
    assert "on n0, n1, n2 and 6 more (free" in waiting_for({"CPU": 1}, nodes, {})
