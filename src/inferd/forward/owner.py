"""Owner: which process owns a key, the same in every process (rendezvous hashing).

When the number of processes changes, only the keys of those that have gone get other owners.
"""

from collections.abc import Iterable
from hashlib import blake2b

_BITS = 0xFFFF_FFFF_FFFF_FFFF
_GOLDEN = 0x9E37_79B9_7F4A_7C15


def model_key(model: str) -> bytes:
    """Return the key of a model that lives in one place."""
    # A name must have a key, whatever characters it has.
    return model.encode(errors="surrogatepass")


def sequence_key(model: str, id: int | str) -> bytes:
    """Return the key of a sequence; 5 and "5" are different ones."""
    kind = "t" if isinstance(id, str) else "n"
    return f"{model}\0{kind}{id}".encode(errors="surrogatepass")


def owner_of(key: bytes, numbers: Iterable[int]) -> int:
    """Return which of the processes `numbers`, at least one, owns `key`."""
    # Python's own hash differs between processes.
    hashed = int.from_bytes(blake2b(key, digest_size=8).digest(), "little")
    owner = best = -1
    for number in numbers:
        # The process with the highest score owns the key: a process that goes leaves all others'
        # keys where they are.
        score = _mixed(hashed ^ _mixed(number + 1))
        if score > best:
            owner, best = number, score
    return owner


def _mixed(value: int) -> int:
    """Return 64 bits that each depend on all of `value` (splitmix64)."""
    value = (value * _GOLDEN) & _BITS
    value = ((value ^ (value >> 30)) * 0xBF58_476D_1CE4_E5B9) & _BITS
    value = ((value ^ (value >> 27)) * 0x94D0_49BB_1331_11EB) & _BITS
    return value ^ (value >> 31)
