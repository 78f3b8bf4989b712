"""Raise an error if a consumer waits too long for a batch while all device slots are leased to the consumer.

The error is raised after a delay, because another thread may be about to release a batch. Garbage collection can also
free device slots, and sends no notification. For this reason, this module polls the slots while the consumer waits and
batches are leased.
"""

from __future__ import annotations

from collections.abc import Iterable
from time import monotonic
from typing import Final

from aiostream_data.device.stage import DeviceStage
from aiostream_data.errors import LeasesHeldError

LIMIT_S: Final = 10.0
"""Maximum time in seconds that a consumer may wait for another batch while this consumer uses all slots."""

LOOK_AGAIN_S: Final = 0.1


class Patience:
    """Limits the time for which a consumer waits for a batch.

    Args:
        devices: Device stages that may deliver the batch.
    """

    def __init__(self, devices: Iterable[DeviceStage]) -> None:
        self._lending = [device for device in devices if device.lends]
        self._since: float | None = None

    def next_look_s(self) -> float | None:
        """Free leaked slots.

        Return the number of seconds until the next call of this method, or None if consumers never lease batches.

        Raises:
            LeasesHeldError: The consumer has used every slot for :data:`LIMIT_S` seconds.
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
