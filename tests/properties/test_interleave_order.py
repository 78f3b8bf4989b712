"""The order equals a literal per-element copy of tf.data's kernel, however streams are cut, from any position."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiostream_data._native import interleave_rows, ordering_py
from aiostream_data.transforms.interleave import InterleaveOrder, Need

Row = tuple[int, int]
"""(stream, index in the stream)."""


def kernel_of_tf_data(sizes: list[int], cycle_length: int, block_length: int) -> Iterator[Row]:
    """Follow GetNextInternal of tf.data's InterleaveDataset, one element per step."""
    inputs = iter(enumerate(sizes))
    current: list[Iterator[Row] | None] = [None] * cycle_length
    end_of_input, open_streams, cycle_index, block_index = False, 0, 0, 0
    while not end_of_input or open_streams > 0:
        stream = current[cycle_index]
        if stream is not None:
            row = next(stream, None)
            if row is not None:
                block_index += 1
                if block_index == block_length:
                    cycle_index, block_index = (cycle_index + 1) % cycle_length, 0
                yield row
                continue
            current[cycle_index] = None
            open_streams -= 1
            cycle_index, block_index = (cycle_index + 1) % cycle_length, 0
        elif not end_of_input:
            found = next(inputs, None)
            if found is None:
                end_of_input = True
            else:
                number, size = found
                current[cycle_index] = iter([(number, index) for index in range(size)])
                open_streams += 1
        else:
            cycle_index, block_index = (cycle_index + 1) % cycle_length, 0


class Run:
    """An order with its streams, cut into chunks and asked for steps as a test decides."""

    def __init__(self, sizes: list[int], order: InterleaveOrder, pick: Callable[[int, int], int]) -> None:
        self.sizes, self.order, self.pick = sizes, order, pick
        self.opened = 0
        self.finished = False
        self.stream_in: dict[int, int] = {}
        self.loaded: dict[int, int] = {}
        self.base: dict[int, int] = {}
        self.ready: list[int] = []  # ready streams, by their number
        self.chunks: dict[int, list[Row]] = {}  # chunks of ready streams, by key

    def step(self) -> list[Row]:
        """Do one step, and answer what it waits for."""
        step = self.order.advance(self.pick(0, 5))
        pairs = zip(step.which.tolist(), step.rows.tolist(), strict=True)
        rows = [self._row(key, row) for key, row in pairs]
        slot = step.waiting.slot
        if step.waiting.need is Need.STREAM:
            self._open(slot)
        elif step.waiting.need is Need.ROWS:
            self._load(slot)
        self.finished = step.waiting.need is Need.FINISHED
        return rows

    def _row(self, key: int, row: int) -> Row:
        return self.chunks[key][row] if key in self.chunks else (self.stream_in[key], self.base[key] + row)

    def _open(self, slot: int) -> None:
        if self.opened == len(self.sizes):
            self.order.no_more_streams()
            return
        if count := self.pick(0, len(self.sizes) - self.opened):
            self._add_ready(count)
            return
        self.stream_in[slot], self.loaded[slot] = self.opened, 0
        self.opened += 1
        self.order.opened(slot)

    def _add_ready(self, count: int) -> None:
        """Queue the next streams as ready ones."""
        numbers = range(self.opened, self.opened + count)
        key = self.order.cycle_length + len(self.chunks)
        self.chunks[key] = [(number, index) for number in numbers for index in range(self.sizes[number])]
        self.order.add_ready(key, np.array([self.sizes[number] for number in numbers], np.int64))
        self.ready += numbers
        self.opened += count

    def _load(self, slot: int) -> None:
        left = self.sizes[self.stream_in[slot]] - self.loaded[slot]
        rows = self.pick(0, left)
        if rows or left:
            self.order.load(slot, rows)
            self.base[slot] = self.loaded[slot]
            self.loaded[slot] += rows
        if rows == left:
            self.order.ended(slot)

    def resumed(self) -> Run:
        """Return a run that continues from this one's state with a new order."""
        order = InterleaveOrder(self.order.cycle_length, self.order.block_length, self.order.deterministic)
        state = self.order.state()
        order.restore(state)
        run = Run(self.sizes, order, self.pick)
        run.opened = self.opened - (len(self.ready) - self.order.ready_opened)
        for slot, count in enumerate(state["given"]):
            if count is not None:
                number = self.order.ready_stream(slot)
                stream = self.stream_in[slot] if number is None else self.ready[number]
                run.stream_in[slot], run.loaded[slot] = stream, count
        return run

    def unused_ready(self) -> set[int]:
        """Return the ready streams that may still give rows, as the order's ``ready_in_use`` has them."""
        return set(self.ready[self.order.ready_in_use :])


SIZES = st.lists(st.integers(0, 7), max_size=6)


@given(SIZES, st.integers(1, 4), st.integers(1, 4), st.integers(0, 2**32))
def test_the_order_is_tf_datas_however_streams_are_cut(sizes: list[int], cycle: int, block: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    run = Run(sizes, InterleaveOrder(cycle, block), lambda low, high: int(rng.integers(low, high + 1)))
    found: list[Row] = []
    while not run.finished:
        ready_before, may_come = set(run.ready), run.unused_ready()
        rows = run.step()
        assert all(number in may_come for number, _ in rows if number in ready_before)
        found += rows
    assert found == list(kernel_of_tf_data(sizes, cycle, block))


@given(SIZES, st.integers(1, 4), st.integers(1, 4), st.integers(0, 2**32))
def test_a_position_after_a_mark_is_the_position_of_the_order_itself(
    sizes: list[int], cycle: int, block: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    run = Run(sizes, InterleaveOrder(cycle, block), lambda low, high: int(rng.integers(low, high + 1)))
    while not run.finished:
        mark, opened = run.order.mark(), run.order.ready_opened
        rows = run.step()
        for count in range(1, len(rows) + 1):
            after, twin = run.order.after(mark, count), run.order.after(mark, 0)
            for _ in range(count):
                twin.advance(1)
            left = twin.after(twin.mark(), 0)  # a position never holds a stream that has ended and has no rows left
            assert after.state() == left.state()
            assert opened <= after.ready_opened <= run.order.ready_opened


@given(SIZES, st.integers(1, 4), st.integers(1, 4), st.integers(0, 2**32), st.floats(0.1, 0.8))
def test_resuming_at_any_step_gives_the_same_order(
    sizes: list[int], cycle: int, block: int, seed: int, share: float
) -> None:
    rng = np.random.default_rng(seed)
    run = Run(sizes, InterleaveOrder(cycle, block), lambda low, high: int(rng.integers(low, high + 1)))
    found: list[Row] = []
    while not run.finished:
        found += run.step()
        if not run.finished and rng.random() < share:  # never always: what is loaded is lost, and loaded again
            run = run.resumed()
    assert found == list(kernel_of_tf_data(sizes, cycle, block))


@given(SIZES, st.integers(1, 4), st.integers(1, 4), st.integers(0, 2**32))
def test_without_determinism_every_row_comes_once_and_streams_stay_in_order(
    sizes: list[int], cycle: int, block: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    order = InterleaveOrder(cycle, block, deterministic=False)
    run = Run(sizes, order, lambda low, high: int(rng.integers(low, high + 1)))
    found: list[Row] = []
    while not run.finished:
        found += run.step()
    for stream, size in enumerate(sizes):
        assert [index for number, index in found if number == stream] == list(range(size))


@given(
    st.lists(st.tuples(st.sampled_from([0, 1, 2]), st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=5),
    st.integers(0, 4),
    st.integers(0, 3),
    st.integers(1, 3),
    st.booleans(),
    st.booleans(),
    st.integers(0, 20),
    st.lists(st.tuples(st.integers(5, 7), st.integers(0, 9), st.integers(0, 3)), max_size=4),
    st.integers(0, 4),
)
def test_the_native_order_equals_its_twin(
    slots: list[tuple[int, int, int]],
    slot: int,
    taken: int,
    block: int,
    deterministic: bool,
    more_streams: bool,
    max_rows: int,
    ready: list[tuple[int, int, int]],
    opened: int,
) -> None:
    results = []
    queue = np.array(ready, np.int64).reshape(-1, 3)
    for kernel in (interleave_rows, ordering_py.interleave_rows):
        position = np.array([slot % len(slots), min(taken, block - 1), min(opened, len(ready))], np.int64)
        status = np.array([status for status, _, _ in slots], np.uint8)
        next_row = np.array([first for _, first, _ in slots], np.int64)
        stop_row = np.array([first + (rows if status else 0) for status, first, rows in slots], np.int64)
        source = np.array([first % (len(ready) + 1) - 1 for _, first, _ in slots], np.int64)
        which, rows, is_run, waiting, waited = kernel(
            position, status, next_row, stop_row, source, queue, block, deterministic, more_streams, max_rows
        )
        kept = [array.tolist() for array in (position, status, next_row, stop_row, source)]
        results.append((which.tolist(), rows.tolist(), is_run, waiting, waited, kept))
    assert results[0] == results[1]


def test_the_native_order_refuses_arrays_that_do_not_fit() -> None:
    native = pytest.importorskip("aiostream_data._native.ordering", exc_type=ImportError)
    queue, two, three = np.zeros((1, 3), np.int64), np.zeros(2, np.int64), np.zeros(3, np.int64)
    status, end = np.zeros(3, np.uint8), (1, True, True, 1)
    with pytest.raises(ValueError, match="length"):
        native.interleave_rows(three, status, three, two, three, queue, *end)
    with pytest.raises(ValueError, match="length"):
        native.interleave_rows(three, status, three, three, two, queue, *end)
    with pytest.raises(ValueError, match="3 columns"):
        native.interleave_rows(two, status, three, three, three, queue, *end)
    with pytest.raises(ValueError, match="slot 7 of 3"):
        native.interleave_rows(three + 7, status, three, three, three, queue, *end)
    with pytest.raises(ValueError, match="stream 2 of 1"):
        native.interleave_rows(np.array([0, 0, 2]), status, three, three, three, queue, *end)
    with pytest.raises(ValueError, match="next row"):
        native.interleave_rows(three, status, three - 1, three, three, queue, *end)
    with pytest.raises(ValueError, match="slot 0 holds stream 1"):
        native.interleave_rows(three, status, three, three, three + 1, queue, *end)
