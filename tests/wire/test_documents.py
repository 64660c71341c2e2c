"""The documents in the package, and that clients can be made from them."""

import json

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from grpc_tools import protoc

import inferd
from inferd.wire.documents import openapi, proto_files
from inferd.wire.proto import pool


def test_the_openapi_document_is_of_this_version():
    assert json.loads(openapi())["info"]["version"] == inferd.__version__


def test_the_proto_files_alone_make_the_services_the_server_has(tmp_path):
    for name, text in proto_files().items():
        (tmp_path / name).write_bytes(text)
    built = tmp_path / "built"
    sources = [str(tmp_path / name) for name in proto_files()]
    command = ["protoc", f"--proto_path={tmp_path}", f"--descriptor_set_out={built}", *sources]
    assert protoc.main(command) == 0
    made = FileDescriptorSet.FromString(built.read_bytes())
    services = [(file.package, service) for file in made.file for service in file.service]
    assert len(services) == 5
    for package, service in services:
        known = pool().FindServiceByName(f"{package}.{service.name}")
        assert [rpc.name for rpc in service.method] == [rpc.name for rpc in known.methods]
