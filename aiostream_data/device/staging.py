"""Host memory for slots: page-locked; or plain, where page-locking is refused and the user allows that.

From plain memory the driver first copies into page-locked memory of its own, on the thread that enqueues the copy, and
that thread holds the ring's lock meanwhile: right, but slow. So it is never chosen silently. Nobody relies on that copy
being over when the call returns: a slot of either kind is free only when the mark behind its copy was joined.
"""

from __future__ import annotations

import threading
import warnings

from aiostream_data.device.backend import DeviceBackend, HostBlock
from aiostream_data.device.host import aligned_bytes
from aiostream_data.errors import PinningError


class Staging:
    """Allocates the memory of host slots. Safe to use from any thread."""

    def __init__(self, backend: DeviceBackend, allow_pageable: bool = False) -> None:
        self._backend = backend
        self._allow_pageable = allow_pageable
        self._refused = False
        self._lock = threading.Lock()

    def block(self, nbytes: int) -> HostBlock:
        """Return ``nbytes`` of host memory; its content is undefined.

        Raises:
            PinningError: It cannot be page-locked, and plain memory is not allowed.
            DeviceMemoryError: There is no room even for plain memory.
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
                f"{error}; make batches or depth smaller, let the process lock more memory, or pass "
                "allow_pageable=True, which is slower",
                need=error.need,
            ) from error
        with self._lock:
            noted, self._refused = self._refused, True
        if not noted:
            warnings.warn(
                f"{error}; batches go to the device through memory that is not page-locked, as allow_pageable=True "
                "allows, and more slowly",
                RuntimeWarning,
                stacklevel=2,
            )
