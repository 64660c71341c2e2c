"""The host names in a certificate (RFC 5280, section 4.2.1.6), for which ssl has no function."""

import re
import ssl
from collections.abc import Iterator

# Looked for as bytes: a DER parser for the whole certificate would be the larger risk.
_SUBJECT_ALT_NAME = bytes.fromhex("0603551d11")  # OBJECT IDENTIFIER 2.5.29.17
_BOOLEAN, _OCTET_STRING, _SEQUENCE, _DNS_NAME = 0x01, 0x04, 0x30, 0x82
_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)


def names_in(pem: str) -> frozenset[str]:
    """Return the DNS names of the first certificate in `pem`, in lower case; none if it has none.

    A file that cannot be read has none either: the server does not start with one.
    """
    if (found := _PEM.search(pem)) is None:
        return frozenset()
    try:
        der = ssl.PEM_cert_to_DER_cert(found[0])
        # What stands before it, names and a key, hardly has these bytes by chance.
        _, _, rest = der.partition(_SUBJECT_ALT_NAME)
        return frozenset(_dns_names(rest)) if rest else frozenset()
    except (ValueError, IndexError):
        return frozenset()


def _dns_names(extension: bytes) -> Iterator[str]:
    """Yield the DNS names in what follows the identifier of the extension."""
    kind, value, rest = _element(extension)
    if kind == _BOOLEAN:  # whether the extension is critical
        kind, value, rest = _element(rest)
    if kind != _OCTET_STRING:
        return
    kind, names, _ = _element(value)
    while kind == _SEQUENCE and names:
        tag, name, names = _element(names)
        if tag == _DNS_NAME:
            yield name.decode("ascii").lower()


def _element(der: bytes) -> tuple[int, bytes, bytes]:
    """Return the tag and the value of the first element in `der`, and what follows it."""
    length, start = der[1], 2
    # The long form: as many bytes of length follow (X.690, section 8.1.3.5).
    if length & 0x80:
        start += length & 0x7F
        length = int.from_bytes(der[2:start], "big")
    end = start + length
    if end > len(der):
        raise ValueError("an element is cut off")
    return der[0], der[start:end], der[end:]
