"""What is signed: statements that are refused though their signatures are right."""

import hashlib

import pytest

from inferd.errors import InvalidConfig
from inferd.repository.signing.bundle import SignedManifest, difference, read_manifest
from inferd.repository.signing.keys import TrustedKeys, check_signature

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
