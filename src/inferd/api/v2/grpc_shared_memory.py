"""The gRPC methods of the shared memory extensions."""

from typing import Any

from inferd.http.grpc.handler import Call, Method, Unary
from inferd.shm.cuda import CudaRegion
from inferd.shm.regions import Regions
from inferd.shm.system import SystemRegion
from inferd.wire.v2.grpc import shared_memory as wire


class SharedMemoryMethods:
    """Registers, unregisters and lists regions."""

    def __init__(self, regions: Regions) -> None:
        self._regions = regions

    def methods(self) -> dict[str, Method]:
        """Return the methods by name."""
        return {
            "SystemSharedMemoryStatus": Unary(self.system_status),
            "SystemSharedMemoryRegister": Unary(self.add_system),
            "SystemSharedMemoryUnregister": Unary(self.drop_system),
            "CudaSharedMemoryStatus": Unary(self.cuda_status),
            "CudaSharedMemoryRegister": Unary(self.add_cuda),
            "CudaSharedMemoryUnregister": Unary(self.drop_cuda),
        }

    async def system_status(self, data: bytes, call: Call) -> list[Any]:
        """Return the status of one region, or of all."""
        name = wire.decode_region_name("SystemSharedMemoryStatus", data)
        return [wire.encode_system_status(self._regions.system_status(name))]

    async def add_system(self, data: bytes, call: Call) -> list[Any]:
        """Register a region."""
        self._regions.register_system(*wire.decode_system_registration(data))
        return [wire.encode_done("SystemSharedMemoryRegister")]

    async def drop_system(self, data: bytes, call: Call) -> list[Any]:
        """Unregister one region, or all; an unknown one is not an error."""
        name = wire.decode_region_name("SystemSharedMemoryUnregister", data)
        self._regions.unregister(SystemRegion, name)
        return [wire.encode_done("SystemSharedMemoryUnregister")]

    async def cuda_status(self, data: bytes, call: Call) -> list[Any]:
        """Return the status of one region, or of all."""
        name = wire.decode_region_name("CudaSharedMemoryStatus", data)
        return [wire.encode_cuda_status(self._regions.cuda_status(name))]

    async def add_cuda(self, data: bytes, call: Call) -> list[Any]:
        """Register a region."""
        self._regions.register_cuda(*wire.decode_cuda_registration(data))
        return [wire.encode_done("CudaSharedMemoryRegister")]

    async def drop_cuda(self, data: bytes, call: Call) -> list[Any]:
        """Unregister one region, or all; an unknown one is not an error."""
        name = wire.decode_region_name("CudaSharedMemoryUnregister", data)
        self._regions.unregister(CudaRegion, name)
        return [wire.encode_done("CudaSharedMemoryUnregister")]
