"""Merge nearby ranges of one object into fewer requests, with a limit on wasted bytes. Does no I/O."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from aiostream_data.rows.records import ByteRange

MAX_GAP_NBYTES: Final = 256 << 10
"""Largest gap between merged ranges, in bytes. A connection transfers about 256 KiB during one request latency."""

MAX_WASTE: Final = 0.5
"""Maximum ratio of unneeded bytes to needed bytes in a merged range."""


class MergedRange(NamedTuple):
    """Byte range to request, with the indices of the wanted ranges that it contains.

    Attributes:
        start: Offset of the first byte.
        stop: Offset after the last byte.
        numbers: Indices of the wanted ranges that the merged range contains, ordered by the start of the ranges.
    """

    start: int
    stop: int
    numbers: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return self.stop - self.start

    def cut(self, answer: memoryview, wanted: Sequence[ByteRange]) -> Iterator[tuple[int, memoryview]]:
        """Yield the index and the bytes of every wanted range. The yielded bytes are views into ``answer``."""
        for number in self.numbers:
            part = wanted[number]
            yield number, answer[part.start - self.start : part.stop - self.start]


def merged_ranges(
    ranges: Sequence[ByteRange],
    max_gap: int = MAX_GAP_NBYTES,
    max_waste: float = MAX_WASTE,
    max_nbytes: int = 4 << 20,
) -> list[MergedRange]:
    """Return the ranges to request, in ascending order. Each wanted range lies within one requested range.

    Args:
        ranges: Wanted ranges in any order. The ranges may overlap or be empty.
        max_gap: Largest gap between merged ranges, in bytes.
        max_waste: Maximum ratio of unneeded to needed bytes in a merged range.
        max_nbytes: Maximum size of a merged range. Wanted ranges above this size are not merged.
    """
    merged: list[MergedRange] = []
    useful = 0  # wanted bytes in the last merged range
    for number in sorted(range(len(ranges)), key=lambda each: (ranges[each].start, ranges[each].stop)):
        part = ranges[number]
        if merged:
            last = merged[-1]
            start, stop = last.start, max(last.stop, part.stop)
            more = useful + max(0, part.stop - max(last.stop, part.start))
            is_near = part.start - last.stop <= max_gap
            is_worth_it = stop - start - more <= max_waste * more
            if part.stop <= last.stop or (is_near and is_worth_it and stop - start <= max_nbytes):
                merged[-1] = MergedRange(start, stop, (*last.numbers, number))
                useful = more
                continue
        merged.append(MergedRange(part.start, part.stop, (number,)))
        useful = part.nbytes
    return merged
