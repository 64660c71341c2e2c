"""TrustedKeys: who may sign models, and whether a model is as they have signed it."""

import hashlib
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from inferd.errors import InvalidConfig
from inferd.repository.contents import read_limited
from inferd.repository.signing.bundle import SignatureBundle, difference, read_bundle, read_manifest

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.x509 import Certificate

SIGNATURE_FILE = "model.sig"
"""The file of the signature in a model's folder; beside a bare file it is FILE.sig."""

ANY_NAME = "*"
_MAX_KEY_BYTES = 1 << 20
_PUBLIC_KEY, _CERTIFICATE = b"-----BEGIN PUBLIC KEY-----", b"-----BEGIN CERTIFICATE-----"
_END = b"-----END PUBLIC KEY-----"
_MAX_CHAIN = 8
# What OpenSSF Model Signing signs with on each curve; the bundle does not name its hash.
_HASHES = {"secp256r1": "SHA256", "secp384r1": "SHA384", "secp521r1": "SHA512"}


class TrustedKeys:
    """Compares signatures with the keys and certificates in PEM files.

    A key is one of an elliptic curve (P-256, P-384, P-521), as OpenSSF Model Signing has them. A
    certificate is that of the signer, or of an authority that has, perhaps through others, issued
    the signer's.
    """

    def __init__(self, pem: bytes, place: str) -> None:
        """Raises InvalidConfig, which begins with `place`, for what is neither."""
        try:
            # At the start, where the option is read, and not when the first model is.
            import cryptography  # noqa: F401 - looked for
        except ImportError:
            msg = f"{place} needs the package cryptography: pip install 'inferd[signatures]'"
            raise InvalidConfig(msg) from None
        self._keys = [_public_key(part, place) for part in _public_keys_in(pem)]
        self._roots = _certificates(pem, place) if _CERTIFICATE in pem else []
        if not self._keys and not self._roots:
            raise InvalidConfig(f"{place}: expected a public key or a certificate in PEM")

    def problem(self, bundle: SignatureBundle) -> str:
        """Return why `bundle` is signed by nobody who is trusted, "" if it is."""
        if not bundle.certificates:
            if any(_fits(key, bundle) for key in self._keys):
                return ""
            # The hint is not signed: it only helps to say what is wrong.
            known = {_hint(key) for key in self._keys}
            if bundle.hint and bundle.hint not in known:
                return "it is signed with another key"
            return "its signature does not fit the key: it was changed, or is another's"
        try:
            signer = self._signer(bundle.certificates)
        except _NotTrusted as error:
            return str(error)
        return "" if _fits(signer, bundle) else "its signature is not that of its certificate"

    def _signer(self, chain: Sequence[bytes]) -> "EllipticCurvePublicKey":
        """Return the key of the first certificate of `chain`, if somebody vouches for it."""
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey

        # Each step verifies a signature for each of the others, and the file is somebody else's.
        if len(chain) > _MAX_CHAIN:
            raise _NotTrusted(f"it has {len(chain)} certificates, expected at most {_MAX_CHAIN}")
        try:
            first, *others = [x509.load_der_x509_certificate(one) for one in chain]
            key = first.public_key()
        except _unreadable():
            raise _NotTrusted("one of its certificates cannot be read") from None
        if not isinstance(key, EllipticCurvePublicKey):
            raise _NotTrusted("its certificate has no key of an elliptic curve")
        try:
            if not _may_sign(first):
                raise _NotTrusted("its certificate is not for signing")
            # A signer's own certificate that was given needs no issuer.
            if first not in self._roots:
                # As OpenSSF Model Signing: valid when the signer's began to be, as nothing else
                # says when a model was signed, and models outlive certificates.
                self._follow(first, others, first.not_valid_before_utc)
        except _unreadable():
            raise _NotTrusted("one of its certificates is not as expected") from None
        return key

    def _follow(self, first: "Certificate", others: "list[Certificate]", at: datetime) -> None:
        """Raise _NotTrusted unless a root has issued `first`, through `others`."""
        current, below = first, 0
        while True:
            if any(_has_issued(root, current, at, below) for root in self._roots):
                return
            # By who has issued what, not by the order in the file, which nothing vouches for.
            following = [one for one in others if _has_issued(one, current, at, below)]
            if not following:
                raise _NotTrusted("nobody who is trusted has issued its certificate")
            current = following[0]
            # Each once: two authorities that certify each other would be a circle.
            others = [one for one in others if one != current]
            below += 1


class _NotTrusted(Exception):
    """Nobody vouches for a certificate; the text says why."""


def _unreadable() -> tuple[type[Exception], ...]:
    """Return what cryptography raises for certificates that it cannot read."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.x509 import DuplicateExtension, InvalidVersion, UnsupportedGeneralNameType

    return (
        ValueError,
        DuplicateExtension,
        InvalidVersion,
        UnsupportedAlgorithm,
        UnsupportedGeneralNameType,
    )


def _public_keys_in(pem: bytes) -> list[bytes]:
    """Return the public keys of a PEM file, each by itself."""
    # load_pem_public_key reads the first of a file and says nothing of the others.
    parts = pem.split(_PUBLIC_KEY)[1:]
    return [_PUBLIC_KEY + part.partition(_END)[0] + _END + b"\n" for part in parts]


def _public_key(pem: bytes, place: str) -> "EllipticCurvePublicKey":
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        key = load_pem_public_key(pem)
    except (ValueError, UnsupportedAlgorithm):
        raise InvalidConfig(f"{place}: a public key in it cannot be read") from None
    if not isinstance(key, EllipticCurvePublicKey) or key.curve.name not in _HASHES:
        raise InvalidConfig(f"{place}: expected a key of the curve P-256, P-384 or P-521")
    return key


def _certificates(pem: bytes, place: str) -> "list[Certificate]":
    from cryptography.x509 import load_pem_x509_certificates

    try:
        return load_pem_x509_certificates(pem)
    except _unreadable():
        raise InvalidConfig(f"{place}: a certificate in it cannot be read") from None


def _fits(key: "EllipticCurvePublicKey", bundle: SignatureBundle) -> bool:
    """Tell whether the holder of `key` has signed what is in `bundle`."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric.ec import ECDSA

    name = _HASHES.get(key.curve.name)
    if name is None:
        return False
    try:
        key.verify(bundle.signature, bundle.signed, ECDSA(getattr(hashes, name)()))
    except InvalidSignature:
        return False
    return True


def _hint(key: "EllipticCurvePublicKey") -> str:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    pem = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(pem).hexdigest()


def _may_sign(certificate: "Certificate") -> bool:
    from cryptography import x509
    from cryptography.x509.oid import ExtendedKeyUsageOID

    extensions = certificate.extensions
    if not _knows_all(certificate):
        return False
    try:
        # Either of the two is enough for OpenSSF Model Signing, too.
        if extensions.get_extension_for_class(x509.KeyUsage).value.digital_signature:
            return True
    except x509.ExtensionNotFound:
        pass
    try:
        usage = extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return False
    return ExtendedKeyUsageOID.CODE_SIGNING in usage


def _has_issued(issuer: "Certificate", one: "Certificate", at: datetime, below: int) -> bool:
    """Tell whether `issuer` was an authority, and issued `one`, with `below` others under that."""
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature

    wrong: tuple[type[Exception], ...] = (TypeError, InvalidSignature, *_unreadable())
    try:
        # Compares the names, and the signature with the issuer's key.
        one.verify_directly_issued_by(issuer)
    except wrong:
        return False
    if not issuer.not_valid_before_utc <= at <= issuer.not_valid_after_utc:
        return False
    try:
        basic = issuer.extensions.get_extension_for_class(x509.BasicConstraints).value
    except x509.ExtensionNotFound:
        return False
    # RFC 5280, section 4.2.1.9: without `ca` a certificate may not vouch for others, and the length
    # counts those between it and the signer.
    if not basic.ca or (basic.path_length is not None and below > basic.path_length):
        return False
    try:
        usage = issuer.extensions.get_extension_for_class(x509.KeyUsage).value
    except x509.ExtensionNotFound:
        # RFC 5280, section 6.1.4 (n): the bit has to be set only if there is a key usage.
        return _knows_all(issuer)
    return usage.key_cert_sign and _knows_all(issuer)


def _knows_all(certificate: "Certificate") -> bool:
    """Tell whether nothing critical is said in `certificate` that is not looked at here."""
    from cryptography import x509

    # RFC 5280, section 4.2: a critical extension that is not
    # processed makes the certificate invalid.
    known = (x509.BasicConstraints, x509.KeyUsage, x509.ExtendedKeyUsage)
    return not any(
        one.critical and not isinstance(one.value, known) for one in certificate.extensions
    )


def read_keys(files: Sequence[str], option: str) -> TrustedKeys | None:
    """Return the keys and certificates in `files`, which `option` names; None if there are none.

    Raises InvalidConfig.
    """
    if not files:
        return None
    content = b""
    for file in files:
        place = f"{option}: {file}"
        try:
            if not Path(file).is_file():  # opening a pipe would block until somebody writes
                raise InvalidConfig(f"{place} is no file")
            part = read_limited(Path(file), _MAX_KEY_BYTES, place)
        except OSError as error:
            raise InvalidConfig(f"{place} cannot be read: {error.strerror}") from error
        # Each by itself first, so that a complaint names its file.
        TrustedKeys(part, place)
        content += part + b"\n"
    return TrustedKeys(content, option)


def check_signature(
    model: Path, keys: TrustedKeys, names: Sequence[str], place: str, signature: str = ""
) -> None:
    """Raise InvalidConfig unless the folder or file `model` is what somebody trusted has signed.

    It has to have been signed under one of `names`, or any if ANY_NAME is one: otherwise a signed
    model could take the place of another. `signature` is the name of the file with the signature.
    """
    if model.is_dir():
        file = model / (signature or SIGNATURE_FILE)
    else:
        # Beside a bare file there may be others, with signatures of their own.
        file = model.with_name(f"{model.name}.sig")
    try:
        bundle = read_bundle(file, place)
        if problem := keys.problem(bundle):
            raise InvalidConfig(f"{place}: {problem}")
        manifest = read_manifest(bundle.payload, place)
        if manifest.name not in names and ANY_NAME not in names:
            msg = f"{place}: it was signed as '{manifest.name[:200]}', expected '{names[0]}'"
            raise InvalidConfig(msg)
        if found := difference(manifest, model, file):
            raise InvalidConfig(f"{place}: {found}")
    except OSError as error:
        raise InvalidConfig(f"{place}: a file cannot be read: {error.strerror}") from error
