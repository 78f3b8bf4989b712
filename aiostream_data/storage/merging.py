"""Ask for several ranges of one object with as few requests as make sense, wasting no more than told; pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from aiostream_data.rows.records import ByteRange

MAX_GAP_NBYTES: Final = 256 << 10
"""Bytes between two ranges that are rather read than left out: about what a line carries in the time of a request."""

MAX_WASTE: Final = 0.5
"""Most bytes that are read for nothing, as a share of those that are wanted."""


class MergedRange(NamedTuple):
    """A range to ask for, and what it answers.

    Attributes:
        start, stop: Its bytes.
        numbers: Which of the wanted ranges lie in it, by where they begin.
    """

    start: int
    stop: int
    numbers: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return self.stop - self.start

    def cut(self, answer: memoryview, wanted: Sequence[ByteRange]) -> Iterator[tuple[int, memoryview]]:
        """Yield the number of every wanted range in it, and its bytes: views into ``answer``."""
        for number in self.numbers:
            part = wanted[number]
            yield number, answer[part.start - self.start : part.stop - self.start]


def merged_ranges(
    ranges: Sequence[ByteRange],
    max_gap: int = MAX_GAP_NBYTES,
    max_waste: float = MAX_WASTE,
    max_nbytes: int = 4 << 20,
) -> list[MergedRange]:
    """Return ranges to ask for instead of those that are wanted, ascending; each wanted one lies within one of them.

    Args:
        ranges: In any order; they may overlap, and be empty.
        max_gap: Ranges that lie farther apart are not merged; in bytes.
        max_waste: Of every merged range, the bytes that nobody wants are no more than this share of the others.
        max_nbytes: Nothing is merged into a larger range; a wanted one that is larger stays alone.
    """
    merged: list[MergedRange] = []
    useful = 0  # wanted bytes of the last one
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
