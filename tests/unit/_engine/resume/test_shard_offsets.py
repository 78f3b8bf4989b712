"""Known byte offsets of records, and the offsets that the rows of a state need."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from aiostream_data._engine.resume.origins import Hint
from aiostream_data._engine.resume.shard_offsets import ShardOffsets

splits = st.one_of(st.integers(0, 3), st.integers(0, 5).map(lambda number: number * 100_000))
rows = st.lists(st.tuples(splits, st.integers(0, 50)), max_size=60)


@given(st.sets(st.tuples(splits, st.integers(0, 50)), max_size=20), rows)
def test_each_row_gets_the_last_known_offset_at_or_before_it(
    known: set[tuple[int, int]], wanted: list[tuple[int, int]]
) -> None:
    offsets = ShardOffsets()
    for split, ordinal in known:
        offsets.learn(split, ordinal, 7 * ordinal)
    table = np.array(wanted, np.int64).reshape(-1, 2)
    found = offsets.locate(table[:, 0], table[:, 1])
    before = [(split, [each for each in known if each[0] == split and each[1] <= row]) for split, row in wanted]
    needed = {max(places) for _, places in before if places}
    assert found == [Hint(split, ordinal, 7 * ordinal) for split, ordinal in sorted(needed)]


def test_a_row_of_an_uncompressed_shard_gets_the_start_of_the_shard() -> None:
    offsets = ShardOffsets()
    offsets.learn_starts(np.array([2, 5]))
    found = offsets.locate(np.array([5, 3, 5, 2]), np.array([9, 1, 0, 4]))
    assert found == [Hint(2, 0, 0), Hint(5, 0, 0)]
