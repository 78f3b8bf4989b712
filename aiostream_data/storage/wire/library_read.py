"""What is known of one range that a library reads: when its answer began, and how much of it is there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

from aiostream_data.errors import StoreTimeoutError, StoreUnreachableError


class LibraryRead:
    """One read by a library.

    Attributes:
        sent_at: Monotonic time at which the request was sent.
        first_byte_s: Until its answer began; None as long as nobody has said so.
    """

    def __init__(self) -> None:
        self.sent_at = monotonic()
        self.first_byte_s: float | None = None
        self._version = ""
        self._received = 0

    def began(self, version: str) -> None:
        """Record that the head of the answer is there, and which version of the object it names."""
        self.first_byte_s = monotonic() - self.sent_at
        self._version = version

    def filled(self, nbytes: int) -> None:
        """Record that so many bytes from the beginning of the range are there."""
        self._received = nbytes

    @contextmanager
    def breaking_off(self) -> Iterator[None]:
        """Note in the error with which a body ends too early, inside of the block, from where another may go on."""
        try:
            yield
        except (StoreUnreachableError, StoreTimeoutError) as error:
            error.received, error.version = self._received, self._version
            raise
