"""Any backend's model in a worker process, which has inferd itself.

The line to the server is the one of models in Python, with the same packets; here are both of its
ends. Requests of a batch are given to the instance as they come: the process knows no scheduler,
so a backend that wants them joined is asked with several.
"""

import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import orjson

from inferd.backends.worker.bootstrap.inferd_worker import packet
from inferd.backends.worker.bootstrap.inferd_worker.line import Payload
from inferd.backends.worker.bootstrap.inferd_worker.main import run
from inferd.backends.worker.bootstrap.inferd_worker.worker import Worker
from inferd.backends.worker.environment import Environment
from inferd.backends.worker.instance import WorkerInstance
from inferd.backends.worker.message import ERRORS, requests_of
from inferd.backends.worker.process import Process, Sizes
from inferd.backends.worker.supervisor import Plan
from inferd.config.model import ModelConfig
from inferd.config.pbtxt import parse_json, to_json
from inferd.core.interfaces import Answer, Backend, Instance, ModelFiles, Placement, Surroundings
from inferd.core.request import InferRequest
from inferd.errors import BackendFailed, InferdError, foreign_text

PROGRAM = "import sys; from inferd.backends.worker.hosted import main; main(sys.argv[2:9])"

_CODES = {kind.code: number for number, kind in enumerate(ERRORS)}
_INTERNAL = 1

# --- the server's end ---


def open_hosted(
    target: str,
    files: ModelFiles,
    config: ModelConfig,
    placement: Placement,
    surroundings: Surroundings | None = None,
) -> WorkerInstance:
    """Open an instance of the backend `target`, "module:Class", in a process of its own.

    The process is this Python, with what it finds here. Raises InferdError, as the backend does.
    """
    root = str(Path(sys.modules["inferd"].__file__ or "").parent.parent)
    environment = Environment(path=(root, *(path for path in sys.path if path)))

    def make(told: Callable[[str, bool], None]) -> Process:
        return Process(config.name, environment, Sizes(), told, PROGRAM)

    settings = {
        "task": "run",
        "backend": target,
        "config": orjson.dumps(to_json(config)).decode(),
        "folder": str(files.folder),
        "version": files.version,
        "version_folder": str(files.version_folder),
        "file": str(files.file),
        "place": [placement.name, placement.gpu, placement.device_id],
    }
    timeout_s = (surroundings or Surroundings()).load_timeout_s
    instance = WorkerInstance(Plan(config.name, files.version, settings, make, timeout_s))
    instance.start()
    return instance


# --- the worker's end ---


def main(arguments: list[str]) -> None:
    """Run a worker, as inferd_worker.main does."""
    run(arguments, HostedWorker)


class HostedWorker(Worker):
    """Runs one instance of a backend."""

    _instance: Instance

    def _start(self, settings: dict[str, Any]) -> bool:
        self._name = settings["backend"]
        try:
            self._instance = _opened(settings)
        except InferdError as error:
            code = _CODES.get(error.code, _INTERNAL)
            self.line.send(packet.FAILED, [code, error.message])
            return False
        except BaseException as error:  # noqa: BLE001  SystemExit, too
            self._fail(foreign_text(error), "")
            return False
        self.line.send(packet.READY, [None])
        return True

    def _serve(self) -> None:
        line, inbox = self.line, self._inbox
        while True:
            line.wait(lambda: inbox or self._is_ending)
            if self._is_ending and not inbox:
                return
            self._execute()
            line.release(lazily=True)

    def _execute(self) -> None:
        (_, batch, documents, _), data = self._inbox.popleft()
        requests = requests_of(documents, data)
        del data
        began_ns = perf_counter_ns()
        try:
            answers = self._instance.execute(requests)
        except BaseException as error:  # noqa: BLE001  the process must outlive any model
            failed = error if isinstance(error, InferdError) else BackendFailed(foreign_text(error))
            answers = [failed for _ in requests]
        ended_ns = perf_counter_ns()
        payload = Payload()
        told = [
            _told(document[0], request, answer, payload)
            for document, request, answer in zip(documents, requests, answers, strict=True)
        ]
        requests.clear()
        self._send_result(batch, (began_ns, ended_ns), told, payload)

    def _finalize(self) -> None:
        self._instance.close()


def _opened(settings: dict[str, Any]) -> Instance:
    config = parse_json(settings["config"], "config")
    files = ModelFiles(
        Path(settings["folder"]),
        settings["version"],
        Path(settings["version_folder"]),
        Path(settings["file"]),
    )
    name, gpu, device_id = settings["place"]
    backend: Backend = EntryPoint("", settings["backend"], "inferd.backends").load()()
    return backend.open(files, config, Placement(name, gpu, device_id))


def _told(number: int, request: InferRequest, answer: Answer, payload: Payload) -> list[Any]:
    if isinstance(answer, InferdError):
        code = _CODES.get(answer.code, _INTERNAL)
        return [number, None, [code, answer.message], None, True, 1]
    wanted = {one.name for one in request.outputs}
    outputs = [
        [one.name, one.datatype.value, list(one.shape), *payload.add(one.view())]
        for one in answer.outputs
        if not wanted or one.name in wanted
    ]
    return [number, outputs, None, answer.parameters or None, True, 1]
