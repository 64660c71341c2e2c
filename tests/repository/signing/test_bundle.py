"""Files of signatures: read as Sigstore's bundles, or refused."""

import json

import pytest

from inferd.errors import InvalidConfig
from inferd.repository.signing.bundle import read_bundle


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
