"""The device that is no device: every operation of the protocol, done at once with NumPy.

It makes a pipeline with a device stage run, and be tested, where there is no GPU. Work enqueued on a
stream has run when the call returns, so there is nothing to wait for.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiostream_data.device.backend import ALIGNMENT, DeviceBlock, HostBlock, Mark, StreamRef

_THE_STREAM = StreamRef(0)
_THE_MARK = Mark("passed")


def aligned_bytes(nbytes: int) -> NDArray[np.uint8]:
    """Return ``nbytes`` uninitialised bytes that start on an :data:`~.backend.ALIGNMENT` boundary."""
    raw = np.empty(nbytes + ALIGNMENT, np.uint8)
    skip = -raw.ctypes.data % ALIGNMENT
    return raw[skip : skip + nbytes]


class HostBackend:
    """Implements :class:`~aiostream_data.device.backend.DeviceBackend` over host memory. Thread-safe."""

    @property
    def device(self) -> str:
        return "cpu"

    @property
    def keeps_objects(self) -> bool:
        return True

    def host_block(self, nbytes: int) -> HostBlock:
        return HostBlock(aligned_bytes(nbytes))

    def device_block(self, nbytes: int) -> DeviceBlock:
        return DeviceBlock(nbytes, aligned_bytes(nbytes))

    def consumer_block(self, nbytes: int) -> DeviceBlock:
        return self.device_block(nbytes)

    def stream(self) -> StreamRef:
        return _THE_STREAM

    def current_stream(self) -> StreamRef:
        return _THE_STREAM

    def h2d(self, dst: DeviceBlock, src: HostBlock, nbytes: int, stream: StreamRef) -> None:
        np.copyto(dst.memory[:nbytes], src.bytes[:nbytes])

    def d2d(self, dst: DeviceBlock, src: DeviceBlock, nbytes: int, stream: StreamRef) -> None:
        np.copyto(dst.memory[:nbytes], src.memory[:nbytes])

    def mark(self, stream: StreamRef) -> Mark:
        return _THE_MARK

    def order_after(self, stream: StreamRef, mark: Mark) -> None:
        """Return: whatever the mark stands for has already run."""

    def join(self, mark: Mark) -> None:
        """Return: whatever the mark stands for has already run."""

    def finished(self, mark: Mark) -> bool:
        return True

    def retire(self, mark: Mark) -> None:
        """Return: there is only one mark."""

    def view(self, block: DeviceBlock, offset: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        return np.ndarray(shape, dtype, buffer=block.memory, offset=offset)

    def close(self) -> None:
        """Return: memory goes with its last reference."""
