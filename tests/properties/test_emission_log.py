"""The log of an unordered stage names the same rows as a log that remembers everything."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from aiostream_data._engine.resume.emission_log import EmissionLog
from aiostream_data.rows.lineage import Lineage
from aiostream_data.rows.row_ids import RowIds

Finished = tuple[NDArray[np.int64], NDArray[np.int64]]


def missing_after(history: list[Finished], given_out: int) -> tuple[int, list[int]]:
    """Return the number of received rows and the missing rows: emitted and dropped rows, one entry after another."""
    emitted: set[int] = set()
    left = given_out
    for finished, kept in history:
        if left == 0 and len(kept):
            break
        emitted |= set(kept[:left].tolist()) | (set(finished.tolist()) - set(kept.tolist()))
        left -= min(left, len(kept))
    high = max(emitted, default=-1) + 1
    return high, sorted(set(range(high)) - emitted)


@st.composite
def histories(draw: st.DrawFn) -> list[Finished]:
    order = draw(st.permutations(range(draw(st.integers(1, 30)))))
    cuts = sorted({0, len(order), *draw(st.lists(st.integers(0, len(order)), max_size=8))})
    entries = [np.array(order[start:stop], np.int64) for start, stop in pairwise(cuts)]
    kept = [entry[np.array([draw(st.booleans()) for _ in entry], np.bool_)] for entry in entries]
    return list(zip(entries, kept, strict=True))


@given(histories(), st.data())
def test_every_place_names_the_rows_that_were_received_and_not_emitted(
    history: list[Finished], data: st.DataObject
) -> None:
    log = EmissionLog()
    rows = sum(len(finished) for finished, _ in history)
    log.take_in(Lineage(RowIds.of_source(1 << 40, np.arange(rows))))
    so_far: list[Finished] = []
    lowest = 0
    for entry in history:
        log.give_out(*entry)
        so_far.append(entry)
        emitted = sum(len(kept) for _, kept in so_far)
        for place in data.draw(st.lists(st.integers(lowest, emitted), max_size=4)):
            high, missing = log.place(place)
            assert (high, sorted(missing.ids.ordinals.tolist())) == missing_after(so_far, place)
        if data.draw(st.booleans()):
            lowest = data.draw(st.integers(lowest, emitted))
            log.forget(lowest)
