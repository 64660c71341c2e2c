"""The TRTIS API's messages over gRPC: an inference (I), or a call about shared memory (M)."""

from inferd.errors import InferdError
from inferd.wire.proto import message_class
from inferd.wire.trtis.grpc import decode_infer_request, decode_memory_call

INFER = message_class("nvidia.inferenceserver.InferRequest")
MEMORY = message_class("nvidia.inferenceserver.SharedMemoryControlRequest")


def _seeds() -> list[bytes]:
    plain = INFER(model_name="m", model_version=1, raw_input=[b"abcd"])
    plain.meta_data.id = 300
    plain.meta_data.batch_size = 1
    one = plain.meta_data.input.add(name="x", batch_byte_size=4)
    one.dims.append(4)
    plain.meta_data.output.add(name="y").cls.count = 2
    shared = INFER(model_name="m", model_version=-1)
    where = shared.meta_data.input.add(name="x").shared_memory
    where.name, where.byte_size = "r", 4
    seeds = [b"I" + one.SerializeToString() for one in (plain, shared)]
    region = MEMORY()
    region.register.name = "r"
    region.register.system_shared_memory.shared_memory_key = "/k"
    region.register.byte_size = 4
    return [*seeds, b"M" + region.SerializeToString()]


SEEDS = _seeds()


def target(data: bytes) -> bool:
    """Read twice, since messages are remembered; return whether it is one."""
    first, second = _told(data), _told(data)
    assert first == second, (first, second)
    return first is not None


def _told(data: bytes) -> object:
    try:
        if data[:1] == b"M":
            return repr(decode_memory_call(data[1:]))
        read = decode_infer_request(data[1:])
    except InferdError:
        return None
    header = read.header.asdict() | {"words": b""}  # what is remembered is known by its words
    return read.model, read.version, repr(header)
