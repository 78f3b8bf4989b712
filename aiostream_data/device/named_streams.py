"""Find the stream object for a DLPack handle, and keep the stream alive.

DLPack importers pass only the handle of their stream. The handle becomes invalid when its library destroys the stream.
An invalid handle must not be passed to CUDA. Because importers pass the current stream of their library, this module
searches the current streams of all supported libraries.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from aiostream_data.device.backend import DeviceBackend, StreamRef


def stream_named(handle: int, backend: DeviceBackend) -> StreamRef:
    """Return the device stream with a given handle.

    If a supported library owns the stream, the returned object keeps the stream alive.

    Args:
        handle: CUDA handle of the stream, as passed to ``__dlpack__``; 1 is the legacy stream.
        backend: The device.

    Raises:
        DeviceError: The device has failed.
    """
    return next((stream for stream in _current_streams(backend) if stream.ptr == handle), StreamRef(handle))


def _current_streams(backend: DeviceBackend) -> Iterator[StreamRef]:
    """Yield the calling thread's current CUDA stream of each library that already uses CUDA."""
    yield backend.current_stream()
    torch = sys.modules.get("torch")
    if torch is not None and backend.device.startswith("cuda") and torch.cuda.is_initialized():
        stream = torch.cuda.current_stream(backend.device)
        yield StreamRef(int(stream.cuda_stream), stream)
