"""Hold what several ranks gave against the reference, of which each must have every so many-th row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aiostream_data import combine_hashes
from metamorphic.circumstances import Ranks
from metamorphic.oracle import Finding, compare_in_order, plain, rows_of
from metamorphic.running import Given


def rows_given(run: Ranks, ranks: Sequence[Given]) -> list[list[Any]]:
    """Return the rows that each rank gave."""
    return [[row for batch in one.elements for row in rows_of(batch)] if run.batched else one.elements for one in ranks]


def compare_ranks(run: Ranks, reference: Given, ranks: Sequence[Given], first: int, *, hashed: bool) -> Finding | None:
    """Return what is wrong with ranks that share the rows of the reference from row ``first`` on.

    Args:
        hashed: The ranks went on with all hashes, or began, so that their combined hash must be right.
    """
    number, rows = len(ranks), rows_given(run, ranks)
    total = sum(map(len, rows))
    rest = (len(reference.elements) - first) // number * number
    if ranks[0].ended and total != rest:
        return Finding("ranks: rows", f"{number} ranks gave {total} rows of the {rest} that were left for them")
    for rank, got in enumerate(ranks):
        finding = _compare_one(run, reference, slice(first + rank, first + total, number), got, rows[rank])
        if finding is not None:
            return Finding(f"ranks: {finding.kind}", f"rank {rank} of {number}, from row {first} on: {finding.text}")
    combined, expected = combine_hashes([rank.hashes[-1] for rank in ranks]), reference.hashes[first + total]
    if hashed and combined != expected:
        where = f"combined stream_hash of {number} ranks after {first + total} rows"
        return Finding("ranks: hash", f"{where}: expected {expected}, found {combined}")
    return None


def _compare_one(run: Ranks, reference: Given, share: slice, got: Given, rows: list[Any]) -> Finding | None:
    elements, origins = reference.elements[share], reference.origins[share]
    if not run.batched:
        return compare_in_order(Given(elements, origins), [Given(got.elements, got.origins)])
    # A batch has no name but those of its rows, and rows as numbers of NumPy.
    return compare_in_order(Given(plain(elements)), [Given(plain(rows))])
