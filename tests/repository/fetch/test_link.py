"""Links with checksums: what models at them are called, and who is asked how."""

import pytest
from small_hub import basic, tar_of, zip_of

from inferd.errors import NotLoadable
from inferd.repository.fetch.url import model_url

CONTENT = b"a model"


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/resnet.onnx", "resnet"),
        ("/resnet/model.onnx", "resnet"),
        ("/a%20b.onnx", "a b"),
        ("/model.onnx", "model"),
    ],
)
def test_a_file_is_named_after_itself_or_its_folder(hub, fetch, tree, path, name):
    folder = fetch(hub.put(path.replace("%20", " "), CONTENT).replace(" ", "%20"))
    assert folder.name == name
    assert list(tree(folder).values()) == [CONTENT]


@pytest.mark.parametrize(
    ("file", "make"), [("r.tar.gz", tar_of), ("r.tgz", tar_of), ("r.zip", zip_of)]
)
def test_an_archive_is_unpacked(hub, fetch, tree, file, make):
    folder = fetch(hub.put(f"/{file}", make({"1/model.onnx": CONTENT})))
    assert folder.name == "r"
    assert tree(folder) == {"1/model.onnx": CONTENT}


def test_the_password_of_netrc_is_sent(hub, fetch, tmp_path):
    link = hub.put("/m.onnx", CONTENT)
    hub.secret = basic("me", "hidden")
    with pytest.raises(
        NotLoadable, match=r"/m.onnx' wants a login: put user and password into ~/.netrc"
    ):
        fetch(link)
    netrc = tmp_path / "home/.netrc"
    netrc.write_text("machine 127.0.0.1 login me password hidden\n")
    netrc.chmod(0o600)
    assert (fetch(link) / "m.onnx").read_bytes() == CONTENT


def test_another_checksum_is_refused(hub, fetch, tmp_path):
    link = hub.put("/m.onnx", CONTENT)
    hub.files["/m.onnx"] = b"another"
    with pytest.raises(NotLoadable, match=r"/m.onnx' is not what was announced: its SHA-256 is"):
        fetch(link)
    assert model_url(link).digest in link
