import errno
import socket

import pytest

from inferd.transport.unix_socket import UnixSocket


@pytest.fixture
def path(tmp_path):
    return tmp_path / "http.sock"


@pytest.fixture
def bind():
    """bind(path) is a UnixSocket that is closed at the end."""
    made = []

    def bind_one(path):
        made.append(UnixSocket(str(path)))
        return made[-1]

    yield bind_one
    for one in made:
        one.socket.close()


def test_a_socket_that_is_listened_to_is_left_alone(path, bind):
    ours = bind(path)
    ours.socket.listen()
    with pytest.raises(OSError, match="in use") as raised:
        UnixSocket(str(path))
    assert raised.value.errno == errno.EADDRINUSE
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))


def test_a_listener_that_is_too_busy_to_answer_is_one_all_the_same(path, bind):
    bind(path).socket.listen(0)
    clients = [socket.socket(socket.AF_UNIX) for _ in range(4)]
    for client in clients:
        client.setblocking(False)
        client.connect_ex(str(path))
    with pytest.raises(OSError, match="in use"):
        UnixSocket(str(path))
    for client in clients:
        client.close()


def test_a_path_that_is_too_long_for_an_address_is_told_as_that(tmp_path):
    with pytest.raises(OSError, match="File name too long") as raised:
        UnixSocket(str(tmp_path / ("x" * 120)))
    assert raised.value.errno == errno.ENAMETOOLONG


def test_what_a_killed_server_has_left_is_replaced(path, bind):
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(path))
    bind(path).socket.listen()
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))


def test_a_file_that_is_no_socket_stays(path):
    path.write_text("mine")
    with pytest.raises(OSError, match="in use"):
        UnixSocket(str(path))
    assert path.read_text() == "mine"


def test_a_name_is_taken_away_at_the_end(path, bind):
    bind(path).remove()
    assert not path.exists()


def test_a_name_that_has_become_another_socket_s_is_left_to_it(path, bind):
    ours = bind(path)
    path.unlink()
    bind(path)
    ours.remove()
    assert path.exists()
