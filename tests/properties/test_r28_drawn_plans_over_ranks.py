"""R28: whatever the plan, ranks share one global order, and any other number of ranks goes on where they stopped.

``ASD_EXAMPLES=10`` in the environment draws ten times as many plans.
"""

from __future__ import annotations

import itertools
import json
from itertools import islice
from typing import Any

from drawn import Drawn
from drawn_cases import CASE_S, cases, ends_within, in_time
from hypothesis import assume, given
from hypothesis import strategies as st
from plans import plans
from small_chunks import Recut, small_chunks

from aiostream_data.testing.comparing import same

SIZES = st.lists(st.tuples(st.integers(1, 12), st.integers(5, 300)), min_size=1, max_size=3)
GROUPING = (".batch(", ".padded_batch(", ".bucket_by_sequence_length(", ".rebatch(", ".window(")


def gives_single_rows(plan: Drawn) -> bool:
    """True when ranks share the elements themselves, not the rows that batches are made of."""
    return plan.ordered and not any(call in plan.text for call in GROUPING)


def share(rows: list[Any], rank: int, world_size: int) -> list[Any]:
    """Return every ``world_size``-th row, of complete groups only."""
    return rows[rank : len(rows) // world_size * world_size : world_size]


@in_time
@cases(50)
@given(plans().filter(gives_single_rows), SIZES, st.integers(1, 4), st.integers(1, 4), st.integers(0, 9))
def test_r28_other_ranks_go_on_with_exactly_the_rows_that_were_left(
    plan: Drawn, sizes: list[tuple[int, int]], before: int, after: int, steps: int
) -> None:
    with ends_within(CASE_S, plan, sizes, before, after, steps), small_chunks() as cut:
        dataset = Recut(plan.dataset, cut, itertools.cycle(sizes))
        with dataset.open(seed=4, rank=0, world_size=1) as loader:
            rows = list(loader)
        assume(len(rows) >= max(before, after))
        steps = min(steps, len(rows) // before)
        for rank in range(before):
            with dataset.open(seed=4, rank=rank, world_size=before, tail="drop") as loader:
                head = list(islice(iter(loader), steps))
                state = json.loads(json.dumps(loader.state_dict()))
                assert same([*head, *loader], share(rows, rank, before))
        for rank in range(after):
            with dataset.open(state=state, rank=rank, world_size=after, tail="drop") as loader:
                assert same(list(loader), share(rows[before * steps :], rank, after))
