"""A device on which time is only counted: it tells whether copies and kernels could run side by side.

Every copy and kernel has a duration. A stream's work begins when what is before it on the stream is over, and
whatever the stream was ordered after; copies of one direction share one engine, as on a GPU. Data is copied at once, so
nothing is learnt about races here (see :mod:`.adversarial` for these), nor about the speed of any real device. What
the host does takes no time, except that a host block can be written again only when the copy from it is over.
"""

from __future__ import annotations

import threading
from collections import defaultdict

from aiostream_data.device.backend import DeviceBlock, HostBlock, Mark, StreamRef
from aiostream_data.device.batch_layout import CastPlan
from aiostream_data.device.host import HostBackend
from aiostream_data.errors import DeviceMemoryError


class ClockedBackend(HostBackend):
    """Implements :class:`~aiostream_data.device.backend.DeviceBackend` over host memory and a clock of its own.

    Attributes:
        current: The stream that :meth:`current_stream` returns: the consumer's.
        device_nbytes: Device memory that was ever allocated, without what consumers hold.
    """

    def __init__(self, *, h2d_s: float, d2d_s: float = 0.0, capacity_nbytes: int = 1 << 40) -> None:
        """Make a device.

        Args:
            h2d_s: Seconds that a copy to the device takes.
            d2d_s: Seconds that a copy or a cast within the device takes.
            capacity_nbytes: Size of device memory, without what consumers hold.
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
        """Enqueue a kernel that takes ``seconds``, as a consumer does, and return at once."""
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
        """Return when everything enqueued on ``stream`` so far is over, in seconds since the device was made."""
        with self._lock:
            return self._over_at[stream.ptr]
