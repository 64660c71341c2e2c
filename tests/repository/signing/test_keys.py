"""Who may sign: keys, certificates and their issuers; and which signed models load."""

import json
import os
import shutil

import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID

from inferd.errors import InvalidConfig
from inferd.repository.signing.bundle import read_bundle
from inferd.repository.signing.keys import TrustedKeys, check_signature, read_keys

AUTHORITY = (x509.BasicConstraints(ca=True, path_length=None), True)
NO_AUTHORITY = (x509.BasicConstraints(ca=False, path_length=None), True)
USAGE = x509.KeyUsage(True, *[False] * 8)  # for signatures, but not of certificates
CODE_SIGNING = (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING]), False)


def problem(keys, folder):
    return TrustedKeys(keys, "keys").problem(read_bundle(folder / "model.sig", "it"))


def pem(*certificates):
    return b"".join(one.public_bytes(Encoding.PEM) for one in certificates)


@pytest.mark.parametrize("curve", [ec.SECP256R1(), ec.SECP384R1(), ec.SECP521R1()])
def test_keys_of_three_curves_sign(folder, make_signer, curve):
    signer = make_signer(curve)
    signer.sign(folder)
    assert problem(signer.pem, folder) == ""
    assert problem(make_signer(curve).pem, folder) == "it is signed with another key"


@pytest.mark.parametrize("key", [rsa.generate_private_key(65537, 2048), ec.SECP256K1()])
def test_other_keys_are_refused(key):
    key = ec.generate_private_key(key) if isinstance(key, ec.EllipticCurve) else key
    encoded = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    with pytest.raises(InvalidConfig, match="keys: expected a key of the curve P-256"):
        TrustedKeys(encoded, "keys")


@pytest.fixture
def chain(issue, make_signer, folder):
    """chain(...) signs the folder; root and middle authorities are returned."""

    def make(root=AUTHORITY, middle=AUTHORITY, leaf=(CODE_SIGNING,), days=(-10, 10), sent=None):
        keys = [ec.generate_private_key(ec.SECP256R1()) for _ in range(2)]
        own_of_root = [AUTHORITY, root] if isinstance(root[0], x509.KeyUsage) else [root]
        above = issue(keys[0], "root", days=days, extensions=own_of_root)
        between = issue(keys[1], "middle", above, keys[0], extensions=[middle])
        signer = make_signer()
        own = issue(signer.key, "signer", between, keys[1], (-5, -1), leaf)
        signer.chain = {"no middle": [own], None: [own, between]}[sent]
        signer.sign(folder)
        return own, between, above

    return make


def test_a_certificate_counts_whose_issuer_is_trusted_also_after_its_end(chain, folder):
    own, between, above = chain()
    assert problem(pem(above), folder) == ""
    assert problem(pem(between), folder) == ""
    assert problem(pem(own), folder) == ""


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"root": NO_AUTHORITY}, "nobody who is trusted has issued"),
        ({"middle": NO_AUTHORITY}, "nobody who is trusted has issued"),
        ({"root": (x509.BasicConstraints(ca=True, path_length=0), True)}, "nobody who is trusted"),
        ({"root": (x509.SubjectAlternativeName([x509.DNSName("x")]), True)}, "nobody who is"),
        ({"root": (USAGE, True)}, "nobody who is trusted has issued"),
        ({"days": (-30, -20)}, "nobody who is trusted has issued"),
        ({"sent": "no middle"}, "nobody who is trusted has issued"),
        ({"leaf": ()}, "its certificate is not for signing"),
        ({"leaf": [(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False)]}, "not for"),
        ({"leaf": [CODE_SIGNING, (x509.DNSName("x"), True)]}, "not for signing"),
    ],
)
def test_a_chain_that_is_broken_is_refused(chain, folder, changes, words):
    if any(isinstance(one, x509.DNSName) for one, _ in changes.get("leaf", ())):
        name = x509.SubjectAlternativeName([x509.DNSName("x")])
        changes = {"leaf": [CODE_SIGNING, (name, True)]}
    _, _, above = chain(**changes)
    assert words in problem(pem(above), folder)


def test_another_authority_of_the_same_name_is_refused(chain, folder, issue):
    chain()
    other = issue(ec.generate_private_key(ec.SECP256R1()), "root", extensions=[AUTHORITY])
    assert "nobody who is trusted" in problem(pem(other), folder)


def test_a_signature_that_is_not_of_its_certificate_is_refused(chain, folder, make_signer, issue):
    own, between, above = chain()
    make_signer(chain=[own, between]).sign(folder)
    assert problem(pem(above), folder) == "its signature is not that of its certificate"


def test_a_chain_that_is_no_chain_is_refused(chain, folder, make_signer):
    own, between, above = chain()
    make_signer(chain=[own] + [between] * 8).sign(folder)
    assert problem(pem(above), folder) == "it has 9 certificates, expected at most 8"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (bytes.fromhex("a003020102"), bytes.fromhex("a003020122")),  # version 35
        (bytes.fromhex("06072a8648ce3d0201"), bytes.fromhex("06072a8648ce3d0e01")),  # kind of key
        (bytes.fromhex("06082a8648ce3d030107"), bytes.fromhex("06082a8648ce3d030147")),  # curve
        (b"\x30", b"\x31"),
    ],
)
def test_certificates_that_cannot_be_read_are_refused(signed, old, new):
    bundle = read_bundle(signed / "certificate.sig", "it")
    first, *others = bundle.certificates
    assert old in first
    changed = msgspec.structs.replace(bundle, certificates=(first.replace(old, new, 1), *others))
    keys = TrustedKeys((signed / "ca.pem").read_bytes(), "keys")
    assert keys.problem(bundle) == ""
    assert keys.problem(changed) == "one of its certificates cannot be read"


def test_a_certificate_that_says_something_twice_is_refused(signed):
    bundle = read_bundle(signed / "certificate.sig", "it")
    first, *others = bundle.certificates
    usage, identifier = bytes.fromhex("0603551d25"), bytes.fromhex("0603551d0e")
    assert usage in first and identifier in first
    twice = first.replace(usage, identifier)
    changed = msgspec.structs.replace(bundle, certificates=(twice, *others))
    keys = TrustedKeys((signed / "ca.pem").read_bytes(), "keys")
    assert keys.problem(changed) == "one of its certificates is not as expected"


def check(model, pem, *names, signature=""):
    keys = read_keys([str(pem)], "--require-signatures")
    check_signature(model, keys, names or ["echo"], "it", signature)


@pytest.mark.parametrize("signature", ["model.sig", "shards.sig", "blake2.sig"])
def test_what_the_program_model_signing_has_signed_is_accepted(signed, signature):
    if signature != "model.sig":
        shutil.copy(signed / signature, signed / "echo/model.sig")
    check(signed / "echo", signed / "pub.pem")


def test_what_it_has_signed_with_a_certificate_is_accepted(signed):
    shutil.copy(signed / "certificate.sig", signed / "echo/model.sig")
    check(signed / "echo", signed / "ca.pem")
    with pytest.raises(InvalidConfig, match="it: nobody who is trusted has issued its certificate"):
        check(signed / "echo", signed / "pub.pem")


def test_a_single_file_that_it_has_signed_is_accepted(signed):
    check(signed / "single.onnx", signed / "pub.pem", "single", "single.onnx")
    (signed / "single.onnx").write_bytes(b"Weights")
    with pytest.raises(InvalidConfig, match="it: the file was changed after it was signed"):
        check(signed / "single.onnx", signed / "pub.pem", "single.onnx")


def change(folder):
    (folder / "1/weights.bin").write_bytes(b"Weights")


def change_size(folder):
    with (folder / "1/weights.bin").open("ab") as file:
        file.write(b"x")


def add(folder):
    (folder / "1/model.py").write_text("")


def add_hidden(folder):
    (folder / ".hidden").write_text("")


def add_bytecode(folder):
    (folder / "1/__pycache__").mkdir()
    (folder / "1/__pycache__/model.cpython-311.pyc").write_text("")


def remove(folder):
    (folder / "1/weights.bin").unlink()


def link(folder):
    (folder / "1/weights.bin").rename(folder / "1/other")
    (folder / "1/weights.bin").symlink_to("other")


def pipe(folder):
    os.mkfifo(folder / "pipe")


@pytest.mark.parametrize("signature", ["model.sig", "shards.sig", "blake2.sig"])
@pytest.mark.parametrize(
    ("tamper", "words"),
    [
        (change, "'1/weights.bin' was changed after it was signed"),
        (change_size, "'1/weights.bin' was changed after it was signed"),
        (add, "'1/model.py' was not signed"),
        (add_hidden, "'.hidden' was not signed"),
        (add_bytecode, r"__pycache__/.* was not signed \(set PYTHONDONTWRITEBYTECODE=1\)"),
        (remove, "'1/weights.bin' is missing"),
        (link, "'1/weights.bin' is a link, and none was signed"),
        (pipe, "'pipe' is no plain file"),
    ],
)
def test_a_changed_model_is_refused_and_the_file_named(signed, signature, tamper, words):
    if signature != "model.sig":
        shutil.copy(signed / signature, signed / "echo/model.sig")
    tamper(signed / "echo")
    with pytest.raises(InvalidConfig, match=f"^it: .*{words}$"):
        check(signed / "echo", signed / "pub.pem")


def test_a_signature_replayed_for_another_model_is_refused(signed):
    shutil.copytree(signed / "echo", signed / "other")
    with pytest.raises(InvalidConfig, match="it: it was signed as 'echo', expected 'other'"):
        check(signed / "other", signed / "pub.pem", "other")
    check(signed / "other", signed / "pub.pem", "other", "*")


def test_a_signature_of_another_model_is_refused(signed, folder):
    shutil.copy(signed / "echo/model.sig", folder / "model.sig")
    with pytest.raises(InvalidConfig, match=r"'1/weights.bin' was changed after"):
        check(folder, signed / "pub.pem")


def test_a_model_without_a_signature_is_refused(signed):
    (signed / "echo/model.sig").unlink()
    with pytest.raises(InvalidConfig, match=r"it: there is no file 'model.sig' with a signature"):
        check(signed / "echo", signed / "pub.pem")


def test_another_key_is_refused(signed, make_signer, tmp_path):
    (tmp_path / "other.pem").write_bytes(make_signer().pem)
    with pytest.raises(InvalidConfig, match=r"it: it is signed with another key$"):
        check(signed / "echo", tmp_path / "other.pem")


def test_one_of_several_keys_is_enough(signed, make_signer, tmp_path):
    pem = make_signer().pem + (signed / "pub.pem").read_bytes() + (signed / "ca.pem").read_bytes()
    (tmp_path / "keys.pem").write_bytes(pem)
    check(signed / "echo", tmp_path / "keys.pem")


def test_a_changed_payload_is_refused(signed):
    file = signed / "echo/model.sig"
    bundle = json.loads(file.read_text())
    payload = bundle["dsseEnvelope"]["payload"]
    bundle["dsseEnvelope"]["payload"] = payload[:-8] + "AAAA" + payload[-4:]
    file.write_text(json.dumps(bundle))
    with pytest.raises(InvalidConfig, match="it: its signature does not fit the key"):
        check(signed / "echo", signed / "pub.pem")


@pytest.mark.parametrize("text", ["", "no key", "-----BEGIN PUBLIC KEY-----\nx", "-----BEGIN CERT"])
def test_a_file_that_is_no_key_is_refused_at_once(tmp_path, text):
    (tmp_path / "key.pem").write_text(text)
    with pytest.raises(InvalidConfig, match=r"^--require-signatures: .*key.pem: "):
        read_keys([str(tmp_path / "key.pem")], "--require-signatures")


def test_a_key_that_is_not_there_is_said(tmp_path):
    with pytest.raises(InvalidConfig, match="none is no file"):
        read_keys([str(tmp_path / "none")], "--require-signatures")
    assert read_keys([], "--require-signatures") is None
