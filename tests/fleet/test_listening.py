"""Listening sockets, on ports that the system chooses."""

import socket

import pytest

from inferd.fleet.listening import accepted, bound


def close(listener):
    for one in listener.sockets:
        one.close()


def test_what_connects_is_accepted():
    listener = bound("HTTP", "127.0.0.1", 0)
    [listening] = listener.sockets
    assert accepted(listening) == []
    clients = [socket.create_connection(("127.0.0.1", listener.number)) for _ in range(3)]
    found = accepted(listening)
    assert len(found) == 3
    for one in (*clients, *found):
        one.close()
    close(listener)


def test_a_port_in_use_is_an_error():
    first = bound("HTTP", "127.0.0.1", 0)
    with pytest.raises(OSError, match="in use"):
        bound("HTTP", "127.0.0.1", first.number)
    close(first)


def test_a_port_may_be_shared_by_who_asks_for_it():
    first = bound("HTTP", "127.0.0.1", 0, reuse=True)
    second = bound("HTTP", "127.0.0.1", first.number, reuse=True)
    close(first)
    close(second)


def test_no_address_is_an_error():
    with pytest.raises(OSError, match="assign"):
        bound("HTTP", "192.0.2.1", 0)


def test_a_name_with_several_addresses_has_one_port():
    listener = bound("HTTP", "localhost", 0)
    assert {one.getsockname()[1] for one in listener.sockets} == {listener.number}
    close(listener)
