"""A client of any server that speaks V2 (Open Inference Protocol), over REST or gRPC.

    from inferd.client import connect

    with connect("http://127.0.0.1:8000") as client:
        client.infer("resnet", {"image": image})["prob"]

AsyncClient is the same for asyncio. docs/guide/python_client.md shows what else there is.
"""

from inferd.client.aio.client import AsyncClient
from inferd.client.errors import (
    BadAnswer,
    Busy,
    ClientError,
    ConnectFailed,
    ConnectionLost,
    DeadlineExceeded,
    Denied,
    InvalidArgument,
    InvalidTarget,
    NotFound,
    ServerError,
)
from inferd.client.result import InferResult, RankedClass
from inferd.client.sync.client import Client
from inferd.errors import InferdError, InvalidRequest

connect = Client

__all__ = [
    "AsyncClient",
    "BadAnswer",
    "Busy",
    "Client",
    "ClientError",
    "ConnectFailed",
    "ConnectionLost",
    "DeadlineExceeded",
    "Denied",
    "InferResult",
    "InferdError",
    "InvalidArgument",
    "InvalidRequest",
    "InvalidTarget",
    "NotFound",
    "RankedClass",
    "ServerError",
    "connect",
]
