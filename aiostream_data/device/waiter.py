"""One thread per stage that waits for copies, in the order in which they run, and frees their host slots.

It is the only thread that ever waits for the device, and does nothing else: a copy is enqueued and a batch handed over
without it. Copies of one stream end in order, so waiting for the oldest is enough.
"""

from __future__ import annotations

import threading

from aiostream_data.device.ring import SlotRing

NAME = "asd-device-wait"


class Waiter:
    """Joins the copies of a ring until the ring is closed or has failed. Its thread runs from the first on."""

    def __init__(self, ring: SlotRing) -> None:
        self._ring = ring
        # A daemon, since the driver may never come back, and the interpreter must be able to end all the same.
        self.thread = threading.Thread(target=self._run, name=NAME, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            self._join_in_order()
        except BaseException as error:  # noqa: BLE001 - raised to the next user of the ring
            state = self._ring.state
            with state.lock:
                if not state.closed:
                    state.fail(error)

    def _join_in_order(self) -> None:
        state = self._ring.state
        while True:
            changes = state.changes
            if not self._ring.join_oldest():
                state.wait_past(changes, None)

    def close(self, timeout_s: float) -> bool:
        """Wait until the thread has ended, behind the ring's own closing; False when it is still in the driver."""
        self.thread.join(timeout_s)
        return not self.thread.is_alive()
