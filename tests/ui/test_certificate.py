import base64
import ssl
import subprocess

import pytest

from inferd.ui.certificate import names_in


@pytest.fixture
def made(tmp_path):
    """made(arguments of openssl...) is the text of a certificate."""

    def make(*more):
        key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
        command = ["openssl", "req", "-x509", *key, "-keyout", "key.pem", "-subj", "/CN=cn", *more]
        done = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
        return done.stdout

    return make


def test_the_names_of_a_certificate_are_found(made):
    names = "subjectAltName=IP:127.0.0.1,DNS:Box.Example.org,email:a@b.c,DNS:*.example.net"
    assert names_in(made("-addext", names)) == {"box.example.org", "*.example.net"}


def test_the_names_of_a_critical_extension_and_many_of_them_are_found(made):
    names = {f"host{number}.example.org" for number in range(300)}
    listed = ",".join(f"DNS:{name}" for name in sorted(names))
    assert names_in(made("-addext", f"subjectAltName=critical,{listed}")) == names


def test_of_a_chain_the_first_certificate_counts(made):
    first, second = (made("-addext", f"subjectAltName=DNS:{name}") for name in ("one", "two"))
    assert names_in(first + second) == {"one"}


def test_a_certificate_without_names_has_none(made):
    assert names_in(made()) == frozenset()


def test_what_is_no_certificate_has_no_names(made):
    text = made("-addext", "subjectAltName=DNS:box")
    lines = text.splitlines()
    begin, end = lines[0], lines[-1]
    for broken in ("", "key", f"{begin}\n!!!\n{end}", f"{begin}\n{end}"):
        assert names_in(broken) == frozenset()


def test_a_certificate_that_is_cut_off_anywhere_raises_nothing(made):
    der = ssl.PEM_cert_to_DER_cert(made("-addext", "subjectAltName=DNS:box"))
    for size in range(len(der)):
        text = base64.b64encode(der[:size]).decode()
        pem = f"-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n"
        assert names_in(pem) <= {"box"}
