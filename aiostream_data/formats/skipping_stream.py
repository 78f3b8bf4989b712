"""Record stream that skips damaged records. If the format cannot recover, the rest of the object is skipped."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from aiostream_data.errors import CorruptRecordError
from aiostream_data.formats.base import Format, Framer, Loss, Recovers, Report
from aiostream_data.formats.skipping import SkippingFramer
from aiostream_data.formats.stream import RecordStream, StreamStep
from aiostream_data.rows.columns import VarColumn


class SkippingStream(RecordStream):
    """A :class:`~.stream.RecordStream` that reports damage instead of raising.

    Damage inside compressed data makes all later bytes of the object unreadable.

    Args:
        report: Function called with each :class:`~.base.Loss`, which describes lost bytes.
        nbytes: Size of the object in bytes.

    Attributes:
        is_over: True after the stream has reported the rest of the object as lost. No more records follow.
    """

    def __init__(
        self,
        format: Format,
        url: str,
        compression: str,
        offset: int = 0,
        step: StreamStep | None = None,
        *,
        report: Report,
        nbytes: int,
    ) -> None:
        self._report = report
        self._nbytes = nbytes
        self.is_over = False
        super().__init__(format, url, compression, offset, step)
        if offset:
            self._tell_end()

    def check_end(self, nbytes: int) -> None:
        """Do nothing, because the framer itself checks whether a record extends beyond the end of the object."""

    def feed(self, block: NDArray[np.uint8], headroom: int) -> Iterator[VarColumn]:
        """Yield the records that are complete after reading this block. See :meth:`.RecordStream.feed`."""
        return self._until_over(super().feed(block, headroom))

    def finish(self) -> Iterator[VarColumn]:
        """Yield the last records, which are complete at the end of the stream. See :meth:`.RecordStream.finish`."""
        return self._until_over(super().finish())

    def _until_over(self, columns: Iterator[VarColumn]) -> Iterator[VarColumn]:
        if self.is_over:
            return
        try:
            yield from columns
        except CorruptRecordError as error:
            yield from self._lose_rest(error.reason)

    def _lose_rest(self, reason: str) -> Iterator[VarColumn]:
        if isinstance(self._framer, SkippingFramer):
            yield from self._framer.abandon()
        self.is_over = True
        self._report(Loss(self._next_offset, None, reason))

    def _new_framer(self) -> Framer:
        if isinstance(self._format, Recovers):
            return SkippingFramer(self._format, self._url, self._note)
        return super()._new_framer()

    def _note(self, loss: Loss) -> None:
        hint = "" if loss.offset else self._hint()
        self._report(loss._replace(reason=f"{loss.reason}; {hint}") if hint else loss)

    def _begin(self, first: NDArray[np.uint8]) -> None:
        super()._begin(first)
        if not self.is_compressed:
            self._tell_end()

    def _tell_end(self) -> None:
        if isinstance(self._framer, SkippingFramer):
            self._framer.ends_at(self._nbytes)

    def _raise_earlier_damage(self) -> None:
        """Do nothing, because the framer has already reported all damage before this point."""
