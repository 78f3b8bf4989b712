"""Track the read of one byte range by an HTTP library: time of the first byte, and number of received bytes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

from aiostream_data.errors import StoreTimeoutError, StoreUnreachableError


class LibraryRead:
    """Progress of one byte range read by an HTTP library.

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
        """Record the arrival of the response head and the object version in that head."""
        self.first_byte_s = monotonic() - self.sent_at
        self._version = version

    def filled(self, nbytes: int) -> None:
        """Record that the first ``nbytes`` bytes of the requested range have arrived."""
        self._received = nbytes

    @contextmanager
    def breaking_off(self) -> Iterator[None]:
        """Add the number of received bytes and the version to a connection error from the ``with`` block.

        A retry can then resume after the received bytes.
        """
        try:
            yield
        except (StoreUnreachableError, StoreTimeoutError) as error:
            error.received, error.version = self._received, self._version
            raise
