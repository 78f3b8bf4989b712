"""Simulated device with a virtual clock, which shows whether copies and kernels can overlap.

Every simulated copy and kernel has a duration. A copy or kernel starts when earlier work of its stream is finished and
all order dependencies are met. Copies in one direction share one copy engine, as on a GPU. Work on the host takes no
simulated time, but a host block is writable again only after its copy has finished. Data is copied immediately, so this
simulated device finds no races (see :mod:`.adversarial`). The virtual clock does not predict the speed of real devices.
"""

from __future__ import annotations

import threading
from collections import defaultdict

from aiostream_data.device.backend import DeviceBlock, HostBlock, Mark, StreamRef
from aiostream_data.device.batch_layout import CastPlan
from aiostream_data.device.host import HostBackend
from aiostream_data.errors import DeviceMemoryError


class ClockedBackend(HostBackend):
    """Implementation of :class:`~aiostream_data.device.backend.DeviceBackend` in host memory with a virtual clock.

    Attributes:
        current: The consumer's stream, which :meth:`current_stream` returns.
        device_nbytes: Total device memory allocated so far, excluding consumer memory.
    """

    def __init__(self, *, h2d_s: float, d2d_s: float = 0.0, capacity_nbytes: int = 1 << 40) -> None:
        """Create a simulated device.

        Args:
            h2d_s: Simulated duration in seconds of a copy from host to device.
            d2d_s: Simulated duration in seconds of a copy or cast within the device.
            capacity_nbytes: Simulated size of device memory in bytes, excluding consumer memory.
        """
        self._h2d_s = h2d_s
        self._d2d_s = d2d_s
        self._capacity_nbytes = capacity_nbytes
        self._lock = threading.Lock()
        self._over_at: defaultdict[int, float] = defaultdict(float)  # by stream
        self._engine_over_at = 0.0
        self._host_block_over_at: defaultdict[int, float] = defaultdict(float)  # by address
        self._streams = 1
        self.current = StreamRef(1)
        self.device_nbytes = 0

    def device_block(self, nbytes: int) -> DeviceBlock:
        with self._lock:
            if self.device_nbytes + nbytes > self._capacity_nbytes:
                raise DeviceMemoryError(f"clocked: {nbytes} bytes asked for of {self._capacity_nbytes} in all")
            self.device_nbytes += nbytes
        return super().device_block(nbytes)

    def consumer_block(self, nbytes: int) -> DeviceBlock:
        return super().device_block(nbytes)

    def stream(self) -> StreamRef:
        with self._lock:
            self._streams += 1
            return StreamRef(self._streams)

    def current_stream(self) -> StreamRef:
        return self.current

    def h2d(
        self, dst: DeviceBlock, src: HostBlock, nbytes: int, stream: StreamRef, at: int = 0, offset: int = 0
    ) -> None:
        super().h2d(dst, src, nbytes, stream, at, offset)
        with self._lock:
            block = int(src.bytes.ctypes.data)
            begins = max(self._over_at[stream.ptr], self._engine_over_at, self._host_block_over_at[block])
            over = begins + self._h2d_s
            self._over_at[stream.ptr] = self._engine_over_at = self._host_block_over_at[block] = over

    def d2d(self, dst: DeviceBlock, src: DeviceBlock, nbytes: int, stream: StreamRef, offset: int = 0) -> None:
        super().d2d(dst, src, nbytes, stream, offset)
        self.launch(stream, self._d2d_s)

    def cast(self, dst: DeviceBlock, src: DeviceBlock, plan: CastPlan, stream: StreamRef) -> None:
        super().cast(dst, src, plan, stream)
        self.launch(stream, self._d2d_s)

    def launch(self, stream: StreamRef, seconds: float) -> None:
        """Enqueue a consumer's kernel that takes ``seconds``, and return immediately."""
        with self._lock:
            self._over_at[stream.ptr] += seconds

    def mark(self, stream: StreamRef) -> Mark:
        with self._lock:
            return Mark(self._over_at[stream.ptr])

    def timed_mark(self, stream: StreamRef) -> Mark:
        return Mark(self.mark(stream).event, timed=True)

    def order_after(self, stream: StreamRef, mark: Mark) -> None:
        with self._lock:
            self._over_at[stream.ptr] = max(self._over_at[stream.ptr], mark.event)

    def over_at(self, stream: StreamRef) -> float:
        """Return the finish time of all work enqueued on ``stream``, in seconds since the device was created."""
        with self._lock:
            return self._over_at[stream.ptr]
