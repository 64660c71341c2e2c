"""Typist: types what a page says: in a folder, a shell, Python, and with one server."""

import contextlib
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from server_process import Process

ROOT = Path(__file__).parents[2]
SERVER = re.compile(r"(?:\w+=\S+ )*inferd serve\b")
ADDRESS = re.compile(r"(?:127\.0\.0\.1|localhost):(8000|8001|8002|8080)\b")
LIVE = r"is live at (?:https?://)?127\.0\.0\.1:(\d+)(?: and 127\.0\.0\.1:(\d+))?"
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
DONE = "-- done:"
# What watches does so until Ctrl-C.
BASH = f"""
exec 2>&1
set -o pipefail
inferd() {{
    case " $* " in
        *" --watch "*) timeout --signal INT 2 inferd "$@" || [ $? -eq 124 ] ;;
        *) command inferd "$@" $APPENDED ;;
    esac
}}
while IFS= read -r line; do eval "$line" < /dev/null; code=$?; echo; echo "{DONE} $code"; done
"""
PYTHON = f"""
import json, sys, traceback
names = {{"__name__": "__main__"}}
for line in sys.stdin:
    code = 0
    try:
        exec(compile(json.loads(line), "page", "exec"), names)
    except BaseException:
        traceback.print_exc()
        code = 1
    print("\\n{DONE}", code, flush=True)
"""
CURL = "fail-with-body\n"  # an error is one, whatever the page does with it
NUMBER = re.compile(r"-?\d+(?:\.\d*)?(?:e[+-]?\d+)?")
TIME = r"[\d.]+ ?ms\b"


def commands_of(text):
    """The commands of a block, each in one line."""
    lines = re.sub(r"\\\n\s*", " ", text).split("\n")
    return [line for line in lines if line.strip() and not line.startswith("#")]


def check_extras(command):
    """Compare what pip is to install with inferd with what may be installed with it."""
    for extras in re.findall(r"(?:inferd|\.)\[([\w,]+)\]", command):
        assert set(extras.split(",")) <= set(EXTRAS), command


def is_as_shown(printed, shown):
    """Tell whether what was printed is as the page has it.

    Spaces may differ, numbers a little, and how long something took; for ... there may be anything.
    """
    parts = re.split(rf"(\.\.\.|…|{TIME}|{NUMBER.pattern}|\s+)", shown.strip())
    pattern = ""
    for part in parts:
        if part in ("...", "…"):
            pattern += ".*?"
        elif part.isspace():
            pattern += r"\s+"
        elif re.fullmatch(TIME, part):
            pattern += TIME
        else:
            pattern += f"({NUMBER.pattern})" if NUMBER.fullmatch(part) else re.escape(part)
    found = re.fullmatch(pattern, printed.strip(), re.DOTALL)
    if found is None:
        return False
    numbers = [part for part in parts if NUMBER.fullmatch(part)]
    pairs = zip(map(float, numbers), map(float, found.groups()), strict=True)
    return all(math.isclose(*pair, rel_tol=1e-2) for pair in pairs)


def listening(pid):
    """The TCP ports on which a process listens."""
    sockets = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed since it was listed
            sockets.add(os.readlink(link))
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().split("\n")[1:-1]]
    return {
        str(int(row[1].partition(":")[2], 16))
        for row in rows
        if row[3] == "0A" and f"socket:[{row[9]}]" in sockets
    }


class Prompt:
    """A program that does what is typed, and says when it is done."""

    def __init__(self, command, folder, environ):
        self._process = subprocess.Popen(
            command,
            cwd=folder,
            env=environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def type(self, line):
        """Return what is printed, and the exit code."""
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        said = []
        for printed in self._process.stdout:
            if printed.startswith(DONE):
                return "".join(said).removesuffix("\n"), int(printed.split()[-1])
            said.append(printed)
        msg = f"{line!r} ended it: {''.join(said)}"
        raise AssertionError(msg)

    def close(self):
        self._process.stdin.close()
        self._process.stdout.read()
        self._process.stdout.close()
        self._process.wait()


class Typist:
    """Types what a page says, in `folder`, which is the current one.

    `replaced` are words of pages that are others here, as are the addresses of the server.
    """

    def __init__(self, folder):
        self.folder = folder
        self.replaced = {}
        self.environ = os.environ | {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(folder / "home"),
            "CURL_HOME": str(folder / "home"),
            "COLUMNS": "120",
            "NO_PROXY": "127.0.0.1",
            "PYTHONUNBUFFERED": "1",
        }
        for port in ("HTTP", "GRPC", "METRICS", "SAGEMAKER", "VERTEX_AI"):
            self.environ[f"INFERD_{port}_PORT"] = "0"
            self.environ[f"INFERD_{port}_ADDRESS"] = "127.0.0.1"
        (folder / "home").mkdir()
        (folder / "home/.curlrc").write_text(CURL)
        (folder / "examples").symlink_to(ROOT / "examples")
        self.ports = {}
        self.server = None
        self._prompts = {}

    def copy(self, source, target):
        """Copy a folder of the repository."""
        shutil.copytree(ROOT / source, self.folder / target)

    def save(self, name, text):
        """Write a file as the page has it, but for what is another here."""
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(self._here(text))

    def shell(self, text, *, appended="", may_fail=False):
        """Return what commands print, servers started among them. Each has to succeed."""
        said = []
        for command in commands_of(text):
            if command.startswith("pip install"):
                check_extras(command)
            elif SERVER.match(command):
                self.serve(command)
            else:
                here = self._here(command)
                bash = self._prompt("bash")
                bash.type(f"APPENDED={appended!r}")
                printed, code = bash.type(here)
                said.append(printed)
                assert code == 0 or may_fail, f"{here}\n{printed}"
        return "".join(said)

    def python(self, text):
        """Return what a program prints that goes on where the last one of the page has ended."""
        said, code = self._prompt("python").type(json.dumps(self._here(text)))
        assert code == 0, said
        return said

    def serve(self, command):
        """Start a server; the one before ends."""
        self._end()
        here = re.sub(r"\binferd (?=serve)", "exec inferd ", self._here(command), count=1)
        self.server = Process("-c", here, command=(), program="bash", environ=self.environ)
        live = self.server.wait_for(LIVE)
        others = listening(self.server.process.pid) - set(live.groups())
        self.ports = {"8000": live[1], "8001": live[2] or live[1]}
        self.ports |= dict.fromkeys(("8002", "8080"), min(others, default=""))
        state = self.server.wait_for(r"\bready$|not ready")
        assert state[0] == "ready", self.server.said
        self._export("INFERD_URL", f"http://127.0.0.1:{live[1]}")

    def close(self):
        for prompt in self._prompts.values():
            prompt.close()
        self._end()

    def _export(self, name, value):
        self.environ[name] = value
        if "bash" in self._prompts:
            self._prompts["bash"].type(f"export {name}={value}")

    def _end(self):
        if self.server is not None:
            self.server.process.terminate()
            self.server.end()
            self.server.process.stdout.close()
            self.server = None

    def _here(self, text):
        for word, other in self.replaced.items():
            text = text.replace(word, other)
        return ADDRESS.sub(lambda one: f"127.0.0.1:{self.ports.get(one[1], one[1])}", text)

    def _exported(self):
        """The variables that the shell has by now."""
        if "bash" not in self._prompts:
            return self.environ
        said, _ = self._prompts["bash"].type("env -0")
        return dict(pair.split("=", 1) for pair in said.split("\0") if "=" in pair)

    def _prompt(self, name):
        if name not in self._prompts:
            command = {"bash": ["bash", "-c", BASH], "python": [sys.executable, "-c", PYTHON]}[name]
            self._prompts[name] = Prompt(command, self.folder, self._exported())
        return self._prompts[name]
