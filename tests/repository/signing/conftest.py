"""Models that were signed by the program model_signing, and signatures made here."""

import base64
import hashlib
import json
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import NameOID

DATA = Path(__file__).parents[2] / "data/signed"
TYPE = "application/vnd.in-toto+json"


@pytest.fixture
def signed(tmp_path):
    """A copy of what model_signing 1.1.1 has signed: see tests/data/signed/README.md."""
    shutil.copytree(DATA, tmp_path / "signed")
    return tmp_path / "signed"


class Signer:
    """Signs models as OpenSSF Model Signing does; `chain` are certificates, its own first."""

    def __init__(self, curve=None, chain=()):
        self.key = ec.generate_private_key(curve or ec.SECP256R1())
        self.chain = chain
        encoded = self.key.public_key().public_bytes(
            Encoding.PEM, PublicFormat.SubjectPublicKeyInfo
        )
        self.pem = encoded

    def sign(self, folder, name=None, **changes):
        """Write model.sig into `folder`. `changes` are of the statement, by field."""
        files = sorted(p for p in folder.rglob("*") if p.is_file() and p.name != "model.sig")
        rows = []
        for file in files:
            digest = hashlib.sha256(file.read_bytes()).hexdigest()
            path = file.relative_to(folder).as_posix()
            rows.append({"name": path, "algorithm": "sha256", "digest": digest})
        how = {"method": "files", "hash_type": "sha256", "allow_symlinks": False}
        how["ignore_paths"] = [".git", "model.sig"]
        rows = changes.pop("resources", rows)
        how |= changes.pop("serialization", {})
        root = hashlib.sha256(b"".join(bytes.fromhex(row["digest"]) for row in rows)).hexdigest()
        statement = {
            "_type": "https://in-toto.io/Statement/v1",
            "subject": [{"name": name or folder.name, "digest": {"sha256": root}}],
            "predicateType": "https://model_signing/signature/v1.0",
            "predicate": {"serialization": how, "resources": rows},
        }
        self.sign_payload(folder, json.dumps(statement | changes).encode())

    def sign_payload(self, folder, payload):
        signed = b"DSSEv1 %d %b %d %b" % (len(TYPE), TYPE.encode(), len(payload), payload)
        kind = {256: hashes.SHA256, 384: hashes.SHA384, 521: hashes.SHA512}[self.key.key_size]
        signature = self.key.sign(signed, ec.ECDSA(kind()))
        if self.chain:
            rows = [one.public_bytes(Encoding.DER) for one in self.chain]
            chain = [{"rawBytes": base64.b64encode(row).decode()} for row in rows]
            material = {"x509CertificateChain": {"certificates": chain}}
        else:
            material = {"publicKey": {"hint": hashlib.sha256(self.pem).hexdigest()}}
        bundle = {
            "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
            "verificationMaterial": material | {"tlogEntries": []},
            "dsseEnvelope": {
                "payload": base64.b64encode(payload).decode(),
                "payloadType": TYPE,
                "signatures": [{"sig": base64.b64encode(signature).decode(), "keyid": ""}],
            },
        }
        (folder / "model.sig").write_text(json.dumps(bundle))


@pytest.fixture
def make_signer():
    """make_signer(curve, chain) is a Signer with a key of its own."""
    return Signer


def issued(key, name, issuer=None, issuer_key=None, days=(-10, 10), extensions=()):
    """Return a certificate for `key`, issued by another, or by itself."""
    own = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(own)
        .issuer_name(issuer.subject if issuer else own)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + timedelta(days[0]))
        .not_valid_after(now + timedelta(days[1]))
    )
    for extension, critical in extensions:
        builder = builder.add_extension(extension, critical)
    return builder.sign(issuer_key or key, hashes.SHA256())


@pytest.fixture
def issue():
    return issued


@pytest.fixture
def folder(tmp_path):
    """A model called echo, not signed."""
    model = tmp_path / "models/echo"
    (model / "1").mkdir(parents=True)
    (model / "1/weights.bin").write_bytes(b"weights" * 100_000)
    tensor = '{ name: "x" data_type: TYPE_FP32 dims: 2 }'
    (model / "config.pbtxt").write_text(f'backend: "identity" input {tensor} output {tensor}')
    return model
