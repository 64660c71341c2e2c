"""OpenSSL 1.1 for a client that cannot start without it, though no test here uses TLS.

The client's library of 2020 is linked with OpenSSL 1.1, which systems of today no longer have.
Where it is missing, libraries of its name are compiled that hold the symbols the client looks for,
each a function that does nothing.
"""

import ctypes
import re
import subprocess
from collections import defaultdict
from pathlib import Path

NAMES = ["libcrypto.so.1.1", "libssl.so.1.1"]
NEEDED = re.compile(r" U (\w+)@(OPENSSL_\w+)")


def load(client: Path, folder: Path) -> None:
    """Load OpenSSL 1.1, or what stands in for it, then the client's own `librequest.so`."""
    try:
        for name in NAMES:
            ctypes.CDLL(name, ctypes.RTLD_GLOBAL)
    except OSError:
        for library in _compile_stand_ins(client / "librequest.so", folder):
            ctypes.CDLL(str(library), ctypes.RTLD_GLOBAL)
    ctypes.CDLL(str(client / "librequest.so"), ctypes.RTLD_GLOBAL)


def _compile_stand_ins(needing: Path, folder: Path) -> list[Path]:
    command = ["nm", "--dynamic", "--undefined-only", needing]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    by_version = defaultdict(set)
    for symbol, version in NEEDED.findall(listed):
        by_version[version].add(symbol)
    code, versions = folder / "nothing.c", folder / "versions.map"
    symbols = sorted(set().union(*by_version.values()))
    code.write_text("".join(f"long {symbol}(void) {{ return 0; }}\n" for symbol in symbols))
    versions.write_text(
        "".join(
            f"{one} {{ global: {'; '.join(sorted(by_version[one]))}; }};\n" for one in by_version
        )
    )
    made = [folder / name for name in NAMES]
    for library in made:
        link = [f"-Wl,-soname,{library.name}", f"-Wl,--version-script={versions}"]
        subprocess.run(["cc", "-w", "-shared", "-fPIC", *link, "-o", library, code], check=True)
    return made
