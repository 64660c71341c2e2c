"""Files of signatures and what they say is signed: read as Sigstore's bundles, or refused."""

import hashlib
import json

import pytest

from inferd.errors import InvalidConfig
from inferd.repository.signing.bundle import SignedManifest, difference, read_bundle, read_manifest
from inferd.repository.signing.keys import TrustedKeys, check_signature


def test_a_bundle_has_what_was_signed_by_whom(signed):
    bundle = read_bundle(signed / "echo/model.sig", "it")
    assert json.loads(bundle.payload)["subject"][0]["name"] == "echo"
    assert bundle.certificates == () and len(bundle.hint) == 64
    assert bundle.signed.startswith(b"DSSEv1 28 application/vnd.in-toto+json ")
    assert len(read_bundle(signed / "certificate.sig", "it").certificates) == 2


def edit(**changes):
    def run(bundle):
        for path, value in changes.items():
            *parents, last = path.split("__")
            place = bundle
            for name in parents:
                place = place[name]
            place[last] = value

    return run


@pytest.mark.parametrize(
    "change",
    [
        edit(mediaType="application/json"),
        edit(dsseEnvelope=None),
        edit(verificationMaterial=[]),
        edit(dsseEnvelope__payloadType="text/plain"),
        edit(dsseEnvelope__payload="%%%"),
        edit(dsseEnvelope__signatures=[]),
        edit(dsseEnvelope__signatures=[{"sig": "eA=="}] * 2),
        edit(dsseEnvelope__signatures=[{"sig": "?"}]),
    ],
)
def test_what_is_no_bundle_is_refused(signed, change):
    file = signed / "echo/model.sig"
    bundle = json.loads(file.read_text())
    change(bundle)
    file.write_text(json.dumps(bundle))
    with pytest.raises(InvalidConfig, match=r"^it: 'model.sig' is no signature as the program"):
        read_bundle(file, "it")


@pytest.mark.parametrize("content", [b"", b"\xff", b'{"x":' * 100_000, b"{}"])
def test_other_contents_are_refused(tmp_path, content):
    (tmp_path / "model.sig").write_bytes(content)
    with pytest.raises(InvalidConfig, match=r"^it: 'model.sig' is no signature"):
        read_bundle(tmp_path / "model.sig", "it")


HEX = "ab" * 32


def row(name, digest=HEX, algorithm="sha256"):
    return {"name": name, "algorithm": algorithm, "digest": digest}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"predicateType": "https://model_signing/Digests/v0.1"}, "is no model in version 1.0"),
        ({"_type": "https://in-toto.io/Statement/v0.1"}, "is no model in version 1.0"),
        ({"subject": []}, "is no model in version 1.0"),
        ({"subject": [{"name": "echo", "digest": {"sha256": HEX}}]}, "contradicts itself"),
        ({"predicate": {}}, "is no model, or was signed before version 1.0"),
        ({"resources": [row("a"), row("a")]}, "contradicts itself"),
        ({"resources": [row("a", algorithm="blake3")]}, "digests are of blake3, expected sha256"),
        ({"resources": [row("a", algorithm="md5")]}, "digests are of md5, expected sha256"),
        ({"resources": []}, "digests are of none"),
        ({"serialization": {"method": "other"}}, "is no model in version 1.0"),
    ],
)
def test_statements_that_are_wrong_are_refused(folder, make_signer, changes, words):
    signer = make_signer()
    signer.sign(folder, **changes)
    with pytest.raises(InvalidConfig, match=f"^it: .*{words}"):
        check_signature(folder, TrustedKeys(signer.pem, "keys"), ["echo"], "it")


@pytest.mark.parametrize("payload", [b"\xff", b'{"x":' * 100_000])
def test_a_payload_that_is_no_statement_is_refused(payload):
    with pytest.raises(InvalidConfig, match=r"^it: what is signed is no model"):
        read_manifest(payload, "it")


def test_paths_that_the_signer_passed_over_are_passed_over(folder, make_signer):
    signer = make_signer()
    (folder / ".git/objects").mkdir(parents=True)
    signer.sign(folder)
    (folder / ".git/objects/x").write_text("changed")
    check_signature(folder, TrustedKeys(signer.pem, "keys"), ["echo"], "it")
    (folder / ".gitx").write_text("added")
    with pytest.raises(InvalidConfig, match=r"'.gitx' was not signed"):
        check_signature(folder, TrustedKeys(signer.pem, "keys"), ["echo"], "it")


def test_links_that_were_signed_are_followed_to_files_and_not_to_folders(folder, make_signer):
    signer = make_signer()
    (folder / "1/link").symlink_to("weights.bin")
    signer.sign(folder, serialization={"allow_symlinks": True})
    check_signature(folder, TrustedKeys(signer.pem, "keys"), ["echo"], "it")
    (folder / "more").symlink_to("1")
    with pytest.raises(InvalidConfig, match="'more' is a link to a folder"):
        check_signature(folder, TrustedKeys(signer.pem, "keys"), ["echo"], "it")


@pytest.mark.parametrize("parts", [[(0, 4)], [(4, 8)], [(0, 4), (5, 8)], [(0, 4), (4, 9)]])
def test_shards_have_to_be_the_whole_file(tmp_path, parts):
    (tmp_path / "m").mkdir()
    (tmp_path / "m/a").write_bytes(content := b"12345678")
    digests = {
        f"a:{begin}:{end}": hashlib.sha256(content[begin:end]).hexdigest() for begin, end in parts
    }
    manifest = SignedManifest("m", "sha256", digests, frozenset(), False, True)
    found = difference(manifest, tmp_path / "m", tmp_path / "m/model.sig")
    assert found == "'a' was changed after it was signed"
