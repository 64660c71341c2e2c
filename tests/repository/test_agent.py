import hashlib
import os
import shutil
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from onnx import TensorProto, helper

from inferd.config.model import ModelConfig, RepositoryAgent
from inferd.errors import InvalidConfig
from inferd.repository import agent
from inferd.repository.agent import run_agents
from inferd.repository.local import Reading, find_model, single_model
from inferd.repository.repositories import Repositories
from inferd.repository.signing.keys import read_keys

SIGNED = Path(__file__).parents[1] / "data/signed"
CONTENT = b"a model"
MD5 = hashlib.md5(CONTENT, usedforsecurity=False).hexdigest()
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "model.onnx").write_bytes(CONTENT)
    os.mkfifo(tmp_path / "pipe")
    return tmp_path


def config(*agents):
    return ModelConfig("m", model_repository_agents=agents)


@pytest.mark.parametrize("digest", [MD5, MD5.upper(), f" {MD5}\n"])
def test_files_with_the_right_digest_pass(folder, digest):
    given = {"MD5:1/model.onnx": digest, "SHA256:1/model.onnx": SHA256}
    run_agents(folder, config(RepositoryAgent("checksum", given), RepositoryAgent("checksum")))


@pytest.mark.parametrize(
    ("key", "digest", "words"),
    [
        ("MD5:1/model.onnx", "0" * 32, f"the MD5 of '1/model.onnx' is {MD5}, expected 0{{32}}$"),
        ("SHA256:1/model.onnx", MD5, f"the SHA256 of '1/model.onnx' is {SHA256}, expected {MD5}"),
        ("MD5:1/none", MD5, "there is no file '1/none' in the model's folder"),
        ("MD5:1", MD5, "there is no file '1'"),
        ("MD5:pipe", MD5, "there is no file 'pipe'"),
        ("MD5:../1/model.onnx", MD5, "parameter 'MD5:../1/model.onnx', expected MD5:FILE or SHA2"),
        ("MD5:/etc/passwd", MD5, "parameter 'MD5:/etc/passwd', expected"),
        ("MD5:", MD5, "parameter 'MD5:', expected"),
        ("CRC:1/model.onnx", MD5, "parameter 'CRC:1/model.onnx', expected"),
    ],
)
def test_other_files_are_refused_by_name(folder, key, digest, words):
    agent = RepositoryAgent("checksum", {key: digest})
    with pytest.raises(InvalidConfig, match=f"^model 'm', agent 'checksum': {words}"):
        run_agents(folder, config(agent))


def test_an_agent_that_is_not_known_is_refused_by_name(folder):
    words = "model 'm': there is no repository agent 'relocation', known are: checksum, signature"
    with pytest.raises(InvalidConfig, match=words):
        run_agents(folder, config(RepositoryAgent("relocation")))


@pytest.fixture
def together(monkeypatch):
    """together(count): digests are told once so many files are read at the same time."""
    read = hashlib.file_digest

    def expect(count):
        barrier = threading.Barrier(count)

        def file_digest(file, digest):
            barrier.wait(30)
            return read(file, digest)

        monkeypatch.setattr(hashlib, "file_digest", file_digest)

    return expect


def test_the_files_of_a_model_are_read_side_by_side(folder, together):
    together(4)
    given = {f"SHA256:{number * './'}1/model.onnx": SHA256 for number in range(8)}
    run_agents(folder, config(RepositoryAgent("checksum", given)))


def test_the_files_of_several_models_are_read_side_by_side(tmp_path, together):
    for name in "abcdefgh":
        (tmp_path / name / "1").mkdir(parents=True)
        (tmp_path / name / "1" / "model.onnx").write_bytes(CONTENT)
        digest = f'parameters {{ key: "MD5:1/model.onnx" value: "{MD5}" }}'
        (tmp_path / name / "config.pbtxt").write_text(
            f'model_repository_agents {{ agents {{ name: "checksum" {digest} }} }}'
        )
    together(4)
    assert [model.error for model in Repositories([tmp_path]).find_all()] == [None] * 8


def test_of_several_wrong_files_the_first_is_reported(folder):
    given = {f"MD5:{number * './'}1/none": MD5 for number in range(9)}
    with pytest.raises(InvalidConfig, match="there is no file '1/none'"):
        run_agents(folder, config(RepositoryAgent("checksum", given)))


def echo_signed_by(pem, **parameters):
    given = {"public_key": pem} | parameters
    return ModelConfig("echo", model_repository_agents=(RepositoryAgent("signature", given),))


@pytest.fixture
def echo(tmp_path):
    """A copy of a model that the program model_signing has signed."""
    return Path(shutil.copytree(SIGNED / "echo", tmp_path / "echo"))


def test_a_configuration_may_have_the_key_its_model_is_signed_with(echo):
    pem = (SIGNED / "pub.pem").read_text()
    run_agents(echo, echo_signed_by(pem))
    (echo / "model.sig").rename(echo / "1/by.sig")
    with pytest.raises(InvalidConfig, match=r"^model 'echo', agent 'signature': there is no file"):
        run_agents(echo, echo_signed_by(pem))
    run_agents(echo, echo_signed_by(pem, signature="1/by.sig"))
    (echo / "1/weights.bin").write_bytes(b"Weights")
    with pytest.raises(InvalidConfig, match=r"'signature': '1/weights.bin' was changed after"):
        run_agents(echo, echo_signed_by(pem, signature="1/by.sig"))


def test_a_certificate_may_take_the_place_of_the_key(echo):
    shutil.copy(SIGNED / "certificate.sig", echo / "model.sig")
    run_agents(echo, echo_signed_by((SIGNED / "ca.pem").read_text()))


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"key": "x"}, "parameter 'key', expected public_key, certificate, signature, name"),
        ({"public_key": ""}, "expected the parameter public_key or certificate, in PEM"),
        ({"public_key": "x"}, "expected a public key or a certificate in PEM"),
        ({"signature": "../x"}, "parameter 'signature' leads out of the model's folder"),
        ({"name": "other"}, "it was signed as 'echo', expected 'other'"),
    ],
)
def test_an_agent_that_is_set_wrongly_is_refused(echo, parameters, words):
    other = Path(shutil.move(echo, echo.with_name("there")))
    with pytest.raises(InvalidConfig, match=f"agent 'signature': {words}"):
        run_agents(other, echo_signed_by((SIGNED / "pub.pem").read_text(), **parameters))


def test_where_signatures_are_required_a_model_needs_one(echo):
    keys = read_keys([str(SIGNED / "pub.pem")], "--require-signatures")
    reading = Reading(keys=keys)
    assert find_model(echo, reading).error is None
    other = Path(shutil.copytree(echo, echo.with_name("other")))
    with pytest.raises(InvalidConfig, match="signed as 'echo', expected 'other'"):
        run_agents(other, ModelConfig("other"), keys=keys)
    allowed = echo_signed_by((SIGNED / "pub.pem").read_text(), name="echo")
    run_agents(other, replace(allowed, name="other"), keys=keys)
    (echo / "config.pbtxt").write_text('backend: "square"')
    error = find_model(echo, reading).error
    text = "model 'echo', --require-signatures: 'config.pbtxt' was changed after it was signed"
    assert error.message == text
    (echo / "m.onnx").write_bytes(b"")
    with pytest.raises(InvalidConfig, match=r"--require-signatures: there is no file 'm.onnx.sig'"):
        single_model(echo / "m.onnx", reading)


@pytest.mark.parametrize(
    ("name", "is_elsewhere", "is_refused"),
    [
        ("m.onnx", False, False),
        ("m.onnx", True, True),
        ("m.py", False, True),
        ("m.xml", False, True),
        ("m.tflite", False, False),
    ],
)
def test_a_file_that_loads_others_is_not_signed_by_itself(
    tmp_path, monkeypatch, name, is_elsewhere, is_refused
):
    tensor = TensorProto(data_location=TensorProto.EXTERNAL if is_elsewhere else 0)
    graph = helper.make_graph([], "g", [], [], [tensor])
    model = tmp_path / name
    model.write_bytes(helper.make_model(graph).SerializeToString())
    monkeypatch.setattr(agent, "check_signature", lambda *_: None)
    reading = Reading(keys=read_keys([str(SIGNED / "pub.pem")], "--require-signatures"))
    (tmp_path / f"{name}.sig").write_text("")
    assert single_model(model, reading).name == "m"
    (tmp_path / "m.data").write_bytes(b"not signed")
    if not is_refused:
        assert single_model(model, reading).name == "m"
        return
    words = f"^model 'm', --require-signatures: 'm.data' lies beside '{name}', which may load it"
    with pytest.raises(InvalidConfig, match=words):
        single_model(model, reading)
    assert single_model(model).name == "m"
