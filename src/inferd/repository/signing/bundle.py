"""SignatureBundle: the file of a signature, as OpenSSF Model Signing writes it."""

import base64
from pathlib import Path

import msgspec

from inferd.errors import InvalidConfig
from inferd.repository.contents import read_limited

MAX_BYTES = 64 << 20
"""A signature names every file of a model; no real one comes near this size."""

_PAYLOAD_TYPE = "application/vnd.in-toto+json"
_MEDIA_TYPE = "application/vnd.dev.sigstore.bundle"


class _PublicKey(msgspec.Struct):
    hint: str = ""


class _Certificate(msgspec.Struct, rename="camel"):
    raw_bytes: str


class _Chain(msgspec.Struct):
    certificates: list[_Certificate] = []


class _Material(msgspec.Struct, rename="camel"):
    public_key: _PublicKey | None = None
    x509_certificate_chain: _Chain | None = msgspec.field(default=None, name="x509CertificateChain")
    certificate: _Certificate | None = None


class _Signature(msgspec.Struct):
    sig: str


class _Envelope(msgspec.Struct, rename="camel"):
    payload: str
    payload_type: str
    signatures: list[_Signature]


class _Document(msgspec.Struct, rename="camel"):
    media_type: str
    verification_material: _Material
    dsse_envelope: _Envelope


class SignatureBundle(msgspec.Struct, frozen=True):
    """A signature over `payload`. `certificates` are in DER, that of the signer first, if any.

    `hint` is the SHA-256 of the signer's public key, "" if it is not said.
    """

    payload: bytes
    signature: bytes
    certificates: tuple[bytes, ...] = ()
    hint: str = ""

    @property
    def signed(self) -> bytes:
        """The bytes that the signature is of: DSSE's pre-authentication encoding."""
        kind, payload = _PAYLOAD_TYPE.encode(), self.payload
        # Kind and length are signed too, so that the same bytes cannot pass for a document of
        # another kind (DSSE, protocol.md).
        return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def read_bundle(file: Path, place: str) -> SignatureBundle:
    """Return the bundle in `file`. Raises InvalidConfig, which begins with `place`, and OSError."""
    if not file.is_file():  # opening a pipe would block until somebody writes
        msg = f"{place}: there is no file '{file.name}' with a signature"
        raise InvalidConfig(msg)
    try:
        found = msgspec.json.decode(read_limited(file, MAX_BYTES, place), type=_Document)
        material, envelope = found.verification_material, found.dsse_envelope
        chain = material.x509_certificate_chain
        certificates = chain.certificates if chain else []
        # Bundles since version 0.3 have the signer's certificate alone, older ones a chain.
        if material.certificate is not None:
            certificates = [material.certificate]
        bundle = SignatureBundle(
            _decoded(envelope.payload),
            # Exactly one, as Sigstore's bundles require: of several it would not be said whose has
            # to be right. "?" is no base64, and so refused below.
            _decoded(envelope.signatures[0].sig if len(envelope.signatures) == 1 else "?"),
            tuple(_decoded(one.raw_bytes) for one in certificates),
            material.public_key.hint if material.public_key else "",
        )
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise _strange(file, place) from error
    if not found.media_type.startswith(_MEDIA_TYPE) or envelope.payload_type != _PAYLOAD_TYPE:
        raise _strange(file, place)
    return bundle


def _decoded(text: str) -> bytes:
    # Without it, b64decode leaves out whatever is no base64, and two files would be one signature.
    return base64.b64decode(text, validate=True)


def _strange(file: Path, place: str) -> InvalidConfig:
    msg = f"{place}: '{file.name}' is no signature as the program model_signing writes it"
    return InvalidConfig(msg)
