"""The native gather kernels do what their clear twins do, for every dtype, shape and index."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from aiostream_data._native import gather_py as twin

native = pytest.importorskip("aiostream_data._native.gather", exc_type=ImportError)

DTYPES = ["u1", "i2", ">f4", "f8", "c16", "?", "S3", "U2", "M8[ns]", "O", np.dtype([("a", "i4"), ("b", "u1")])]
ROW_SHAPES: list[tuple[int, ...]] = [(), (1,), (2,), (3,), (16,), (0,), (2, 2), (5, 7)]


def array_of(dtype: Any, rows: int, row_shape: tuple[int, ...], strided: bool, seed: int) -> NDArray[Any]:
    count = rows * (2 if strided else 1)
    numbers = np.random.default_rng(seed).integers(0, 100, (count, *row_shape))
    dtype = np.dtype(dtype)
    array = numbers.view("M8[ns]") if dtype.kind == "M" else numbers.astype(dtype)
    return array[::2] if strided else array


@st.composite
def sources(draw: st.DrawFn, count: int) -> list[NDArray[Any]]:
    dtype, row_shape = draw(st.sampled_from(DTYPES)), draw(st.sampled_from(ROW_SHAPES))
    return [array_of(dtype, draw(st.integers(0, 9)), row_shape, draw(st.booleans()), seed) for seed in range(count)]


def index_lists(size: int) -> st.SearchStrategy[NDArray[np.int64]]:
    """Vectors of indices below ``size``, some of them strided views."""
    lists = st.lists(st.integers(0, size - 1), max_size=30) if size else st.just([])
    return st.builds(
        lambda found, strided: np.repeat(np.array(found, np.int64), 2)[::2] if strided else np.array(found, np.int64),
        lists,
        st.booleans(),
    )


def assert_same(ours: NDArray[Any], theirs: NDArray[Any]) -> None:
    assert ours.dtype == theirs.dtype
    assert ours.shape == theirs.shape
    assert ours.tolist() == theirs.tolist()
    assert ours.flags.c_contiguous
    assert ours.flags.writeable


@given(st.data())
def test_take_rows_equals_its_twin(data: st.DataObject) -> None:
    source = data.draw(sources(1))[0]
    rows = data.draw(index_lists(len(source)))
    assert_same(native.take_rows(source, rows), twin.take_rows(source, rows))


@given(st.data())
def test_take_rows_many_equals_its_twin(data: st.DataObject) -> None:
    several = data.draw(st.integers(1, 4).flatmap(sources))
    which = np.array([k for k in data.draw(index_lists(len(several))) if len(several[k])], np.int32)
    rows = np.array([data.draw(st.integers(0, len(several[k]) - 1)) for k in which], np.int64)
    assert_same(native.take_rows_many(several, which, rows), twin.take_rows_many(several, which, rows))


@given(st.data())
def test_compact_many_equals_its_twin(data: st.DataObject) -> None:
    several = data.draw(st.integers(1, 4).flatmap(sources))
    which = data.draw(index_lists(len(several))).astype(np.int32)
    starts = np.array([data.draw(st.integers(0, len(several[k]))) for k in which], np.int64)
    spans = zip(which, starts, strict=True)
    lengths = np.array([data.draw(st.integers(0, len(several[k]) - start)) for k, start in spans], np.int64)
    ours, theirs = (kernel.compact_many(several, which, starts, lengths) for kernel in (native, twin))
    assert_same(ours[0], theirs[0])
    assert_same(ours[1], theirs[1])


@given(st.integers(0, 200), st.integers(0, 60), st.integers(1, 40), st.integers(0, 2**32))
def test_compact_equals_its_twin_for_short_and_long_byte_rows(size: int, rows: int, longest: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 256, size, np.uint8)
    starts = rng.integers(0, size + 1, rows)
    lengths = np.minimum(rng.integers(0, longest, rows), size - starts)
    ours, theirs = (kernel.compact(values, starts, lengths) for kernel in (native, twin))
    assert_same(ours[0], theirs[0])
    assert_same(ours[1], theirs[1])


@given(st.data())
def test_exchange_rows_equals_its_twin_in_what_goes_out_and_what_stays(data: st.DataObject) -> None:
    buffer, pool = data.draw(sources(2))
    slots = data.draw(index_lists(len(buffer)))
    slots = slots if len(pool) else slots[:0]
    incoming = pool[np.arange(len(slots)) % max(len(pool), 1)]
    kept, kept_by_twin = buffer.copy(), buffer.copy()
    assert_same(native.exchange_rows(kept, slots, incoming), twin.exchange_rows(kept_by_twin, slots, incoming))
    assert kept.tolist() == kept_by_twin.tolist()


@given(st.data())
def test_exchange_spans_equals_its_twin_in_what_goes_out_and_what_stays(data: st.DataObject) -> None:
    held, values = data.draw(sources(2))
    spare = data.draw(st.integers(0, 60))
    arena = np.zeros((len(held) + spare, *held.shape[1:]), held.dtype)
    arena[: len(held)] = held
    kept = data.draw(st.integers(0, 5))
    held_starts = np.array([data.draw(st.integers(0, len(held))) for _ in range(kept)], np.int64)
    held_lengths = np.array([data.draw(st.integers(0, len(held) - start)) for start in held_starts], np.int64)
    slots = data.draw(index_lists(kept))
    starts = np.array([data.draw(st.integers(0, len(values))) for _ in slots], np.int64)
    lengths = np.array([data.draw(st.integers(0, len(values) - start)) for start in starts], np.int64)
    results = []
    for kernel in (native, twin):
        spans = arena.copy(), held_starts.copy(), held_lengths.copy()
        try:
            out = kernel.exchange_spans(spans[0], len(held), *spans[1:], slots, values, starts, lengths)
        except IndexError:
            out = None
        results.append((out, spans))
    (ours, kept_by_us), (theirs, kept_by_twin) = results
    assert (ours is None) == (theirs is None)
    if ours is None or theirs is None:
        assert lengths.sum() > spare
        return
    assert ours[3] == theirs[3]
    for one, other in zip([*ours[:3], *kept_by_us[1:]], [*theirs[:3], *kept_by_twin[1:]], strict=True):
        assert_same(one, other)
    assert kept_by_us[0][: ours[3]].tolist() == kept_by_twin[0][: ours[3]].tolist()


@pytest.mark.parametrize("kernel", [native, twin])
@pytest.mark.parametrize(
    ("used", "slot", "start", "length"),
    [
        (0, 3, 0, 1),
        (0, -1, 0, 1),
        (0, 0, 5, 1),
        (0, 0, -1, 1),
        (0, 0, 0, -1),
        (8, 0, 0, 3),
        (-1, 0, 0, 1),
        (11, 0, 0, 0),
    ],
)
def test_exchange_spans_checks_all_indices_first(kernel: Any, used: int, slot: int, start: int, length: int) -> None:
    arena, values = np.arange(10, dtype=np.uint8), np.arange(5, dtype=np.uint8)
    held_starts, held_lengths = np.array([0, 2, 4]), np.array([2, 2, 2])
    with pytest.raises(IndexError):
        kernel.exchange_spans(
            arena, used, held_starts, held_lengths, np.array([slot]), values, np.array([start]), np.array([length])
        )
    assert arena.tolist() == list(range(10))
    assert held_starts.tolist() == [0, 2, 4]


@pytest.mark.parametrize("kernel", [native, twin])
def test_exchange_spans_refuses_arrays_that_it_cannot_change(kernel: Any) -> None:
    arena, spans, none = np.zeros(10, np.uint8), np.zeros(3, np.int64), np.empty(0, np.int64)
    fixed = arena.copy()
    fixed.flags.writeable = False
    for bad in (
        (fixed, spans, spans),
        (arena[::2], spans, spans),
        (arena, spans[:2], spans),
        (arena, spans, spans > 0),
    ):
        with pytest.raises(ValueError, match=r"contiguous and writable|int64"):
            kernel.exchange_spans(bad[0], 0, bad[1], bad[2], none, arena.copy(), none, none)
