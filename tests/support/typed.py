"""Pages that show commands and what they print: typed anew, and compared."""

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

FENCED = re.compile(r"^[ \d.]*```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
FIGURES = re.compile(r"[\d.]+ (ms|s)\b")


def blocks_of(text):
    """The fenced blocks of a page: (language, text, where it begins)."""
    for block in FENCED.finditer(text):
        yield block[1], textwrap.dedent(block[2]), block.start()


def commands_of(text):
    """The commands of a block of `console`: (command, what it prints)."""
    return COMMAND.findall(text)


def typed(command, folder):
    """What a command prints, with the programs of this environment first."""
    environ = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        command, shell=True, cwd=folder, env=environ, capture_output=True, text=True, timeout=300
    )
    return done.stdout + done.stderr


def same(text):
    """What was printed, but for how long it took."""
    return FIGURES.sub(r"N \1", text).rstrip("\n")
