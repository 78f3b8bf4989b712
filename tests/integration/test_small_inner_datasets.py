"""Small inner datasets of interleave and flat_map are read together, and behave like all others."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aiostream_data as asd
from aiostream_data._engine.sources import group_limits
from aiostream_data._engine.stages.interleaving import small_plans
from aiostream_data._engine.stages.interleaving.inner_streams import InnerStreams
from aiostream_data.testing.comparing import same
from aiostream_data.testing.resume import resumes_everywhere

LENGTHS = [3, 0, 7, 1, 0, 0, 5, 2, 1, 1, 4]


def rows_of(number: int) -> list[int]:
    return [100 * number + row for row in range(LENGTHS[number % len(LENGTHS)])]


def generated(number: int) -> Iterator[int]:
    yield from rows_of(number)


def as_list(number: int) -> list[int]:
    return rows_of(number)


def as_array(number: int) -> Any:
    return np.array(rows_of(number), np.int64)


def as_range(number: int) -> Any:
    return asd.Dataset.range(100 * number, 100 * number + LENGTHS[number % len(LENGTHS)])


def as_slices(number: int) -> Any:
    return asd.Dataset.from_tensor_slices(as_array(number))


def as_tuple(number: int) -> Any:
    return tuple(rows_of(number))


def as_any(number: int) -> Any:
    """Return the rows in a form that differs from number to number; some are no small dataset."""
    forms = (as_list, as_array, as_range, as_slices, generated, as_tuple, mapped)
    return forms[number * 7919 % len(forms)](number)


def mapped(number: int) -> Any:
    return as_range(number).map(int)


def kept(number: int) -> Any:
    rows = rows_of(number)
    around = asd.Dataset.range(100 * number - 1, 100 * number + len(rows) + 1).map(int)
    return around.filter(lambda row: row >= 100 * number).take(len(rows))


FORMS = [as_list, as_array, as_range, as_slices, as_any, mapped, kept]


@given(st.sampled_from(FORMS), st.integers(0, 150), st.sampled_from([None, 1, 2, 5]), st.integers(1, 3), st.booleans())
def test_the_rows_are_those_of_generators(form: Any, count: int, cycle: int | None, block: int, debug: bool) -> None:
    numbers = asd.Dataset.range(count)
    if cycle is None:
        dataset, expected = numbers.flat_map(form), numbers.flat_map(generated)
    else:
        dataset = numbers.interleave(form, cycle_length=cycle, block_length=block)
        expected = numbers.interleave(generated, cycle_length=cycle, block_length=block)
    with dataset.open(debug=debug) as loader:
        assert list(loader) == list(expected)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("cycle", [1, 3])
def test_they_resume_at_every_row(form: Any, cycle: int) -> None:
    numbers = asd.Dataset.range(12)
    resumes_everywhere(numbers.interleave(form, cycle_length=cycle, block_length=2))


def as_iterable(number: int) -> Any:
    return asd.Dataset.from_iterable(rows_of(number))


def as_tensors(number: int) -> Any:
    return asd.Dataset.from_tensors(np.arange(number))


@pytest.mark.parametrize("form", [as_range, as_slices, as_iterable, as_tensors])
@pytest.mark.parametrize("cycle", [1, 3])
def test_repeated_datasets_give_their_rows_again(form: Any, cycle: int) -> None:
    def repeated(number: int) -> Any:
        return form(number).repeat(1 + number % 3)

    def listed(number: int) -> Any:
        return list(form(number)) * (1 + number % 3)

    numbers = asd.Dataset.range(40)
    dataset = numbers.interleave(repeated, cycle_length=cycle, block_length=2)
    expected = numbers.interleave(listed, cycle_length=cycle, block_length=2)
    assert same(list(dataset), list(expected))
    resumes_everywhere(numbers.take(6).interleave(repeated, cycle_length=cycle, block_length=2))


@pytest.mark.parametrize(
    "values",
    [
        [1, 2],
        [1.5, 2],
        [True, False],
        [None, None],
        ["a", b"b"],
        [(1, 2), (3, 4)],
        [{"a": 1}, {"a": np.float32(2)}],
        np.array([1, 2], np.uint8),
        np.array([1, 2], ">i4"),
        np.array([[1, 2], [3, 4]]),
        np.array(["x", None], object),
        np.array(["2020-01-01", "2021-01-01"], "datetime64[D]"),
    ],
)
def test_elements_have_the_types_that_a_generator_of_the_same_values_gives(values: Any) -> None:
    def generated(_: int) -> Iterator[Any]:
        yield from values

    found = list(asd.Dataset.range(3).flat_map(lambda _: values))
    expected = list(asd.Dataset.range(3).flat_map(generated))
    assert list(map(type, found)) == list(map(type, expected))
    assert all(map(same, found, expected))


def test_arrays_of_several_layouts_follow_each_other() -> None:
    arrays: list[Any] = [np.zeros(2), np.ones((2, 2), np.float32), np.arange(3), np.empty((0, 5)), np.arange(1)]
    found = list(asd.Dataset.range(5).flat_map(lambda number: arrays[number]))
    expected = [row if row.ndim else row.item() for array in arrays for row in array]
    assert len(found) == len(expected)
    assert all(map(same, found, expected))


def test_an_array_without_an_axis_is_refused() -> None:
    with pytest.raises(asd.PlanError, match="must return a Dataset or an iterable"):
        list(asd.Dataset.range(3).flat_map(lambda _: np.array(3)))


@pytest.mark.parametrize("bad", [0, 1, 2, 70, 199])
@pytest.mark.parametrize("form", [as_list, as_range])
def test_a_failing_function_fails_behind_the_rows_before(bad: int, form: Any) -> None:
    def function(number: int) -> Any:
        if number == bad:
            raise ValueError("cannot open it")
        return form(number)

    received: list[int] = []
    with pytest.raises(ValueError, match="cannot open it") as raised:
        received.extend(asd.Dataset.range(200).flat_map(function))  # keeps the rows before the error
    assert received == [row for number in range(bad) for row in rows_of(number)]
    assert any(f"record: range record {bad}" in note for note in raised.value.__notes__)


def test_a_failing_function_is_skipped_alone() -> None:
    def function(number: int) -> list[int]:
        if number % 5 == 3:
            raise ValueError("cannot open it")
        return rows_of(number)

    dataset = asd.Dataset.range(200).flat_map(function, on_error="skip")
    with dataset.open() as loader:
        assert list(loader) == [row for number in range(200) if number % 5 != 3 for row in rows_of(number)]
        assert sum(stage.skipped for stage in loader.stats().stages) == 40


def test_the_function_is_called_only_a_little_ahead_of_the_rows() -> None:
    called = []

    def function(number: int) -> list[int]:
        called.append(number)
        return [number] * 1000

    with asd.Dataset.range(100_000).flat_map(function).open() as loader:
        next(iter(loader))
    assert len(called) < 300


def test_lists_that_are_too_long_to_be_joined_are_read_whole() -> None:
    found = list(asd.Dataset.range(3).flat_map(lambda number: [number] * 20_000))
    assert found == [number for number in range(3) for _ in range(20_000)]


def test_each_row_names_its_origin() -> None:
    dataset = asd.Dataset.range(50).flat_map(as_list)
    with dataset.open() as loader:
        for element in loader:
            (origin,) = loader.origins(element)
            assert asd.Dataset.fetch(dataset, origin) == element


def several_forms(number: int) -> Any:
    return [[number], asd.Dataset.range(number, number + 1), np.array([number])][number % 3]


def test_rows_of_several_forms_name_their_origins_in_a_process_of_its_own_too() -> None:
    dataset = asd.Dataset.range(6).flat_map(several_forms)
    found = []
    for each in (dataset, dataset.in_subprocess()):
        with each.open() as loader:
            found.append([[origin.url for origin in loader.origins(row)] for row in loader])
    assert found[0] == found[1]
    assert len({urls[0] for urls in found[0]}) == 2


def as_ragged(number: int) -> Any:
    rows = rows_of(number)
    return asd.RaggedArray(np.repeat(rows, np.array(rows, np.int64) % 3), np.cumsum([0, *(row % 3 for row in rows)]))


def as_texts(number: int) -> Any:
    return asd.TextArray.from_list([None if row % 3 == 1 else f"{row}\0" for row in rows_of(number)])


def as_tables(number: int) -> Any:
    """Return datasets whose columns have different layouts, some with missing values and some without rows."""
    if number % 4 == 3:
        return asd.Dataset.from_tensors({"text": None, "values": number})
    values: Any = np.array(rows_of(number), np.float32 if number % 5 == 0 else np.int64)
    texts = as_texts(number) if number % 4 else [str(row) for row in rows_of(number)] or np.zeros(0, object)
    return asd.Dataset.from_tensor_slices({"text": texts, "values": as_ragged(number) if number % 3 else values})


@pytest.mark.parametrize("form", [as_ragged, as_texts, as_tables])
@pytest.mark.parametrize("cycle", [1, 3])
def test_columns_of_many_small_datasets_keep_their_values(form: Any, cycle: int) -> None:
    def one_by_one(number: int) -> Iterator[Any]:
        yield from form(number)

    numbers = asd.Dataset.range(60)
    found = list(numbers.interleave(form, cycle_length=cycle, block_length=2))
    expected = list(numbers.interleave(one_by_one, cycle_length=cycle, block_length=2))
    assert len(found) == len(expected)
    assert all(map(same, found, expected))
    resumes_everywhere(asd.Dataset.range(12).interleave(form, cycle_length=cycle, block_length=2))


def test_columns_of_text_do_not_need_a_run_of_their_own() -> None:
    with asd.Dataset.range(300).flat_map(as_texts).open() as loader:
        first = next(iter(loader))
        stages = str(loader.stats())
    assert first == "0\0"
    assert "from_iterable" not in stages


def noted_runs(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Allow groups, and return a list of the datasets that get a run of their own, which grows with each of them."""
    opened: list[Any] = []
    open_inner = InnerStreams._open

    def noted(streams: InnerStreams, inner: Any, *args: Any) -> Any:
        opened.append(inner)
        return open_inner(streams, inner, *args)

    monkeypatch.setattr(group_limits, "GROUP_NBYTES", 4 << 20)
    monkeypatch.setattr(InnerStreams, "_open", noted)
    return opened


@pytest.mark.parametrize("cycle", [1, 3])
def test_operators_over_rows_in_memory_run_for_many_datasets_at_once(
    cycle: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = noted_runs(monkeypatch)
    dataset = asd.Dataset.range(200).interleave(lambda row: mapped(row).take(3), cycle_length=cycle)
    assert len(list(dataset)) == sum(min(3, LENGTHS[row % len(LENGTHS)]) for row in range(200))
    assert len(opened) < 20


def test_a_group_that_is_late_is_finished_if_its_function_is_cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = noted_runs(monkeypatch)
    first_times = iter([0.0, 0.0])  # of the first group: its start, and the time of its first rows
    monkeypatch.setattr(small_plans, "perf_counter", lambda: next(first_times, 1.0))
    assert len(list(asd.Dataset.range(200).flat_map(mapped))) == sum(map(len, map(rows_of, range(200))))
    assert len(opened) < 20


def test_a_costly_function_of_inner_datasets_runs_in_several_threads() -> None:
    threads: set[int] = set()

    def slow(row: int) -> int:
        threads.add(threading.get_ident())
        time.sleep(0.01)
        return row

    dataset = asd.Dataset.range(60).interleave(lambda row: asd.Dataset.range(row, row + 3).map(slow), cycle_length=4)
    assert sorted(dataset) == sorted(row + more for row in range(60) for more in range(3))
    assert len(threads) > 1


def test_random_numbers_of_inner_datasets_do_not_depend_on_their_groups() -> None:
    def drawn(row: int, rng: np.random.Generator) -> tuple[int, int]:
        return row, int(rng.integers(1 << 30))

    dataset = asd.Dataset.range(80).flat_map(lambda row: asd.Dataset.range(row % 4).map(drawn))
    with dataset.open(seed=3) as together, dataset.open(seed=3, debug=True) as alone:
        assert list(together) == list(alone)
        assert together.stream_hash == alone.stream_hash
