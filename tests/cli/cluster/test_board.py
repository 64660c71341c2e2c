"""Tables of a deployment, as text and with rich where that is."""

import pytest

from inferd.cli.cluster.board import changes, places_board, status_board
from inferd.cli.terminal import board_text, screen
from inferd.ray.status import DeploymentStatus, GroupStatus, ReplicaPlace, ReplicaStatus


def replica(number=1, phase="ready", **more):
    return ReplicaStatus(name=f"g-{number}", phase=phase, is_current=True, age_s=12.0, **more)


def status(*replicas, warnings=(), **more):
    given = {"desired": 2, "least": 1, "most": 3, "is_settled": False, "is_given_up": False}
    given |= {"reason": "", "models": (), **more}
    group = GroupStatus(name="g", replicas=replicas, **given)
    return DeploymentStatus(name="inferd", version="0", groups=(group,), warnings=warnings)


def test_a_deployment_is_a_table_of_each_group():
    serving = replica(node="n", host="10.0.0.1", http_port=8000, grpc_port=8001, rate=1234.0)
    serving = replica(
        node="n", host="10.0.0.1", http_port=8000, grpc_port=8001,
        rate=1234.0, pending=2.5, latency_ms=1.25,
    )  # fmt: skip
    text = board_text(
        status_board(
            status(serving, replica(2, "placing"), reason="waits", warnings=("mind the head",))
        )
    )
    assert text == (
        "g: 1 of 2 (1 to 3) ready, changing\n"
        "  replica  phase    node  http           grpc  age  req/s  under way  ms\n"
        "  g-1      ready    n     10.0.0.1:8000  8001  12s  1234   2.5        1.25\n"
        "  g-2      placing  -     -              -     12s  -      -          -\n"
        "g: waits\n"
        "warning: mind the head\n"
    )


@pytest.mark.parametrize(
    ("more", "said"),
    [({"is_settled": True}, "as wanted"), ({"is_given_up": True}, "given up"), ({}, "changing")],
)
def test_how_far_a_group_is_is_said(more, said):
    models = ("a", "b", "c", "d", "e", "f", "h")
    text = board_text(status_board(status(models=models, **more)))
    assert text == f"g: 0 of 2 (1 to 3) ready, {said}, models a, b, c, d, e and 2 more\n"


def test_places_are_a_table():
    places = [
        ReplicaPlace("g-1", "::1", 8000, 0, None),
        ReplicaPlace("g-22", "h", 80, 81, ("m", "n"), is_draining=True),
        ReplicaPlace("z", "", 0, 0, ("o",), is_asleep=True),
    ]
    assert board_text(places_board(places)) == (
        "3 places\n"
        "  place  state     host  http  grpc  models\n"
        "  g-1    ready     ::1   8000  -     any\n"
        "  g-22   draining  h     80    81    m, n\n"
        "  z      asleep    -     -     -     o\n"
    )


def test_what_changes_is_said_once():
    first = status(replica(1, "placing", reason="waits for 1 GPU"), reason="waits for 1 GPU")
    second = status(replica(1, node="n"))
    assert list(changes(None, first)) == ["g-1 placing: waits for 1 GPU", "g: waits for 1 GPU"]
    assert list(changes(first, first)) == []
    assert list(changes(first, second)) == ["g-1 ready on n"]
    assert list(changes(second, status())) == ["g-1 ended"]


def test_without_a_terminal_a_board_is_written_when_it_differs(capsys):
    one, other = places_board([]), status_board(status())
    with screen() as show:
        for board in (one, one, other):
            show(board)
    assert capsys.readouterr().out == board_text(one) + board_text(other)
