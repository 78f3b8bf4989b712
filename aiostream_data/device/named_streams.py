"""Find the stream that an importer names by its handle alone, and keep it alive.

DLPack's importers name a number. A stream that its library destroys before the batch is given back must not be named to
CUDA again: the number may stand for nothing by then. Importers name the stream that is current in their own library, so
that is where it is looked for.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from aiostream_data.device.backend import DeviceBackend, StreamRef


def stream_named(handle: int, backend: DeviceBackend) -> StreamRef:
    """Return the stream of a handle, which lives as long as what is returned where its library is known.

    Args:
        handle: CUDA's, as an importer gives it to ``__dlpack__``; 1 is the legacy stream.
        backend: The device.

    Raises:
        DeviceError: The device has failed.
    """
    return next((stream for stream in _current_streams(backend) if stream.ptr == handle), StreamRef(handle))


def _current_streams(backend: DeviceBackend) -> Iterator[StreamRef]:
    """Yield what is current in the calling thread, library by library; only those that use CUDA already are asked."""
    yield backend.current_stream()
    torch = sys.modules.get("torch")
    if torch is not None and backend.device.startswith("cuda") and torch.cuda.is_initialized():
        stream = torch.cuda.current_stream(backend.device)
        yield StreamRef(int(stream.cuda_stream), stream)
