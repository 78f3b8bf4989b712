"""Choices name the input of every row, as in tf.data's ``choose_from_datasets``."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiostream_data.transforms.choosing import ChooseOrder, ChooseStep
from aiostream_data.transforms.interleave import FINISHED, Need, WaitingStream
from aiostream_data.weights import Stop

Row = tuple[int, int]
"""(input, index in the input)."""


def kernel_of_tf_data(sizes: list[int], choices: list[int], stop: Stop) -> list[Row]:
    """Follow GetNextInternal of tf.data's DirectedInterleaveDataset."""
    rows: list[Row] = []
    next_of: list[int | None] = [0] * len(sizes)
    for choice in choices:
        row = next_of[choice]
        if row is None:
            continue
        if row < sizes[choice]:
            rows.append((choice, row))
            next_of[choice] = row + 1
            continue
        if stop == "first":
            return rows
        next_of[choice] = None
        if all(row is None for row in next_of):
            return rows
    return rows


class Run:
    """An order with its inputs and choices, cut into chunks as a test decides."""

    def __init__(self, sizes: list[int], choices: list[int], order: ChooseOrder, pick: Callable[[int], int]) -> None:
        self.order, self.pick, self.choices = order, pick, choices
        self.sizes = [*sizes, len(choices)]
        self.loaded = [0] * len(self.sizes)
        self.base = [0] * len(self.sizes)
        self.finished = False
        self.last: ChooseStep | None = None

    def step(self) -> list[Row]:
        self.last = step = self.order.advance(self.pick(5))
        rows = zip(step.which.tolist(), step.rows.tolist(), strict=True)
        found = [(slot, self.base[slot] + row) for slot, row in rows]
        if step.waiting.need is Need.ROWS:
            self._load(step.waiting.slot)
        self.finished = step.waiting.need is Need.FINISHED
        return found

    def _load(self, slot: int) -> None:
        left = self.sizes[slot] - self.loaded[slot]
        rows, first = self.pick(left), self.loaded[slot]
        if rows and slot == self.order.inputs:
            self.order.choose(np.array(self.choices[first : first + rows], np.int64))
        elif rows:
            self.order.load(slot, rows)
        self.base[slot], self.loaded[slot] = first, first + rows
        if rows == left:
            self.order.ended(slot)

    def resumed(self, rows_of_step: int) -> Run:
        """Return a run that goes on after the first rows of the last step, with a new order."""
        assert self.last is not None
        order = ChooseOrder(self.order.inputs, self.order.stop)
        state = self.order.state_at(self.last.place, rows_of_step)
        order.restore(state)
        run = Run(self.sizes[:-1], self.choices, order, self.pick)
        run.loaded = [*state["given"], state["spent"]]
        return run


@given(st.lists(st.integers(0, 6), min_size=1, max_size=4), st.data(), st.sampled_from(["first", "all"]))
def test_the_order_is_tf_datas_however_streams_are_cut_and_wherever_they_are_resumed(
    sizes: list[int], data: st.DataObject, stop: Stop
) -> None:
    choices = data.draw(st.lists(st.integers(0, len(sizes) - 1), max_size=30))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    resuming = data.draw(st.sampled_from([0.0, 0.3, 0.7]))
    run = Run(sizes, choices, ChooseOrder(len(sizes), stop), lambda most: int(rng.integers(0, most + 1)))
    found: list[Row] = []
    while not run.finished:
        rows = run.step()
        if rng.random() < resuming:
            rows = rows[: int(rng.integers(0, len(rows) + 1))]
            run = run.resumed(len(rows))
        found += rows
    assert found == kernel_of_tf_data(sizes, choices, stop)


def test_choices_are_asked_for_before_any_rows() -> None:
    order = ChooseOrder(2)
    assert order.advance(9).waiting == WaitingStream.rows(2)
    order.choose(np.array([1, 0]))
    assert order.advance(9).waiting == WaitingStream.rows(1)


def test_no_more_choices_is_the_end() -> None:
    order = ChooseOrder(1)
    order.load(0, 5)
    order.choose(np.array([0, 0]))
    order.ended(1)
    step = order.advance(9)
    assert (step.rows.tolist(), step.waiting) == ([0, 1], FINISHED)


@pytest.mark.parametrize("wrong", [-1, 2])
def test_a_choice_of_no_input_is_refused_by_its_number(wrong: int) -> None:
    order = ChooseOrder(2)
    order.load(0, 9)
    order.choose(np.array([0]))
    order.load(1, 9)
    order.advance(1)
    order.choose(np.array([1, 0, wrong, 0]))
    order.ended(2)
    step = order.advance(9)
    assert (step.which.tolist(), step.waiting) == ([1, 0], WaitingStream.rows(2))
    assert "choice 3 of choose_from() must be the index of a dataset, 0 to 1" in str(order.wrong)
    assert str(order.wrong).endswith(f"got {wrong}")


def test_choices_that_are_left_cannot_be_replaced() -> None:
    order = ChooseOrder(1)
    order.choose(np.array([0]))
    with pytest.raises(ValueError, match="1 choices are left"):
        order.choose(np.array([0]))
