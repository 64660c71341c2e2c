"""The calls of the shared memory extensions: register, unregister and list regions."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from inferd.api.call import ApiCall, Rest, Rpc
from inferd.core.change import AddCudaRegion, AddSystemRegion, DropRegions
from inferd.engine.engine import Engine
from inferd.errors import InvalidRequest
from inferd.wire.v2.grpc import shared_memory as grpc_wire
from inferd.wire.v2.rest import shared_memory as rest_wire


async def _unregister(word: str, engine: Engine, region: str = "") -> None:
    """Unregister one region, or all; an unknown one is not an error."""
    engine.regions.check_allowed()
    await engine.changes.change(DropRegions(word, region))


def _check(word: str, engine: Engine, *region: str) -> None:
    """Refuse a registration that is not allowed, or whose URL names no region."""
    engine.regions.check_allowed()  # first: the body matters only where it could be registered
    if not region:
        raise InvalidRequest(
            f"'region name' is necessary to register {word} shared memory region: "
            f"it belongs into the URL, .../region/NAME/register"
        )


def _calls(
    word: str,
    text: str,
    status: Callable[..., object],
    register: Callable[..., Awaitable[None]],
    decode_body: Callable[..., object],
) -> tuple[ApiCall, ...]:
    """Return the calls for one kind of memory, called `word` in them and `text` in their texts."""
    title = word.capitalize()
    path = f"/v2/{word}sharedmemory[/region/{{region}}]"

    def call(rest: Rest, decode: Any, encode: Any, function: Callable[..., object]) -> ApiCall:
        rpc = f"{title}SharedMemory{rest.path.rpartition('/')[2].capitalize()}"
        decode = decode or partial(grpc_wire.decode_region_name, rpc)
        encode = encode or (lambda _result: grpc_wire.encode_done(rpc))
        section = f"{word}_shared_memory"
        return ApiCall("shared-memory", section, rest, Rpc(rpc, decode, encode), function=function)

    return (
        call(
            Rest(
                "GET",
                f"{path}/status",
                f"{word}Regions",
                f"The regions of {text}.",
                f"{title}Regions",
                errors=(404, 501),
                encode=rest_wire.encode_status,
            ),
            None,
            partial(grpc_wire.encode_status, title),
            status,
        ),
        call(
            Rest(
                "POST",
                f"{path}/register",
                f"add{title}Region",
                f"Register {text}; without a name it is refused.",
                "",
                f"{title}RegionRequest",
                (400, 500, 501),
                may_be_empty=False,
                decode=decode_body,
                check=partial(_check, word),
            ),
            partial(grpc_wire.decode_registration, title),
            None,
            register,
        ),
        call(
            Rest(
                "POST",
                f"{path}/unregister",
                f"drop{title}Region",
                "Forget a region, or all.",
                errors=(501,),
            ),
            None,
            None,
            partial(_unregister, word),
        ),
    )


CALLS = (
    *_calls(
        "system",
        "POSIX shared memory",
        lambda engine, region="": engine.regions.system_status(region),
        lambda engine, *wanted: engine.changes.change(AddSystemRegion(*wanted)),
        rest_wire.decode_system_registration,
    ),
    *_calls(
        "cuda",
        "GPU memory",
        lambda engine, region="": engine.regions.cuda_status(region),
        lambda engine, *wanted: engine.changes.change(AddCudaRegion(*wanted)),
        rest_wire.decode_cuda_registration,
    ),
)
