"""OCI registries: images with models, artefacts of files, indexes, tags that move."""

import hashlib
import json
import platform

import pytest
from small_hub import LAYER, tar_of

from inferd.errors import NotLoadable
from inferd.repository.fetch.oci import base_of

TITLE = "org.opencontainers.image.title"
OTHER = "application/vnd.unknown.artifact.v1+json"


@pytest.fixture
def place(hub):
    """The URL of the registry's repository team/resnet, without a tag."""
    return f"oci://127.0.0.1:{hub.server_port}/team/resnet"


def test_of_an_image_its_models_are_fetched(hub, fetch, tree, place):
    base = tar_of({"bin/sh": b"x", "etc/passwd": b"x"}, links=[("sbin", "bin")])
    models = tar_of({"models/config.pbtxt": b"", "models/1/model.onnx": b"m"})
    hub.put_image("team/resnet", "v1", [base, models])
    folder = fetch(f"{place}:v1")
    assert folder.name == "resnet"
    assert tree(folder) == {"config.pbtxt": b"", "1/model.onnx": b"m"}


def test_an_artefact_of_files_is_fetched(hub, fetch, tree, place):
    files = [(b"m", {TITLE: "1/model.onnx"}, "application/octet-stream")]
    files.append((b"c", {TITLE: "config.pbtxt"}, "text/plain"))
    files.append((tar_of({"x": b"1"}), {TITLE: "env.tar.gz"}, LAYER))
    hub.put_image("team/resnet", "latest", files, config=OTHER)
    found = {"1/model.onnx": b"m", "config.pbtxt": b"c", "env.tar.gz": files[2][0]}
    assert tree(fetch(place)) == found


def test_of_two_files_with_one_path_the_later_is_fetched(hub, fetch, tree, place):
    titles = [(b"one", "x"), (b"two", "x"), (b"one", "y"), (b"same", "z"), (b"same", "z")]
    files = [(content, {TITLE: title}, "text/plain") for content, title in titles]
    hub.put_image("team/resnet", "latest", files, config=OTHER)
    assert tree(fetch(place)) == {"x": b"two", "y": b"one", "z": b"same"}


@pytest.mark.parametrize(
    ("notes", "media"),
    [
        ({TITLE: "models", "io.deis.oras.content.unpack": "true"}, "application/x"),
        ({}, "application/vnd.kitops.modelkit.model.v1.tar+gzip"),
        ({"org.cncf.model.filepath": "r"}, "application/vnd.cncf.model.weight.v1.tar+gzip"),
    ],
)
def test_layers_that_are_archives_are_unpacked(hub, fetch, tree, place, notes, media):
    layer = (tar_of({"1/model.onnx": b"m"}), notes, media)
    hub.put_image("team/resnet", "latest", [layer], config=OTHER)
    assert tree(fetch(place)) == {"1/model.onnx": b"m"}


@pytest.mark.parametrize("path", ["../x", "{there}/x", "a/../../x", "..\\x"])
def test_a_title_that_leads_out_is_refused(hub, fetch, place, tmp_path, path):
    path = path.format(there=tmp_path)
    hub.put_image("team/resnet", "latest", [(b"bad", {TITLE: path}, "text/plain")], config=OTHER)
    with pytest.raises(NotLoadable, match=r"resnet' has '.*x', which leads out of it$"):
        fetch(place)
    assert not list(tmp_path.rglob("x"))


def test_a_layer_without_a_name_is_refused(hub, fetch, place):
    hub.put_image("team/resnet", "latest", [(b"x", {}, "text/plain")], config=OTHER)
    with pytest.raises(NotLoadable, match=f"type 'text/plain' has no name, .* annotation {TITLE}"):
        fetch(place)


def test_a_layer_that_is_not_what_the_manifest_says_is_refused(hub, fetch, place):
    layer = tar_of({"models/1/model.onnx": b"m"})
    hub.put_image("team/resnet", "latest", [layer])
    digest = hashlib.sha256(layer).hexdigest()
    hub.files[f"/v2/team/resnet/blobs/sha256:{digest}"] = layer[:-1] + b"x"
    with pytest.raises(NotLoadable, match=f"announced: its SHA-256 is .*, expected {digest}"):
        fetch(place)


def test_a_manifest_that_is_not_the_digest_wanted_is_refused(hub, fetch, place):
    digest = hub.put_image("team/resnet", "v1", [tar_of({"models/m": b"m"})])
    hub.files[f"/v2/team/resnet/manifests/{digest}"] += b" "
    with pytest.raises(NotLoadable, match=f"its manifest has the digest .*, expected {digest}"):
        fetch(f"{place}@{digest}")


def test_a_tag_that_moved_leads_to_another_model_and_a_digest_does_not(hub, fetch, tree, place):
    digest = hub.put_image("team/resnet", "v1", [tar_of({"models/m": b"1"})])
    first = fetch(f"{place}@{digest}")
    assert fetch(f"{place}:v1") == first
    hub.put_image("team/resnet", "v1", [tar_of({"models/m": b"2"})])
    assert tree(fetch(f"{place}:v1")) == {"m": b"2"}
    hub.requests.clear()
    assert fetch(f"{place}@{digest}") == first
    assert hub.requests == []


def index(hub, tag, *entries):
    rows = []
    for system, machine, content in entries:
        digest = hub.put_image("team/resnet", content, [tar_of({"models/m": content.encode()})])
        row = {"digest": digest, "size": 1, "mediaType": "x"}
        rows.append(row | ({"platform": {"os": system, "architecture": machine}} if system else {}))
    hub.put_manifest("team/resnet", tag, {"manifests": rows})


def test_of_an_index_the_image_for_this_machine_is_taken(hub, fetch, tree, place):
    machine = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]
    other = {"amd64": "arm64", "arm64": "amd64"}[machine]
    known = (("linux", other, "a"), ("windows", machine, "b"))
    index(hub, "all", *known, ("linux", machine, "c"))
    assert tree(fetch(f"{place}:all")) == {"m": b"c"}
    index(hub, "any", *known, ("", "", "d"))
    assert tree(fetch(f"{place}:any")) == {"m": b"d"}
    index(hub, "none", *known)
    with pytest.raises(
        NotLoadable, match=rf"is not there for linux/{machine}, but for linux/{other}"
    ):
        fetch(f"{place}:none")


@pytest.mark.parametrize(
    ("manifest", "words"),
    [
        ({"layers": []}, "has 0 layers, expected some"),
        (
            {"layers": [{"digest": "md5:12", "size": 1}]},
            "has the digest 'md5:12', expected SHA-256",
        ),
        ({"layers": [{"digest": f"sha256:{'0' * 64}", "size": -1}]}, "expected SHA-256"),
        ({"layers": [{"digest": "sha256:../x", "size": 1}]}, "expected SHA-256"),
        ({"manifests": [{"digest": "other", "size": 1}]}, "a manifest has the digest 'other', exp"),
        ({"layers": 3}, "its manifest is not as expected"),
        (b'{"x":' * 100_000, "its manifest is not as expected"),
    ],
)
def test_manifests_that_are_wrong_are_refused(hub, fetch, place, manifest, words):
    body = manifest if isinstance(manifest, bytes) else json.dumps(manifest).encode()
    hub.files["/v2/team/resnet/manifests/latest"] = body
    with pytest.raises(NotLoadable, match=words):
        fetch(place)


@pytest.mark.parametrize("titles", [("a", "a/b/c"), ("a/b", "a")])
def test_what_is_a_file_and_a_folder_is_refused(hub, fetch, place, titles):
    layers = [(b"x", {TITLE: title}) for title in titles]
    hub.put_image("team/resnet", "latest", layers, kind="application/x", config="application/x")
    with pytest.raises(NotLoadable, match="has 'a' as a file and as a folder"):
        fetch(place)


@pytest.mark.parametrize("size", [1 << 50, 3])
def test_a_layer_is_never_more_than_its_size(hub, fetch, place, size):
    digest = hub.put_blob("team/resnet", tar_of({"models/m": b"m"}))
    config = {"mediaType": "application/vnd.oci.image.config.v1+json", "size": 2, "digest": digest}
    layers = [{"digest": digest, "size": size, "mediaType": LAYER}]
    hub.put_manifest("team/resnet", "latest", {"config": config, "layers": layers})
    with pytest.raises(NotLoadable, match=r"allowed are|sends more than the 3 bytes"):
        fetch(place)


@pytest.mark.parametrize(
    ("host", "base"),
    [
        ("ghcr.io", "https://ghcr.io"),
        ("docker.io", "https://registry-1.docker.io"),
        ("localhost:5000", "http://localhost:5000"),
        ("[::1]:5000", "http://[::1]:5000"),
        ("127.0.0.1.example.com", "https://127.0.0.1.example.com"),
    ],
)
def test_only_a_registry_on_this_machine_is_asked_without_tls(host, base):
    assert base_of(host) == base
