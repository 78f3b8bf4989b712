"""The inputs of a mixture read their next chunk shortly before it is needed, and not all at once."""

from __future__ import annotations

import numpy as np
import pytest

from aiostream_data.transforms import inputs_ahead
from aiostream_data.transforms.choosing import ChooseOrder
from aiostream_data.transforms.inputs_ahead import InputsAhead
from aiostream_data.transforms.interleave import Need
from aiostream_data.transforms.mixing import MixOrder
from aiostream_data.weights import schedule_of


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("BEGIN_ROWS", 4), ("AHEAD_ROWS", 10), ("LOOK_ROWS", 1), ("INPUTS_AT_ONCE", 6)):
        monkeypatch.setattr(inputs_ahead, name, value)


def mixture(inputs: int, weights: list[float] | None = None) -> MixOrder:
    return MixOrder(schedule_of(weights or [1] * inputs, tuple(f"input {number}" for number in range(inputs))))


def advance(order: MixOrder | ChooseOrder, ahead: InputsAhead, rows: int, chunk: int) -> list[int]:
    """Emit rows, and load chunks of ``chunk`` rows where rows are missing. Return the inputs that were asked."""
    asked: list[int] = []
    while rows:
        step = order.advance(1)
        rows -= len(step)
        asked += ahead.after(len(step), order)
        if step.waiting.need is Need.ROWS:
            order.load(step.waiting.slot, chunk)
            ahead.loaded(step.waiting.slot)
    return asked


def all_ready(slot: int) -> bool:
    return True


def none_ready(slot: int) -> bool:
    return False


def test_an_input_starts_when_one_of_the_next_rows_is_due_from_it() -> None:
    order, ahead = mixture(20), InputsAhead(20, all_ready)
    order.advance(0)  # chooses the inputs of the first rows
    assert ahead.after(0, order) == [0, 1, 2, 3]
    assert ahead.after(1, order) == []


def test_an_input_reads_its_next_chunk_when_half_of_the_current_one_was_used() -> None:
    order, ahead = mixture(20), InputsAhead(20, all_ready)
    asked = advance(order, ahead, 20 * 4, chunk=10)
    assert sorted(asked) == list(range(20)), "each input was asked for its first chunk"
    assert sorted(advance(order, ahead, 20 * 2, chunk=10)) == list(range(20))


def test_an_input_reads_ahead_at_once_if_its_chunk_is_used_up_soon() -> None:
    order, ahead = mixture(2, [0.9, 0.1]), InputsAhead(2, all_ready)
    for slot in (0, 1):
        order.load(slot, 8)
        ahead.loaded(slot)
    assert advance(order, ahead, 1, chunk=8) == [0], "9 of the next 10 rows are due from it"


def test_an_input_is_asked_once_for_each_chunk() -> None:
    order, ahead = mixture(3), InputsAhead(3, all_ready)
    asked = advance(order, ahead, 3 * 40, chunk=10)
    assert max(asked.count(slot) for slot in range(3)) <= 1 + 40 // 10


def test_few_inputs_read_at_the_same_time() -> None:
    order, ahead = mixture(20), InputsAhead(20, none_ready)
    assert len(advance(order, ahead, 20 * 8, chunk=10)) == 6


def test_choices_say_which_inputs_run_out_of_rows() -> None:
    order, ahead = ChooseOrder(3), InputsAhead(3, all_ready)
    order.choose(np.array([2, 2, 2, 2, 0]))
    for slot, rows in ((0, 100), (2, 4)):
        order.load(slot, rows)
        ahead.loaded(slot)
    assert ahead.after(0, order) == [2]
