"""SignatureBundle: the file of a signature, and the list of files that it is of."""

import base64
import hashlib
import os
import re
import stat
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
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
        raise InvalidConfig(f"{place}: there is no file '{file.name}' with a signature")
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


_STATEMENT = "https://in-toto.io/Statement/v1"
_PREDICATE = "https://model_signing/signature/v1.0"
# At most 18 digits, as more would be a size that no file has; and
# Python takes long to read very many.
_SHARD = re.compile(r"(?P<name>.+):(?P<begin>\d{1,18}):(?P<end>\d{1,18})", re.DOTALL)
_ALGORITHMS = ("sha256", "blake2b")
_CHUNK_BYTES = 1 << 20
_COMPARED_AT_ONCE = 4
_MOST_FILES = 1_000_000

WHOLE = "."
"""The name of the one file, if what is signed is a file and no folder."""


class _Subject(msgspec.Struct):
    name: str
    digest: dict[str, str]


class _Resource(msgspec.Struct):
    name: str
    algorithm: str
    digest: str


class _Serialization(msgspec.Struct):
    method: str
    allow_symlinks: bool = False
    ignore_paths: list[str] = []


class _Predicate(msgspec.Struct):
    serialization: _Serialization
    resources: list[_Resource]


class _Statement(msgspec.Struct, rename="camel"):
    type: str = msgspec.field(name="_type")
    predicate_type: str
    subject: list[_Subject]
    predicate: _Predicate


class SignedManifest(msgspec.Struct, frozen=True):
    """What was signed: a model called `name`, with a digest for each file, or part of one.

    `digests` are by the name in the signature; `algorithm` is a name of hashlib's. The paths in
    `ignored` were passed over. With `has_shards` names are PATH:BEGIN:END.
    """

    name: str
    algorithm: str
    digests: Mapping[str, str]
    ignored: frozenset[str]
    has_links: bool
    has_shards: bool


def read_manifest(payload: bytes, place: str) -> SignedManifest:
    """Return what `payload` says was signed, whose signature has been verified.

    Raises InvalidConfig, which begins with `place`, for what is not understood.
    """
    try:
        said = msgspec.json.decode(payload, type=_Statement)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        msg = f"{place}: what is signed is no model, or was signed before version 1.0 of the format"
        raise InvalidConfig(msg) from None
    resources, how = said.predicate.resources, said.predicate.serialization
    # Digests of parts are called sha256-sharded-SIZE; the size is in the names, too.
    algorithms = {one.algorithm.partition("-sharded-")[0] for one in resources}
    is_known = said.type == _STATEMENT and said.predicate_type == _PREDICATE
    if not is_known or how.method not in ("files", "shards") or len(said.subject) != 1:
        raise InvalidConfig(f"{place}: what is signed is no model in version 1.0 of the format")
    if len(algorithms) != 1 or not algorithms <= {*_ALGORITHMS}:
        names = ", ".join(sorted(algorithms)) or "none"
        raise InvalidConfig(f"{place}: its digests are of {names}, expected sha256 or blake2b")
    digests = {one.name: one.digest.lower() for one in resources}
    # The subject's digest is that of all the others: a list whose files were exchanged would not
    # have it. A name that is there twice would leave open which digest counts.
    if len(digests) < len(resources) or said.subject[0].digest.get("sha256") != _root(resources):
        raise InvalidConfig(f"{place}: what is signed contradicts itself")
    return SignedManifest(
        said.subject[0].name,
        algorithms.pop(),
        digests,
        frozenset(how.ignore_paths),
        how.allow_symlinks,
        how.method == "shards",
    )


def difference(manifest: SignedManifest, root: Path, signature: Path) -> str:
    """Return in what the folder or file `root` differs from what was signed, "" if in nothing.

    `signature` is the file with the signature, which is not signed itself. Raises OSError.
    """
    if root.is_file():
        found = {WHOLE: root}
    else:
        found = {}
        for path in _below(root):
            name = path.relative_to(root).as_posix()
            # What the signer has passed over is in the signed list, so nobody else can add to it.
            if path == signature or _is_ignored(name, manifest.ignored):
                continue
            status = path.stat()
            # The contents would be compared all the same, but a link may lead
            # somewhere else when the model is loaded.
            if not manifest.has_links and path.is_symlink():
                return f"'{name}' is a link, and none was signed"
            if stat.S_ISDIR(status.st_mode):
                # os.walk does not follow it, so what is in it would be
                # loaded without having been compared.
                if path.is_symlink():
                    return f"'{name}' is a link to a folder"
                continue
            if not stat.S_ISREG(status.st_mode):
                return f"'{name}' is no plain file"
            found[name] = path
            if len(found) > _MOST_FILES:
                return f"it has more than {_MOST_FILES} files"
    return _compared(manifest, found)


def _compared(manifest: SignedManifest, found: Mapping[str, Path]) -> str:
    """Return the first of the files `found` that is not as signed, or is missing, "" if none is."""
    wanted: dict[str, list[tuple[int, int | None, str]]] = {}
    for name, digest in manifest.digests.items():
        shard = _SHARD.fullmatch(name) if manifest.has_shards else None
        if shard:
            part = int(shard["begin"]), int(shard["end"]), digest
            wanted.setdefault(shard["name"], []).append(part)
        else:
            wanted.setdefault(name, []).append((0, None, digest))
    # Anything unsigned is refused: Python would run a __pycache__ in place of
    # the code that was signed (decision 0049).
    for name in sorted(found.keys() - wanted.keys()):
        return f"'{name}' was not signed" + _hint(name)
    for name in sorted(wanted.keys() - found.keys()):
        return f"'{name}' is missing"

    def is_same(name: str) -> bool:
        return _is_same(found[name], sorted(wanted[name]), manifest.algorithm)

    names = sorted(wanted)
    with ThreadPoolExecutor(_COMPARED_AT_ONCE) as pool:
        for name, same in zip(names, pool.map(is_same, names), strict=True):
            if not same:
                shown = "the file" if name == WHOLE else f"'{name}'"
                return f"{shown} was changed after it was signed"
    return ""


def _is_same(path: Path, parts: list[tuple[int, int | None, str]], algorithm: str) -> bool:
    """Tell whether `parts` (begin, end, digest) are the whole of a file, and as they were."""
    at = 0
    with path.open("rb") as file:
        # Of the open file: the path may lead to another one by now.
        size = os.fstat(file.fileno()).st_size
        for begin, end, expected in parts:
            end = size if end is None else end
            # Parts have to follow one another from 0: with a gap, bytes would be unsigned.
            if begin != at or end > size:
                return False
            digest = hashlib.new(algorithm, usedforsecurity=True)
            while at < end and (chunk := file.read(min(_CHUNK_BYTES, end - at))):
                digest.update(chunk)
                at += len(chunk)
            if at != end or digest.hexdigest() != expected:
                return False
        # A byte that was added meanwhile is unsigned, too.
        return at == size and not file.read(1)


def _root(resources: list[_Resource]) -> str:
    """Return the digest of all digests, in their order, "" if one is no digest."""
    digest = hashlib.sha256()
    for one in resources:
        try:
            # The digests as bytes, in the order of the list: that is how
            # model_signing computes the root.
            digest.update(bytes.fromhex(one.digest))
        except ValueError:
            return ""
    return digest.hexdigest()


def _below(folder: Path) -> Iterator[Path]:
    """Yield all below `folder`, hidden files too; links are not followed."""
    # os.walk passes over folders that cannot be read, unless it is told
    # not to: their files would be unsigned.
    for parent, folders, files in os.walk(folder, onerror=_fail):
        for name in sorted((*folders, *files)):
            yield Path(parent, name)


def _fail(error: OSError) -> None:
    raise error


def _is_ignored(name: str, ignored: frozenset[str]) -> bool:
    parts = name.split("/")
    return any("/".join(parts[:count]) in ignored for count in range(1, len(parts) + 1))


def _hint(name: str) -> str:
    """Return what helps with files that Python has written beside a model's code."""
    return " (set PYTHONDONTWRITEBYTECODE=1)" if "__pycache__" in name else ""
