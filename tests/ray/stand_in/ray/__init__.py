"""What `inferd.ray.connection` uses of Ray, without a cluster.

The controller of "shop" tells places twice; that of "asleep" has a group with the model same, which
is the server at the ports in STAND_IN_PORTS once it is woken. Like Ray it writes to standard output
what nobody has asked for.
"""

import os
import threading

from ray import exceptions

ONE = '{"name":"g-1","host":"h","http_port":1,"grpc_port":2,"models":["m"]}'
OTHER = '{"name":"g-2","host":"h","http_port":3,"grpc_port":4,"models":null,"is_draining":true}'
SHOP = [(7, f"[{ONE}]"), (8, f"[{ONE},{OTHER}]")]
ASLEEP = '{"name":"g","host":"","http_port":0,"grpc_port":0,"models":["same"],"is_asleep":true}'
AWAKE = '{"name":"g-1","host":"127.0.0.1","http_port":%s,"grpc_port":%s,"models":["same"]}'

_woken = threading.Event()


class _Method:
    def __init__(self, work):
        self._work = work

    def remote(self, *arguments):
        return lambda: self._work(*arguments)


class _Shop:
    def __init__(self):
        self.places = _Method(self._places)

    def _places(self, version, _):
        if version == 8:
            if os.environ.get("STAND_IN_ENDS"):
                msg = "the head is away\n  at line 1"
                raise exceptions.RayError(msg)
            threading.Event().wait()  # nothing changes any more
        return next((number, text.encode()) for number, text in SHOP if number > version)


class _Asleep:
    def __init__(self):
        self.places = _Method(self._places)
        self.wake = _Method(self._wake)

    def _places(self, version, _):
        if version == 0:
            return 1, f"[{ASLEEP}]".encode()
        _woken.wait()
        if version == 2:
            threading.Event().wait()
        ports = tuple(os.environ["STAND_IN_PORTS"].split())
        return 2, f"[{AWAKE % ports}]".encode()

    def _wake(self, group):
        assert group == "g"
        _woken.set()


_CONTROLLERS = {"inferd:shop": _Shop, "inferd:asleep": _Asleep}


def is_initialized():
    return False


def init(**_):
    os.write(1, b"[2026-01-01] Ray has something to say\n")


def shutdown():
    pass


def get_actor(name, namespace):
    if name not in _CONTROLLERS:
        raise ValueError(name)
    return _CONTROLLERS[name]()


def get(reference, timeout):
    os.write(1, b"and again")
    return reference()
