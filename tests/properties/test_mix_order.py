"""The order of a mixture keeps its proportions, however inputs are cut, from any position."""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from aiostream_data._native import deal_rows, follow_choices, mixing_py
from aiostream_data.transforms.interleave import Need
from aiostream_data.transforms.mixing import MixOrder, MixStep
from aiostream_data.transforms.randomness import key_of
from aiostream_data.weights import Schedule, Stop, schedule_of, shares_of

Row = tuple[int, int]
"""(input, index in the input)."""

Pick = Callable[[int, int], int]
KEY = key_of(7, "mix")


class Run:
    """An order with its inputs, cut into chunks and asked for steps as a test decides."""

    def __init__(self, sizes: list[int], order: MixOrder, pick: Pick) -> None:
        self.sizes, self.order, self.pick = sizes, order, pick
        self.loaded = [0] * len(sizes)
        self.base = [0] * len(sizes)
        self.finished = False
        self.last: MixStep | None = None

    def step(self, most: int = 5) -> list[Row]:
        """Do one step, and answer what it waits for."""
        self.last = step = self.order.advance(self.pick(0, most))
        pairs = zip(step.which.tolist(), step.rows.tolist(), strict=True)
        rows = [(slot, self.base[slot] + row) for slot, row in pairs]
        if step.waiting.need is Need.ROWS:
            self._load(step.waiting.slot)
        self.finished = step.waiting.need is Need.FINISHED
        return rows

    def _load(self, slot: int) -> None:
        left = self.sizes[slot] - self.loaded[slot]
        rows = self.pick(0, left)
        if rows or left:
            self.order.load(slot, rows)
            self.base[slot] = self.loaded[slot]
            self.loaded[slot] += rows
        if rows == left:
            self.order.ended(slot)

    def to_the_end(self, most: int = 5) -> list[Row]:
        found: list[Row] = []
        while not self.finished:
            found += self.step(most)
        return found

    def resumed(self, order: MixOrder, rows_of_step: int | None = None) -> Run:
        """Return a run that goes on after the last step, or after its first rows, with a new order."""
        state = self.order.state()
        if rows_of_step is not None:
            assert self.last is not None
            state = self.order.state_at(self.last.place, rows_of_step)
        order.restore(json.loads(json.dumps(state)))
        run = Run(self.sizes, order, self.pick)
        run.loaded = list(state["given"])
        return run


def picks(seed: int) -> Pick:
    rng = np.random.default_rng(seed)
    return lambda low, high: int(rng.integers(low, high + 1))


def everything_at_once(low: int, high: int) -> int:
    return high


def dealt(schedule: Schedule, count: int) -> list[int]:
    """Return the inputs of the first rows of a mixture of endless inputs."""
    order = MixOrder(schedule)
    for slot in range(len(schedule.names)):
        order.load(slot, count)
    which: list[int] = []
    while len(which) < count:
        which += order.advance(count - len(which)).which.tolist()
    return which


def names(count: int) -> tuple[str, ...]:
    return tuple(map(str, range(count)))


WEIGHTS = st.lists(st.one_of(st.integers(0, 9), st.floats(1e-6, 1e6)), min_size=1, max_size=8).filter(any)
SIZES = st.lists(st.integers(0, 12), min_size=1, max_size=4)


@settings(deadline=None)
@given(WEIGHTS, st.integers(1, 3000))
def test_counts_stay_within_one_row_of_their_share_at_every_row(weights: list[float], count: int) -> None:
    which = dealt(schedule_of(weights, names(len(weights))), count)
    counts = np.cumsum(np.array(which)[:, None] == np.arange(len(weights)), axis=0)
    shares = [float(Fraction(weight) / sum(map(Fraction, weights))) for weight in weights]
    due = np.arange(1, count + 1)[:, None] * np.array(shares)
    assert np.abs(counts - due).max() < 1


@given(
    st.lists(st.tuples(st.integers(1, 300), st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=8),
    st.integers(1, 50),
)
def test_of_two_inputs_no_change_of_weights_ever_costs_a_row(spans: list[tuple[int, int, int]], last: int) -> None:
    steps, row = [], 0
    due = [Fraction(0)]
    for length, first, second in spans:
        steps.append((row, [first, second]))
        row += length
        due += [due[-1] + Fraction(first, first + second) * (number + 1) for number in range(length)]
    which = dealt(schedule_of(steps, names(2)), row)
    had = np.concatenate(([0], np.cumsum(np.array(which) == 0)))
    assert max(abs(Fraction(int(count)) - share) for count, share in zip(had, due, strict=True)) < 1 + 1e-9


@settings(deadline=None, max_examples=30)
@given(st.integers(2, 6), st.integers(0, 2**32))
def test_of_several_inputs_changes_of_weights_never_add_up(inputs: int, seed: int) -> None:
    def weights(row: int) -> list[int]:
        drawn: list[int] = np.random.default_rng((seed, row)).integers(1, 10, inputs).tolist()
        return drawn

    count, every = 2000, 7
    which = dealt(schedule_of(weights, names(inputs), every), count)
    had = np.cumsum(np.array(which)[:, None] == np.arange(inputs), axis=0)
    vectors = np.array([weights(row - row % every) for row in range(count)], float)
    due = np.cumsum(vectors / vectors.sum(axis=1, keepdims=True), axis=0)
    assert (had - due).max() < 1
    assert (had - due).min() > 1 - inputs


@pytest.mark.parametrize("key", [None, KEY])
@given(SIZES, st.sampled_from(["first", "all"]), st.integers(0, 2**32), st.data())
def test_the_order_does_not_depend_on_how_inputs_are_cut(
    key: np.uint64 | None, sizes: list[int], stop: Stop, seed: int, data: st.DataObject
) -> None:
    schedule = some_schedule(len(sizes), data)
    whole = Run(sizes, MixOrder(schedule, stop, key), everything_at_once).to_the_end(most=1000)
    assert Run(sizes, MixOrder(schedule, stop, key), picks(seed)).to_the_end() == whole


@pytest.mark.parametrize("key", [None, KEY])
@given(SIZES, st.sampled_from(["first", "all"]), st.integers(0, 2**32), st.floats(0.1, 0.8), st.data())
def test_resuming_at_any_row_gives_the_same_order(
    key: np.uint64 | None, sizes: list[int], stop: Stop, seed: int, share: float, data: st.DataObject
) -> None:
    schedule = some_schedule(len(sizes), data)
    rng = np.random.default_rng(seed)
    run = Run(sizes, MixOrder(schedule, stop, key), picks(seed))
    found: list[Row] = []
    while not run.finished:
        rows = run.step()
        if rng.random() < share:  # never always: what is loaded is lost, and loaded again
            rows = rows[: int(rng.integers(0, len(rows) + 1))]
            run = run.resumed(MixOrder(schedule, stop, key), len(rows))
        found += rows
    assert found == Run(sizes, MixOrder(schedule, stop, key), everything_at_once).to_the_end(most=1000)


@given(SIZES, st.integers(0, 2**32), st.integers(0, 20), st.data())
def test_weights_set_while_running_hold_from_their_row_on_and_survive_resuming(
    sizes: list[int], seed: int, row: int, data: st.DataObject
) -> None:
    schedule = some_schedule(len(sizes), data)
    weights = tuple(map(float, data.draw(some_weights(len(sizes)))))
    planned = Run(sizes, MixOrder(schedule.changed(row, weights), "all"), everything_at_once).to_the_end(most=1000)
    run = Run(sizes, MixOrder(schedule, "all"), picks(seed))
    found: list[Row] = []
    while not run.finished and run.order.row < row:
        found += run.step(min(5, row - run.order.row))
    if not run.finished:
        assert run.order.set_weights(weights) == row
        run = run.resumed(MixOrder(schedule.with_changes_of(run.order.schedule.changes_state), "all"))
    found += run.to_the_end()
    assert found == planned


@given(SIZES, st.integers(0, 2**32), st.data())
def test_with_all_every_row_of_every_input_with_a_weight_comes_once(
    sizes: list[int], seed: int, data: st.DataObject
) -> None:
    weights = data.draw(some_weights(len(sizes)))
    found = Run(sizes, MixOrder(schedule_of(weights, names(len(sizes))), "all"), picks(seed)).to_the_end()
    for slot, (size, weight) in enumerate(zip(sizes, weights, strict=True)):
        assert [index for number, index in found if number == slot] == list(range(size if weight else 0))


def some_weights(inputs: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, 5), min_size=inputs, max_size=inputs).filter(any)


def some_schedule(inputs: int, data: st.DataObject) -> Schedule:
    rows = sorted({0, *data.draw(st.lists(st.integers(1, 20), max_size=3))})
    steps: Any = [(row, data.draw(some_weights(inputs))) for row in rows]
    return schedule_of(steps, names(inputs))


def deal_by_the_rule(shares: NDArray[np.int64], lags: NDArray[np.int64], count: int) -> NDArray[np.int32]:
    """Return the inputs of the next rows by Tijdeman's rule, with all inputs compared for every row."""
    unit, inputs = int(shares.sum()), np.flatnonzero(shares).tolist()
    least = unit // (2 * len(inputs) - 2) if len(inputs) > 1 else 0
    due = {number: (unit - least - int(lags[number])) // int(shares[number]) for number in inputs}
    which = []
    for row in range(count):
        lags += shares
        chosen = min((number for number in inputs if lags[number] >= least), key=due.__getitem__)
        which.append(chosen)
        lags[chosen] -= unit
        due[chosen] = row + 1 + (unit - least - int(lags[chosen])) // int(shares[chosen])
    return np.array(which, np.int32)


@given(
    WEIGHTS | st.lists(st.integers(0, 4), min_size=20, max_size=60).filter(any),
    st.integers(0, 200),
    st.integers(0, 200),
)
def test_both_versions_of_the_deal_follow_the_rule(weights: list[float], first: int, second: int) -> None:
    shares = np.array(shares_of(tuple(map(float, weights))), np.int64)
    results = []
    for kernel in (deal_by_the_rule, deal_rows, mixing_py.deal_rows):
        lags = np.zeros(len(shares), np.int64)
        dealt = [kernel(shares, lags, count).tolist() for count in (first, second)]
        results.append((dealt, lags.tolist()))
    assert results[0] == results[1] == results[2]


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=4),
    st.lists(st.integers(0, 3), max_size=20),
)
def test_the_native_following_equals_its_twin(inputs: list[tuple[int, int]], choices: list[int]) -> None:
    results = []
    chosen: NDArray[np.int32] = np.array(choices, np.int32) % len(inputs)
    for kernel in (follow_choices, mixing_py.follow_choices):
        next_row = np.array([first for first, _ in inputs], np.int64)
        stop_row = np.array([first + rows for first, rows in inputs], np.int64)
        results.append((kernel(chosen, next_row, stop_row).tolist(), next_row.tolist()))
    assert results[0] == results[1]


def test_the_native_kernels_refuse_arrays_that_do_not_fit() -> None:
    native = pytest.importorskip("aiostream_data._native.mixing", exc_type=ImportError)
    two, three = np.ones(2, np.int64), np.zeros(3, np.int64)
    with pytest.raises(ValueError, match="2 shares, 3 lags"):
        native.deal_rows(two, three, 1)
    with pytest.raises(ValueError, match="no input has a share"):
        native.deal_rows(three, three, 1)
    with pytest.raises(ValueError, match="the share of input 0 is -1"):
        native.deal_rows(-two, two, 1)
    with pytest.raises(ValueError, match="do not sum to 0"):
        native.deal_rows(two, two - 5, 1)
    with pytest.raises(ValueError, match="2 next rows, 3 stop rows"):
        native.follow_choices(np.zeros(1, np.int32), two, three)
    with pytest.raises(ValueError, match="choice 2 of 2 inputs"):
        native.follow_choices(np.full(1, 2, np.int32), two, two + 1)
