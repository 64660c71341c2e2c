"""Trial: loads versions of models for real, each in a process of its own, as a server would.

A model that ends its process, hangs, or takes all memory ends only its trial. The process is
this module, run with the model's place as its argument; it writes what happened into a file, since
a model may print whatever it likes.
"""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from inferd import system
from inferd.check.model import ModelCheck
from inferd.config.pbtxt import parse_json, to_json
from inferd.engine.loading.load import Loader, LoadOptions
from inferd.errors import InferdError, InvalidConfig
from inferd.repository.layout import FoundModel
from inferd.repository.local import Reading
from inferd.repository.repositories import Repositories

_CLOSE_S = 5.0
_LAST_LINES = 3
_MOST_SHOWN = 500


class TrialResult(msgspec.Struct):
    """What became of a load: the configuration that was served, as JSON, or an error.

    `path` is that of the field that an error is about. `rss_bytes` is the most memory that the
    process had, with what Python itself needs.
    """

    error: str = ""
    path: list[str | int] = []
    config: msgspec.Raw = msgspec.Raw(b"null")
    seconds: float = 0.0
    rss_bytes: int = 0


class _Order(msgspec.Struct):
    """What a process is to load: a version of the model called `name` at `path`."""

    path: str
    name: str
    version: int
    config_name: str
    timeout_s: float


def try_load(check: ModelCheck, reading: Reading, timeout_s: float) -> None:
    """Load the versions of a model; add what goes wrong, or how long it took and what it needs."""
    config, model = check.model.config, check.model
    # As a server would be started with it.
    path = model.root or (model.folder if model.owns_folder else model.file) or model.folder
    if config is None or config.ensemble_scheduling is not None:
        return  # its models are loaded, and fit
    for version in check.model.versions:
        order = _Order(str(path), config.name, version, reading.config_name, timeout_s)
        result, why = _run(order, timeout_s)
        if result is None or result.error:
            text = result.error.removeprefix(f"model '{config.name}': ") if result else why
            field = tuple(result.path) if result else ()
            check.add_problem(f"version {version} does not load: {text}", "load", field)
            continue
        check.complete(parse_json(bytes(result.config), "trial"), is_complete=True)
        text = (
            f"version {version} loads in {result.seconds:.2f} s, and its process then has "
            f"{result.rss_bytes / 1e6:.0f} MB"
        )
        check.add_note(text, "load")


def _run(order: _Order, timeout_s: float) -> tuple[TrialResult | None, str]:
    """Return the result of a process, None with the reason if it had none."""
    with tempfile.TemporaryDirectory(prefix="inferd-check-") as folder:
        file = Path(folder) / "result"
        # As a module, so the process imports nothing that this one has changed.
        words = [sys.executable, "-m", __name__, msgspec.json.encode(order).decode(), str(file)]
        log = Path(folder) / "log"
        # Into a file: a pipe that nobody reads would stop a model that prints much.
        with log.open("wb") as output:
            process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                # So that workers it has started can be ended with it, and Ctrl-C is not theirs.
                start_new_session=True,
            )
            try:
                code = process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                _end(process)
        # The result first: a process may crash at its end, after the model was loaded.
        if file.exists():
            return msgspec.json.decode(file.read_bytes(), type=TrialResult), ""
        if code is None:
            return None, f"it takes longer than {timeout_s:g} s (--load-timeout)"
        return None, _ended(code, log.read_text(errors="replace"))


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End a process with those it has started, which are in its session."""
    with suppress(ProcessLookupError):
        if system.GROUPS:
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    process.wait()


def _ended(code: int, log: str) -> str:
    how = f"code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"
    last = " ".join(log.split("\n")[-_LAST_LINES - 1 :]).strip()[-_MOST_SHOWN:]
    return f"its process ended with {how}" + (f": {last}" if last else "")


async def _load(order: _Order) -> TrialResult:
    began_s = time.monotonic()
    options = LoadOptions(model_load_timeout_secs=order.timeout_s)
    loader = Loader(options)
    reading = loader.reading._replace(config_name=order.config_name)
    model = Repositories([Path(order.path)], reading).find(order.name)
    if model is None:
        raise InvalidConfig(f"the model '{order.name}' has gone")
    return await _served(loader, model, order.version, began_s)


async def _served(loader: Loader, model: FoundModel, version: int, began_s: float) -> TrialResult:
    served = await loader.load_in_thread(model, version)
    seconds = time.monotonic() - began_s
    await served.scheduler.close(_CLOSE_S)
    config = msgspec.Raw(msgspec.json.encode(to_json(served.config)))
    return TrialResult("", [], config, seconds, system.peak_memory_bytes())


def main(arguments: Sequence[str]) -> int:
    """Load what the first of `arguments` says, and write the result into the file it names."""
    order = msgspec.json.decode(arguments[0], type=_Order)
    try:
        result = asyncio.run(_load(order))
    except InferdError as error:
        path = error.path if isinstance(error, InvalidConfig) else ()
        result = TrialResult(error.message, list(path))
    file = Path(arguments[1])
    beside = file.with_suffix(".part")
    beside.write_bytes(msgspec.json.encode(result))
    # Renamed when it is complete: the parent never reads half a result.
    beside.replace(file)
    os._exit(0)  # models are not taken apart: their process ends


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
