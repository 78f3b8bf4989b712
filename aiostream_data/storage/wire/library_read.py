"""Progress of one range read by an HTTP library: time of the first byte, and bytes received."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

from aiostream_data.errors import StoreTimeoutError, StoreUnreachableError


class LibraryRead:
    """Progress of one range read by an HTTP library.

    Attributes:
        sent_at: Monotonic time at which the request was sent.
        first_byte_s: Seconds from the request to the response head; None until :meth:`began` is called.
    """

    def __init__(self) -> None:
        self.sent_at = monotonic()
        self.first_byte_s: float | None = None
        self._version = ""
        self._received = 0

    def began(self, version: str) -> None:
        """Record the arrival of the response head and the object version that it states."""
        self.first_byte_s = monotonic() - self.sent_at
        self._version = version

    def filled(self, nbytes: int) -> None:
        """Record that the first ``nbytes`` bytes of the range have arrived."""
        self._received = nbytes

    @contextmanager
    def breaking_off(self) -> Iterator[None]:
        """Add the received bytes and version to a connection error in the block, so that a retry can resume there."""
        try:
            yield
        except (StoreUnreachableError, StoreTimeoutError) as error:
            error.received, error.version = self._received, self._version
            raise
