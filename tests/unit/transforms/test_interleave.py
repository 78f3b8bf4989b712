"""Interleave takes rows in tf.data's order and says what it waits for."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from aiostream_data.errors import PlanError
from aiostream_data.transforms.interleave import FINISHED, NOTHING, InterleaveOrder, MergeStep, Need, WaitingStream


def run(streams: list[list[str]], order: InterleaveOrder, chunk: int = 3, max_rows: int = 1000) -> str:
    """Give ``streams`` to the order, ``chunk`` rows at a time, and return what comes out."""
    outer = iter(streams)
    left: dict[int, list[str]] = {}
    current: dict[int, list[str]] = {}
    out = []
    while True:
        step = order.advance(max_rows)
        out += [current[slot][row] for slot, row in zip(step.which.tolist(), step.rows.tolist(), strict=True)]
        slot = step.waiting.slot
        match step.waiting.need:
            case Need.FINISHED:
                return " ".join(out)
            case Need.STREAM:
                stream = next(outer, None)
                if stream is None:
                    order.no_more_streams()
                else:
                    left[slot] = list(stream)
                    order.opened(slot)
            case Need.ROWS:
                current[slot], left[slot] = left[slot][:chunk], left[slot][chunk:]
                if current[slot]:
                    order.load(slot, len(current[slot]))
                else:
                    order.ended(slot)


def repeats(last: int, times: int) -> list[list[str]]:
    return [[str(x)] * times for x in range(1, last + 1)]


@pytest.mark.parametrize("chunk", [1, 2, 4, 6])
@pytest.mark.parametrize("max_rows", [1, 3, 1000])
def test_the_vector_of_tf_datas_documentation(chunk: int, max_rows: int) -> None:
    found = run(repeats(5, 6), InterleaveOrder(cycle_length=2, block_length=4), chunk, max_rows)
    assert found.replace(" ", "") == "111122221122333344443344555555"


def test_a_cycle_of_one_drains_stream_after_stream() -> None:
    assert run(repeats(3, 2), InterleaveOrder(1, 7)) == "1 1 2 2 3 3"


def test_an_emptied_slot_is_refilled_only_when_the_cycle_comes_round_to_it() -> None:
    streams = [["a"], ["b", "b", "b"], ["c"]]
    assert run(streams, InterleaveOrder(2, 1)) == "a b b c b"


def test_empty_streams_and_no_streams_give_nothing() -> None:
    assert run([[], [], []], InterleaveOrder(2, 2)) == ""
    assert run([], InterleaveOrder(3, 1)) == ""
    assert run([[], ["a"], []], InterleaveOrder(2, 2)) == "a"


def test_slots_are_opened_lazily_when_first_reached() -> None:
    order = InterleaveOrder(3, 2)
    assert order.advance(10).waiting == WaitingStream.stream(0)
    order.opened(0)
    assert order.advance(10).waiting == WaitingStream.rows(0)
    order.load(0, 5)
    step = order.advance(10)
    assert (step.which.tolist(), step.rows.tolist(), step.waiting) == ([0, 0], [0, 1], WaitingStream.stream(1))


def test_the_end_of_a_stream_is_noticed_only_when_a_further_row_is_asked_for() -> None:
    order = InterleaveOrder(1, 2)
    order.opened(0)
    order.load(0, 2)
    order.ended(0)
    assert order.advance(2).waiting == NOTHING
    assert order.advance(2).waiting == WaitingStream.stream(0)
    order.no_more_streams()
    assert order.advance(2).waiting == FINISHED


def test_rows_of_other_slots_stay_while_the_slot_in_turn_lacks_rows() -> None:
    order = opened(InterleaveOrder(2, 1), 2)
    order.load(1, 4)
    step = order.advance(10)
    assert (len(step), step.waiting, order.rows_left(1)) == (0, WaitingStream.rows(0), 4)


def opened(order: InterleaveOrder, streams: int) -> InterleaveOrder:
    """Open the first slots, with no rows in any, and say that no more streams come."""
    for slot in range(streams):
        order.opened(slot)
    order.no_more_streams()
    return order


def slots_of(step: MergeStep) -> list[int]:
    slots: list[int] = step.which.tolist()
    return slots


def test_without_determinism_a_slot_without_rows_is_passed_over() -> None:
    order = opened(InterleaveOrder(3, 2, deterministic=False), 3)
    order.load(1, 3)
    order.load(2, 2)
    step = order.advance(10)
    assert slots_of(step) == [1, 1, 2, 2, 1]
    assert step.waiting.need is Need.ROWS
    order.load(0, 1)
    assert slots_of(order.advance(10)) == [0]


def test_without_determinism_ended_streams_still_finish() -> None:
    order = opened(InterleaveOrder(3, 1, deterministic=False), 2)
    order.ended(0)
    order.load(1, 2)
    assert order.advance(10).waiting == WaitingStream.rows(1)
    order.ended(1)
    assert order.advance(10).waiting == FINISHED


def test_max_rows_is_kept_inside_a_block() -> None:
    order = opened(InterleaveOrder(2, 5), 2)
    order.load(0, 9)
    order.load(1, 9)
    assert [slots_of(order.advance(n)) for n in (0, 2, 4)] == [[], [0, 0], [0, 0, 0, 1]]


@pytest.mark.parametrize(
    "misuse",
    [
        lambda order: order.opened(0),
        lambda order: order.load(0, 1),
        lambda order: order.load(1, 1),
        lambda order: order.ended(1),
    ],
)
def test_events_that_cannot_happen_are_refused(misuse: Callable[[InterleaveOrder], None]) -> None:
    order = InterleaveOrder(2, 1)
    order.opened(0)
    order.load(0, 1)
    with pytest.raises(ValueError, match="slot"):
        misuse(order)


@pytest.mark.parametrize(("cycle", "block", "name"), [(0, 1, "cycle_length"), (1, 0, "block_length")])
def test_lengths_below_one_are_refused(cycle: int, block: int, name: str) -> None:
    with pytest.raises(PlanError, match=f"{name} must be at least 1, got 0"):
        InterleaveOrder(cycle, block)


def test_the_state_is_plain_and_counts_the_rows_given_of_each_stream() -> None:
    order = InterleaveOrder(3, 2)
    order.opened(0)
    order.load(0, 1)
    order.advance(10)
    order.load(0, 5)
    order.advance(1)
    assert json.loads(json.dumps(order.state())) == order.state()
    assert order.state()["given"] == [2, None, None]


def test_a_state_of_another_cycle_length_is_refused() -> None:
    with pytest.raises(ValueError, match="3 slots"):
        InterleaveOrder(2, 1).restore(InterleaveOrder(3, 1).state())


@pytest.mark.parametrize(("cycle_length", "block_length", "given"), [(1, 7, [None]), (2, 2, [2, 0]), (2, 9, [None, 0])])
def test_after_its_last_row_a_stream_whose_end_is_known_leaves_the_slot_that_is_next(
    cycle_length: int, block_length: int, given: list[int | None]
) -> None:
    order = InterleaveOrder(cycle_length, block_length)
    for slot in range(cycle_length):
        order.opened(slot)
        order.load(slot, 2)
    order.ended(0)
    state = order.after(order.mark(), 2).state()
    assert (state["given"], state["slot"]) == (given, (0 if cycle_length == 1 else 1))


@pytest.mark.parametrize("rows", range(15))
def test_an_order_goes_on_alike_whether_or_not_it_left_a_stream_that_had_ended(rows: int) -> None:
    order = InterleaveOrder(cycle_length=3, block_length=2)
    for slot, loaded in enumerate((3, 5, 2)):
        order.opened(slot)
        order.load(slot, loaded)
        order.ended(slot)
    order.no_more_streams()
    later = order.after(order.mark(), min(rows, 10))
    whole = order.advance(1000)
    rest = later.advance(1000)
    assert rest.which.tolist() == whole.which.tolist()[rows:]
    assert rest.rows.tolist() == whole.rows.tolist()[rows:]
