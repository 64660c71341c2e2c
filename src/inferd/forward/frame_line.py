"""FrameLine: a line that event loops take for the protocol it is."""

import asyncio

from inferd.forward.line import FrameReader


class FrameLine(FrameReader, asyncio.BufferedProtocol):
    """See FrameReader. asyncio's own event loop recognizes a BufferedProtocol by class."""
