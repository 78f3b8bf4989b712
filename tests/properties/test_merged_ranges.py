"""Ranges that are merged hold what was wanted, byte by byte, and little else."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from aiostream_data.rows.records import ByteRange
from aiostream_data.storage.merging import merged_ranges

RANGES = st.lists(
    st.builds(lambda start, nbytes: ByteRange(start, start + nbytes), st.integers(0, 400), st.integers(0, 60))
)
CONTENT = bytes(number % 251 for number in range(500))


@settings(max_examples=150)
@given(RANGES, st.integers(0, 80), st.floats(0, 2), st.integers(1, 200))
def test_every_wanted_byte_is_read_once_wanted_and_waste_gaps_and_sizes_are_bounded(
    ranges: list[ByteRange], max_gap: int, max_waste: float, max_nbytes: int
) -> None:
    merged = merged_ranges(ranges, max_gap, max_waste, max_nbytes)
    assert sorted(number for each in merged for number in each.numbers) == list(range(len(ranges)))
    for each in merged:
        parts = [ranges[number] for number in each.numbers]
        assert (each.start, each.stop) == (min(part.start for part in parts), max(part.stop for part in parts))
        wanted = {at for part in parts for at in range(part.start, part.stop)}
        assert each.nbytes - len(wanted) <= max_waste * len(wanted) + 1e-9
        assert len(each.numbers) == 1 or each.nbytes <= max(max_nbytes, *(part.nbytes for part in parts))
        assert _widest_gap(each.start, each.stop, wanted) <= max_gap


@settings(max_examples=200)
@given(RANGES, st.integers(0, 80), st.floats(0, 2), st.integers(1, 200))
def test_what_is_cut_from_the_answers_is_what_was_wanted(
    ranges: list[ByteRange], max_gap: int, max_waste: float, max_nbytes: int
) -> None:
    cut: dict[int, bytes] = {}
    for each in merged_ranges(ranges, max_gap, max_waste, max_nbytes):
        cut.update(
            (number, bytes(part)) for number, part in each.cut(memoryview(CONTENT)[each.start : each.stop], ranges)
        )
    assert cut == {number: CONTENT[part.start : part.stop] for number, part in enumerate(ranges)}


def test_ranges_that_lie_near_each_other_are_one_request_and_others_are_not() -> None:
    near, far = [ByteRange(0, 100), ByteRange(110, 200)], ByteRange(1_000, 1_100)
    merged = merged_ranges([far, *near], max_gap=20, max_waste=0.1, max_nbytes=500)
    assert [(each.start, each.stop, each.numbers) for each in merged] == [(0, 200, (1, 2)), (1_000, 1_100, (0,))]


def _widest_gap(start: int, stop: int, wanted: set[int]) -> int:
    widest = run = 0
    for at in range(start, stop):
        run = 0 if at in wanted else run + 1
        widest = max(widest, run)
    return widest
