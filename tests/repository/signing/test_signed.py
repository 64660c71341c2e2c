"""Signed models: what loads, what does not, and what is said then."""

import json
import os
import shutil

import pytest

from inferd.errors import InvalidConfig
from inferd.repository.signing.keys import check_signature, read_keys


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
