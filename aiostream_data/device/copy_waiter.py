"""A thread per device stage that waits for the copies in order and frees the host slots of finished copies.

In a stage with a waiter thread, no other thread waits for copies to the device. Other threads enqueue copies and
deliver batches. Copies of one device stream end in order, so waiting for the oldest copy is enough.
"""

from __future__ import annotations

import threading

from aiostream_data.device.ring import SlotRing

NAME = "asd-device-wait"


class Waiter:
    """Thread that waits for the copies of a ring until the ring is closed or has failed.

    The constructor starts the waiter thread.
    """

    def __init__(self, ring: SlotRing) -> None:
        self._ring = ring
        # A daemon thread, so that the interpreter can exit even if a driver call never returns.
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
        """Wait until the waiter thread has ended, after the ring was closed.

        Return False if a driver call still blocks the thread.
        """
        self.thread.join(timeout_s)
        return not self.thread.is_alive()
