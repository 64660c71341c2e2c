"""Buffer: bytes on their way, as an application or the network gave them; nobody copies them."""

Buffer = bytes | bytearray | memoryview
