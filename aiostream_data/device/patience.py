"""Wait for a consumer that has every device slot and asks for another batch: for some time, then it is an error.

Another thread may be about to give a batch back, so that it is no error at once. And what the garbage collector gives
back tells nobody, so slots are looked at again and again, but only where batches are lent, and only while the consumer
waits.
"""

from __future__ import annotations

from collections.abc import Iterable
from time import monotonic
from typing import Final

from aiostream_data.device.stage import DeviceStage
from aiostream_data.errors import LeasesHeldError

LIMIT_S: Final = 10.0
"""Seconds that a consumer may have every slot while it waits for another batch."""

LOOK_AGAIN_S: Final = 0.1


class Patience:
    """Of one wait for a batch.

    Args:
        devices: The stages that it may come from.
    """

    def __init__(self, devices: Iterable[DeviceStage]) -> None:
        self._lending = [device for device in devices if device.lends]
        self._since: float | None = None

    def next_look_s(self) -> float | None:
        """Return for how many seconds to wait before this is called again; None: for any time, since nothing is lent.

        Raises:
            LeasesHeldError: The consumer has had every slot for too long.
        """
        if not self._lending:
            return None
        now = monotonic()
        for device in self._lending:
            device.reclaim()
        held = [device for device in self._lending if device.all_leased]
        if not held:
            self._since = None
            return LOOK_AGAIN_S
        self._since = now if self._since is None else self._since
        if now - self._since >= LIMIT_S:
            raise LeasesHeldError(held[0].stats().ring.device_slots, now - self._since)
        return LOOK_AGAIN_S
