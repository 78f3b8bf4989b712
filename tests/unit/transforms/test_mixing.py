"""A mixture takes rows by weight, says what it waits for, and ends as its stop policy says."""

from __future__ import annotations

from time import perf_counter

import numpy as np
import pytest

from aiostream_data.errors import PlanError
from aiostream_data.transforms.interleave import FINISHED, NOTHING, MergeStep, Need, WaitingStream
from aiostream_data.transforms.mixing import MixOrder
from aiostream_data.transforms.randomness import key_of
from aiostream_data.weights import Stop, WeightPlan, schedule_of

NAMES = ("a", "b", "c")
KEY = key_of(1, "mix")


def order_of(weights: WeightPlan, sizes: list[int], stop: Stop = "first", key: np.uint64 | None = None) -> MixOrder:
    """Return an order whose inputs are loaded in full."""
    order = MixOrder(schedule_of(weights, NAMES[: len(sizes)], every=100), stop, key)
    for slot, rows in enumerate(sizes):
        order.load(slot, rows)
        order.ended(slot)
    return order


def whole(order: MixOrder, count: int) -> MergeStep:
    """Return the next ``count`` rows in one step, or what there is before it has to wait or ends."""
    which, rows, waiting = [np.empty(0, np.int32)], [np.empty(0, np.int64)], NOTHING
    while count > 0 and waiting is NOTHING:
        step = order.advance(count)
        which.append(step.which)
        rows.append(step.rows)
        count, waiting = count - len(step), step.waiting
    return MergeStep(np.concatenate(which), np.concatenate(rows), waiting)


def letters(step: MergeStep) -> str:
    return "".join(NAMES[slot] for slot in step.which.tolist())


def test_rows_of_a_light_input_stand_in_the_middle_of_its_period() -> None:
    assert letters(whole(order_of([4, 1], [99, 99]), 15)) == "aabaaaabaaaabaa"


def test_equal_inputs_take_turns() -> None:
    step = whole(order_of([1, 1, 1], [9, 9, 9]), 7)
    assert (letters(step), step.rows.tolist()) == ("abcabca", [0, 0, 0, 1, 1, 1, 2])


def test_r33_of_10_000_rows_each_input_gives_its_share_to_the_row() -> None:
    which = whole(order_of([0.8, 0.2], [10_000, 10_000]), 10_000).which
    assert np.bincount(which).tolist() == [8000, 2000]
    assert all(np.bincount(part).tolist() == [800, 200] for part in np.split(which, 10))


def test_an_input_of_weight_zero_is_never_asked_for_rows() -> None:
    order = MixOrder(schedule_of([1, 0], NAMES[:2]))
    order.load(0, 5)
    assert letters(whole(order, 5)) == "aaaaa"
    assert whole(order, 5).waiting == WaitingStream.rows(0)


def test_first_ends_when_the_input_in_turn_has_no_more_rows() -> None:
    order = order_of([1, 1], [3, 2])
    step = whole(order, 99)
    assert (letters(step), step.waiting) == ("ababa", FINISHED)
    assert whole(order, 99).waiting == FINISHED


def test_all_goes_on_with_the_proportions_of_the_others() -> None:
    step = whole(order_of([2, 1, 1], [12, 2, 90], "all"), 20)
    assert letters(step)[:8] == "abacabac"
    assert np.bincount(step.which, minlength=3).tolist() == [12, 2, 6]


def test_all_ends_when_every_input_is_exhausted() -> None:
    order = order_of([5, 1, 1], [2, 0, 3], "all")
    step = whole(order, 99)
    assert (sorted(letters(step)), step.waiting) == (list("aaccc"), FINISHED)


def test_all_ends_when_only_inputs_of_weight_zero_are_left() -> None:
    step = whole(order_of([(0, [1, 0]), (50, [0, 1])], [3, 9], "all"), 99)
    assert (letters(step), step.waiting) == ("aaa", FINISHED)


def test_the_end_of_an_input_is_noticed_only_when_a_further_row_is_asked_of_it() -> None:
    order = order_of([1, 1], [1, 1])
    assert whole(order, 2).waiting == NOTHING
    assert whole(order, 1).waiting == FINISHED


def test_a_schedule_changes_the_weights_at_its_rows() -> None:
    step = whole(order_of([(0, [1, 0]), (3, [0, 1]), (5, [1, 1])], [99, 99]), 9)
    assert letters(step) == "aaabbabab"


def test_a_function_of_the_row_number_gives_the_weights() -> None:
    def curriculum(row: int) -> list[float]:
        return [1000 - row, row]

    which = whole(order_of(curriculum, [1000, 1000]), 1000).which
    assert [int(part.sum()) for part in np.split(which, 10)] == [0, 10, 20, 30, 40, 50, 60, 70, 80, 90]


def test_new_weights_hold_from_the_next_row_or_a_later_one() -> None:
    order = order_of([1, 0], [99, 99])
    whole(order, 4)
    assert order.set_weights((0.0, 1.0)) == 4
    assert order.set_weights((1.0, 0.0), from_row=6) == 6
    assert letters(whole(order, 4)) == "bbaa"
    assert order.schedule.changes_state == [[4, [0.0, 1.0], [1.0, 0.0]], [6, [1.0, 0.0], [1.0, 0.0]]]


def test_changes_that_are_over_are_forgotten() -> None:
    order = order_of([1, 0], [999, 999])
    for _ in range(100):
        whole(order, 3)
        order.set_weights((1.0, 1.0))
    assert len(order.schedule.changes) == 1


def test_weights_of_rows_that_were_given_cannot_be_changed() -> None:
    order = order_of([1, 1], [9, 9])
    whole(order, 4)
    with pytest.raises(PlanError, match="from row 3 on: the next row is 4"):
        order.set_weights((1.0, 2.0), from_row=3)


def test_random_draws_depend_on_key_and_row_number_and_follow_the_weights() -> None:
    count = 100_000
    draws = [whole(order_of([0.7, 0.2, 0.1], [count] * 3, "all", key), count).which for key in (KEY, KEY, key_of(2))]
    assert np.array_equal(draws[0], draws[1])
    assert not np.array_equal(draws[0], draws[2])
    # Independent draws: counts within five standard deviations, and no rhythm.
    assert np.abs(np.bincount(draws[0]) - count * np.array([0.7, 0.2, 0.1])).max() < 5 * np.sqrt(count * 0.21)
    repeats = float((draws[0][1:] == draws[0][:-1]).mean())
    assert abs(repeats - (0.49 + 0.04 + 0.01)) < 0.01


@pytest.mark.parametrize(
    ("sizes", "message"), [([2], "the state has 1 inputs"), ([1, 2, 3], "the state has 3 inputs, this order has 2")]
)
def test_a_state_of_another_number_of_inputs_is_refused(sizes: list[int], message: str) -> None:
    state = order_of([1] * len(sizes), sizes).state()
    with pytest.raises(ValueError, match=message):
        order_of([1, 1], [1, 1]).restore(state)


def test_events_that_cannot_happen_are_refused() -> None:
    order = MixOrder(schedule_of([1, 1], NAMES[:2]))
    order.load(0, 2)
    with pytest.raises(ValueError, match="input 0 cannot take a chunk of 3 rows: 2 are left"):
        order.load(0, 3)
    order.ended(0)
    with pytest.raises(ValueError, match="input 0 has ended before"):
        order.ended(0)


@pytest.mark.parametrize("inputs", [2, 8])
@pytest.mark.parametrize("key", [None, KEY])
def test_five_million_rows_are_decided_in_a_second(inputs: int, key: np.uint64 | None) -> None:
    pytest.importorskip("aiostream_data._native.mixing", exc_type=ImportError)
    weights = np.random.default_rng(3).random(inputs)
    seconds = []
    for _ in range(3):
        order, rows = MixOrder(schedule_of(weights, tuple(map(str, range(inputs)))), random_key=key), 0  # type: ignore[arg-type]
        started = perf_counter()
        while rows < 500_000:
            step = order.advance(16_384)
            rows += len(step)
            if step.waiting.need is Need.ROWS:
                order.load(step.waiting.slot, 5000)
        seconds.append(perf_counter() - started)
    assert min(seconds) < 500_000 / 5e6
