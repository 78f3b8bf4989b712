"""Allocate page-locked memory for host slots.

If page-locking fails and the user allows it, allocate pageable memory instead.

To copy from pageable host memory, the driver first copies the data into its own page-locked memory. The driver's extra
copy runs in the thread that enqueues the copy to the device, while the thread holds the ring's lock. Copies from
pageable memory are correct but slow, so the user must explicitly allow pageable memory. The ring always waits with
``join`` before it frees a host slot, so pageable memory needs no additional wait.
"""

from __future__ import annotations

import threading
import warnings

from aiostream_data.device.backend import DeviceBackend, HostBlock
from aiostream_data.device.host import aligned_bytes
from aiostream_data.errors import PinningError


class Staging:
    """Allocates the memory of host slots. Any thread may use the allocator."""

    def __init__(self, backend: DeviceBackend, allow_pageable: bool = False) -> None:
        self._backend = backend
        self._allow_pageable = allow_pageable
        self._refused = False
        self._lock = threading.Lock()

    def block(self, nbytes: int) -> HostBlock:
        """Allocate ``nbytes`` bytes of uninitialized host memory.

        Raises:
            PinningError: The memory cannot be page-locked, and pageable memory is not allowed.
            DeviceMemoryError: The host memory is too small, even for pageable memory.
            DeviceError: The device failed.
        """
        if not self._refused:
            try:
                return self._backend.host_block(nbytes)
            except PinningError as error:
                self._note_refusal(error)
        return HostBlock(aligned_bytes(nbytes), pinned=False)

    def _note_refusal(self, error: PinningError) -> None:
        if not self._allow_pageable:
            raise PinningError(
                f"{error}. Make batches or depth smaller, raise the limit of locked memory (ulimit -l), or pass "
                "allow_pageable=True, which is slower",
                need=error.need,
            ) from error
        with self._lock:
            noted, self._refused = self._refused, True
        if not noted:
            warnings.warn(
                f"{error}. Batches are copied through pageable memory, as allow_pageable=True permits, which is slower",
                RuntimeWarning,
                stacklevel=2,
            )
