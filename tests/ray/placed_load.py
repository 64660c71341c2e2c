"""Clients of a deployment that go where its places are, as a front would, but never ask twice."""

import asyncio
import http.client
import random
import threading
import time
from collections import Counter
from contextlib import suppress

from inferd.ray.source import RaySource
from inferd.route.place import PlaceState, SourceFailed

BODY = '{"inputs":[{"name":"x","datatype":"INT32","shape":[1],"data":[%d]}]}'
PAUSE_S = 0.005


class Followed:
    """What a RaySource tells; `places` are None until it has said something."""

    def __init__(self, address):
        self.source = RaySource(address)
        self.places = None
        self.failures = []
        self._loop = asyncio.new_event_loop()
        self._task = self._loop.create_task(self._follow())
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        try:
            with suppress(asyncio.CancelledError):
                self._loop.run_until_complete(self._task)
        finally:
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()

    async def _follow(self):
        while True:
            try:
                async for places in self.source.follow():
                    self.places = places
            except SourceFailed as error:
                self.failures.append(error.message)

    @property
    def ready(self):
        return [one for one in self.places or () if one.state is PlaceState.READY]

    def wake(self, name):
        """See inferd.route.place.Source."""
        self._loop.call_soon_threadsafe(self.source.wake, name)

    def close(self):
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Load:
    """Clients that keep their connections, and change over when they are asked to close them.

    If they do not `stay`, each request is on a connection of its own, to any place.
    """

    def __init__(self, followed, clients=8, model="same", pause_s=PAUSE_S, *, stay=True):
        self.counts = Counter()
        self.answered = set()
        """The ports that have answered."""
        self.faults = []
        self.longest_s = 0.0
        self._followed = followed
        self._model = model
        self._pause_s = pause_s
        self._stay = stay
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._be_one) for _ in range(clients)]
        for thread in self._threads:
            thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _be_one(self):
        connection = None
        while not self._over.is_set():
            connection = connection or self._connected()
            if connection is None:
                self.counts["nowhere"] += 1
                time.sleep(0.001)
                continue
            began = time.monotonic()
            try:
                is_last = self._ask(connection) or not self._stay
                self.counts["answered"] += 1
                self.answered.add(connection.port)
            except Exception as error:  # noqa: BLE001  whatever it is, the request is lost
                self.counts["lost"] += 1
                self.faults.append(f"{error!r} from {connection.port}")
                is_last = True
            self.longest_s = max(self.longest_s, time.monotonic() - began)
            if is_last:
                connection.close()
                connection = None
            self._over.wait(self._pause_s)
        if connection:
            connection.close()

    def _connected(self):
        places = [
            one for one in self._followed.ready if one.models is None or self._model in one.models
        ]
        if not places:
            return None
        one = random.choice(places)
        connection = http.client.HTTPConnection(one.host, one.http_port, timeout=30)
        try:
            connection.connect()
        except OSError:  # nothing was sent, so nothing is lost
            return None
        return connection

    def _ask(self, connection):
        number = random.randrange(10**6)
        connection.request("POST", f"/v2/models/{self._model}/infer", BODY % number)
        answer = connection.getresponse()
        text = answer.read().decode()
        assert answer.status == 200, text
        assert f'"data":[{number}]' in text, text
        return answer.will_close
