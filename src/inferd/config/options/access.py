"""Who may call what (API groups, restrictions, API keys), and which headers are passed on.

A key is 256 random bits, so one round of SHA-256 hides it: a slow hash only protects what can be
guessed, and each request pays for hashing the key it brings.
"""

import hashlib
import re
import secrets
import warnings
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from inferd.errors import InvalidConfig

API_GROUPS = (
    "health",
    "metadata",
    "inference",
    "shared-memory",
    "model-config",
    "model-repository",
    "statistics",
    "trace",
    "logging",
)
"""Every call belongs to one of these; the names are Triton's."""

_HEADER = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")  # a header's name, RFC 9110, section 5.1
_HEADER_VALUE = re.compile(r"[!-~]([ -~]*[!-~])?")  # every client can send it unchanged


class Restriction(NamedTuple):
    """What a call must carry: the header `key`, in lower case, with exactly this value."""

    key: str
    value: str


def read_restrictions(flag: str, texts: Sequence[str]) -> Mapping[str, Restriction]:
    """Return the restrictions in `texts`, the values of `flag`, by API group.

    A text is GROUP,GROUP:KEY=VALUE. Raises InvalidConfig, which never quotes a value.
    """
    found: dict[str, Restriction] = {}
    for text in texts:
        names, _, pair = text.partition(":")
        key, equals, value = pair.partition("=")
        if not (equals and _HEADER.fullmatch(key) and _HEADER_VALUE.fullmatch(value)):
            raise InvalidConfig(
                f"{flag}: expected GROUPS:KEY=VALUE, where GROUPS are separated by commas, KEY is "
                "the name of a header and VALUE is printable ASCII"
            )
        for group in read_groups(flag, names):
            # Which of two secrets opens it would depend on the order.
            if group in found:
                raise InvalidConfig(f"{flag}: the group {group} is restricted twice")
            # Header names are stored in lower case, as HTTP/2 sends them.
            found[group] = Restriction(key.lower(), value)
    return found


def read_groups(where: str, names: str) -> list[str]:
    """Return the groups in `names`, separated by commas. Raises InvalidConfig."""
    groups = [name.strip() for name in names.split(",")]
    for group in groups:
        if group not in API_GROUPS:
            msg = f"{where}: {group[:40]!r} is none of the groups {', '.join(API_GROUPS)}"
            raise InvalidConfig(msg)
    return groups


PREFIX = "inferd_"
"""Every key begins with this, so that scanners for leaked secrets can recognise it."""

# No colon, which ends the name; no # or blank at the start, which make a line a comment or are
# stripped.
_NAME = re.compile(r"[^:#\s][^:\x00-\x1f]{0,99}")
_HASH = re.compile(r"[0-9a-fA-F]{64}")


class ApiKey(NamedTuple):
    """A valid key: the name of its owner, and the API groups it opens."""

    name: str
    groups: frozenset[str] = frozenset(API_GROUPS)


class NewKey(NamedTuple):
    """A new key: the key itself, for the client, and the line for the server's file."""

    key: str
    line: str


def make_key(name: str, groups: str = "") -> NewKey:
    """Make a key that opens `groups`, separated by commas; "" means all.

    Raises InvalidConfig for a name the file cannot hold, and for unknown groups.
    """
    # Characters that need no quoting in a header, a shell or YAML.
    key = PREFIX + secrets.token_urlsafe(32)
    line = f"{name}:{hash_key(key.encode()).hex()}" + (f":{groups}" if groups else "")
    # Checked as it will be read: a key whose line is refused is found by its maker, not by the
    # server.
    _read_line(line, "the new key")
    return NewKey(key, line)


def hash_key(key: bytes) -> bytes:
    """Return the 32 bytes by which the server knows `key`."""
    return hashlib.sha256(key).digest()


def read_api_keys(text: str, where: str) -> Mapping[bytes, ApiKey]:
    """Return the keys in `text` by their hashes.

    A line is NAME:HASH, or NAME:HASH:GROUPS for a key that opens only these API groups. HASH is
    the SHA-256 of the key in hexadecimal. Empty lines and lines that begin with # are ignored.
    Raises InvalidConfig, which begins with `where` and quotes nothing of a line: it may contain the
    key itself by mistake.
    """
    found: dict[bytes, ApiKey] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        digest, key = _read_line(line.strip(), f"{where}: line {number}")
        # Of two lines for one key, a person who takes back one would think that it is gone.
        if digest in found:
            raise InvalidConfig(f"{where}: line {number}: the key is there twice")
        found[digest] = key
    return found


def _read_line(line: str, where: str) -> tuple[bytes, ApiKey]:
    name, _, rest = line.partition(":")
    hashed, colon, groups = rest.partition(":")
    if not (_NAME.fullmatch(name) and _HASH.fullmatch(hashed)):
        msg = f"{where}: expected NAME:HASH or NAME:HASH:GROUPS, HASH of 64 hexadecimal digits"
        raise InvalidConfig(msg)
    digest = bytes.fromhex(hashed)
    # A line that ends in a colon names no group: probably a mistake, and must not open all of them.
    if not colon:
        return digest, ApiKey(name)
    return digest, ApiKey(name, frozenset(read_groups(where, groups)))


# RE2, in which Triton's users write patterns, takes this anywhere; Python's re only knows it with a
# group, so it is read here.
_CASE_MATTERS = "(?-i)"


def read_header_pattern(where: str, text: str) -> re.Pattern[str]:
    """Return `text` compiled; case matters only if it begins with (?-i).

    Raises InvalidConfig, beginning with `where`, if it is not a regular expression.
    """
    # Names of headers have no case (RFC 9110, section 5.1); HTTP/2 and gRPC send them in lower
    # case.
    flags = re.IGNORECASE
    if text.startswith(_CASE_MATTERS):
        text, flags = text.removeprefix(_CASE_MATTERS), re.NOFLAG
    try:
        with warnings.catch_warnings():
            # re only warns of "[[", so the warning is made an error.
            warnings.simplefilter("error", FutureWarning)
            return re.compile(text, flags)
    except FutureWarning as error:  # Triton's RE2 knows [[:alpha:]]; here it would match nothing
        msg = f"{where}: '{text}' has a set within a set, such as [[:alpha:]]; write [a-z]"
        raise InvalidConfig(msg) from error
    except (re.error, RecursionError, OverflowError) as error:
        raise InvalidConfig(f"{where}: '{text}' is not a regular expression: {error}") from error
