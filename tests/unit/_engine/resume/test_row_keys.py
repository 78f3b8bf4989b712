"""The hash word of a row does not depend on the rows beside it."""

from __future__ import annotations

import numpy as np
import pytest

from aiostream_data._engine.resume.origins import Origins
from aiostream_data._engine.resume.row_keys import RowNames
from aiostream_data.rows.row_ids import CUT, PADDING, RowIds


def source(origins: Origins, number: int) -> int:
    return origins.open(number, number, 0, str).base


def mixed_ids(seed: int, rows: int = 40) -> tuple[Origins, RowIds]:
    """Return ids with one to four pairs, of several sources and of operators."""
    random, origins = np.random.default_rng(seed), Origins()
    splits = [source(origins, number) + split for number in (1, 2) for split in (0, 1)]
    pairs = np.full((rows, 8), -1, np.int64)
    for row in range(rows):
        for pair in range(random.integers(1, 5)):
            kinds = splits if pair == 0 else [*splits, CUT, PADDING]
            pairs[row, 2 * pair] = kinds[random.integers(len(kinds))]
            pairs[row, 2 * pair + 1] = random.integers(1 << 40)
    return origins, RowIds.from_padded(pairs)


def same_kinds(rows: int = 40) -> tuple[Origins, RowIds]:
    """Return ids whose pairs have one source or operator each, as those of one file in an interleave."""
    origins = Origins()
    ids = RowIds.run(source(origins, 1) + 3, 5, rows)
    return origins, ids.join_one(RowIds.run(source(origins, 2), 7, 1)).with_pair(CUT, np.arange(rows))


@pytest.mark.parametrize("made", [*map(mixed_ids, range(10)), same_kinds()])
def test_words_of_rows_together_are_those_of_each_row(made: tuple[Origins, RowIds]) -> None:
    origins, ids = made
    together = RowNames(origins).salts_of(ids)
    alone = [int(RowNames(origins).salts_of(ids.row(row))[0]) for row in range(len(ids))]
    assert together.dtype == np.uint64
    assert together.tolist() == alone
    assert len(set(alone)) > 1


def test_padding_pairs_change_no_word() -> None:
    origins, ids = same_kinds()
    padded = ids.with_pair(PADDING, 9)
    assert RowNames(origins).salts_of(padded).tolist() == RowNames(origins).salts_of(ids).tolist()


def test_ids_of_one_outer_row_are_those_of_join() -> None:
    origins = Origins()
    inner, outer = RowIds.run(source(origins, 1), 0, 6), RowIds.run(source(origins, 2), 3, 1)
    for left in (inner, inner.with_pair(CUT, np.arange(6), np.arange(6) % 2 == 0)):
        assert left.join_one(outer) == left.join(outer.take([0] * 6))
