"""An error says the same wherever its function ran, once; and arrives as what it is, whatever that is."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from user_functions import fail_deeply

import aiostream_data as asd
from aiostream_data.errors import BatchShapeError, RecordError

HUNDRED = asd.Dataset.range(100)


def error_of(dataset: asd.Dataset[Any], **options: Any) -> BaseException:
    with dataset.open(**options) as loader, pytest.raises(BaseException) as caught:
        list(loader)
    return caught.value


def said(error: BaseException) -> list[str]:
    """Return the first line of every note, without the place in the program."""
    return [note.splitlines()[0].partition(", written at")[0].partition(" (")[0] for note in error.__notes__]


ELSEWHERE: dict[str, Callable[[], asd.Dataset[Any]]] = {
    "process": lambda: HUNDRED.map(fail_deeply, executor="process", concurrency=1),
    "in_subprocess": lambda: HUNDRED.map(fail_deeply).batch(4).in_subprocess(),
    "two in_subprocess": lambda: HUNDRED.map(fail_deeply).batch(4).in_subprocess(2),
    "process in_subprocess": lambda: HUNDRED.map(fail_deeply, executor="process", concurrency=1).in_subprocess(),
}


@pytest.mark.parametrize("build", ELSEWHERE.values(), ids=ELSEWHERE)
def test_from_another_process_everything_is_said_once(build: Callable[[], asd.Dataset[Any]]) -> None:
    error = error_of(build())
    assert isinstance(error, ValueError)
    assert said(error) == [
        "stage: map",
        "function: fail_deeply",
        "record: range record 7",
        "element: 7",
        "worker traceback:",
    ]
    printed = "".join(traceback.format_exception(error))
    assert printed.count("range record 7") == 1
    assert printed.count("in _too_deep") == 1
    assert "record: row" not in printed
    frames = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    assert frames[-2:] == ["_has_more", "_accept"]


def test_the_cause_of_an_error_in_a_process_is_the_original_with_nothing_said_twice() -> None:
    error = error_of(ELSEWHERE["process"]())
    assert isinstance(error, RecordError)
    assert type(error.__cause__) is ValueError
    assert not getattr(error.__cause__, "__notes__", None)


def add_a_note_and_fail(number: int) -> None:
    error = ValueError("refused")
    error.add_note("a note of the user's")
    raise error


def test_notes_of_the_user_travel_too() -> None:
    error = error_of(HUNDRED.map(add_a_note_and_fail, executor="process", concurrency=1))
    assert error.__notes__.count("a note of the user's") == 1


def test_an_error_of_ours_from_another_process_needs_no_traceback() -> None:
    error = error_of(HUNDRED.map(_of_its_own_length).batch(4).in_subprocess())
    assert isinstance(error, BatchShapeError)
    assert said(error) == ["stage: batch", "made by: _of_its_own_length"]


def _of_its_own_length(number: int) -> Any:
    return np.zeros(number + 1)


def fail_on_a_batch(numbers: Any) -> Any:
    raise ValueError("refused")


def test_rows_given_to_a_process_at_once_are_named() -> None:
    error = error_of(HUNDRED.map(fail_on_a_batch, batched=True, executor="process", concurrency=1))
    note = next(note for note in error.__notes__ if note.startswith("records: "))
    assert note.startswith("records: range record 0 to range record ")


def in_a_group(number: int) -> int:
    if number == 7:
        raise ExceptionGroup("both", [ValueError("left"), KeyError("right")])
    return number


async def in_a_task_group(number: int) -> int:
    async with asyncio.TaskGroup() as group:
        group.create_task(asyncio.sleep(0))
        group.create_task(_sub_task(number))
    return number


async def _sub_task(number: int) -> int:
    return in_a_group(number)


async def generate_in_a_group() -> AsyncIterator[int]:
    for number in range(10):
        yield in_a_group(number)


GROUPS: dict[str, Callable[[], asd.Dataset[Any]]] = {
    "thread": lambda: HUNDRED.map(in_a_group),
    "coroutine": lambda: HUNDRED.map(in_a_task_group),
    "generator": lambda: asd.Dataset.from_generator(lambda: map(in_a_group, range(10))),
    "async generator": lambda: asd.Dataset.from_generator(generate_in_a_group),
    "flat_map": lambda: HUNDRED.flat_map(lambda number: (in_a_group(number) for _ in range(2))),
    "in_subprocess": lambda: HUNDRED.map(in_a_group).in_subprocess(),
    "stepped": lambda: HUNDRED.map(in_a_task_group),
}


@pytest.mark.parametrize("how", GROUPS)
def test_a_group_of_exceptions_arrives_whole(how: str) -> None:
    error = error_of(GROUPS[how](), debug=how == "stepped")
    assert isinstance(error, ExceptionGroup)
    leaves = error.exceptions[0].exceptions if isinstance(error.exceptions[0], ExceptionGroup) else error.exceptions
    assert [type(leaf) for leaf in leaves] == [ValueError, KeyError]
    assert any(note.startswith("stage: ") for note in error.__notes__)
    assert any(note.startswith("record: ") for note in error.__notes__)


def test_a_group_from_a_process_says_what_was_in_it() -> None:
    error = error_of(HUNDRED.map(in_a_group, executor="process", concurrency=1))
    assert isinstance(error, RecordError)
    assert "ValueError: left" in error.worker_traceback
    assert isinstance(error.__cause__, ExceptionGroup)


def test_groups_can_be_skipped_like_any_other_error() -> None:
    with HUNDRED.map(in_a_group, on_error="skip").open() as loader:
        assert 7 not in list(loader)


def test_of_an_error_that_all_coroutines_raise_the_record_that_ends_the_stream_is_named() -> None:
    gone = ConnectionError("the service is gone")

    async def ask(number: int) -> int:
        await asyncio.sleep(0.01 if number < 7 else 0)
        if number >= 7:
            raise gone
        return number

    error = error_of(HUNDRED.map(ask, concurrency=32))
    assert said(error) == [
        "stage: map",
        f"function: {ask.__qualname__}",
        "record: range record 7",
        "element: 7",
    ]


@pytest.mark.parametrize("executor", ["thread", "coroutine"])
def test_an_error_that_is_raised_again_and_again_and_skipped_keeps_nothing(executor: str) -> None:
    gone = ConnectionError("the service is gone")

    def ask(number: int) -> int:
        raise gone

    async def ask_later(number: int) -> int:
        raise gone

    function: Any = ask_later if executor == "coroutine" else ask
    with HUNDRED.map(function, on_error="skip").open() as loader:
        assert list(loader) == []
    assert getattr(gone, "__notes__", []) == []
    assert gone.__traceback__ is None


def generate(number: int) -> Iterator[int]:
    for part in range(3):
        if (number, part) == (2, 1):
            raise ValueError("in the middle")
        yield part


@pytest.mark.parametrize("operator", ["flat_map", "interleave"])
def test_what_a_generator_function_raises_names_the_operator_the_function_and_the_row(operator: str) -> None:
    error = error_of(getattr(HUNDRED, operator)(generate))
    assert said(error) == [
        f"stage: {operator}",
        "function: generate",
        "record: element 1 of those made for range record 2",
    ]
    assert __file__.rpartition("/")[2] in error.__notes__[0]


def test_what_fails_in_an_inner_data_set_names_the_row_that_it_was_made_for() -> None:
    error = error_of(HUNDRED.take(1).flat_map(lambda number: asd.Dataset.range(8).map(fail_deeply)))
    assert "record: range record 7" in error.__notes__
    (inside,) = (note for note in error.__notes__ if note.startswith("in the dataset that "))
    assert " returned for range record 0, by flat_map, written at " in inside


def make_records(name: str, **options: Any) -> asd.Dataset[bytes]:
    return asd.Dataset.from_tfrecord(name, **options)


@pytest.mark.parametrize("operator", ["flat_map", "interleave"])
@pytest.mark.parametrize("content", [None, b"no records at all"], ids=["missing", "damaged"])
def test_an_inner_file_that_cannot_be_read_says_which_data_set_to_give_on_error(
    tmp_path: Path, content: bytes | None, operator: str
) -> None:
    if content is not None:
        (tmp_path / "x").write_bytes(content)
    names = asd.Dataset.from_iterable([str(tmp_path / "x")])
    error = error_of(getattr(names, operator)(make_records, on_error="skip"), on_error="skip")
    assert isinstance(error, (asd.CorruptRecordError, asd.ObjectNotFoundError))
    (hint,) = (note for note in error.__notes__ if "on_error=" in note)
    line = make_records.__code__.co_firstlineno
    assert "pass on_error= to the dataset that make_records (" in hint
    assert f"test_errors_from_anywhere.py:{line}) returns" in hint
    assert f"on_error= of {operator}() and open() does not apply" in hint
    mended = getattr(names, operator)(lambda name: make_records(name, on_error="skip"))
    assert list(mended) == []


def test_an_inner_file_is_told_once_how_to_skip_it_in_data_sets_inside_each_other(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("line")
    lines = asd.Dataset.from_text(tmp_path / "x")
    error = error_of(HUNDRED.flat_map(lambda _: lines.flat_map(lambda _: make_records(str(tmp_path / "y")))))
    assert sum("on_error=" in note for note in error.__notes__) == 1


def test_an_inner_error_that_no_policy_skips_says_nothing_of_on_error(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"no records at all")
    name = str(tmp_path / "x")
    budget = asd.Skip(max_count=0)
    for error in (
        error_of(HUNDRED.flat_map(lambda _: make_records(name, on_error=budget))),
        error_of(HUNDRED.flat_map(lambda _: make_records(str(tmp_path / "none-*")))),
        error_of(HUNDRED.take(1).flat_map(lambda _: asd.Dataset.range(8).map(fail_deeply))),
    ):
        assert not any("on_error=" in note for note in error.__notes__)


def test_what_a_source_of_the_users_raises_names_the_element() -> None:
    error = error_of(asd.Dataset.from_generator(generate, args=(2,)))
    assert said(error) == ["stage: from_generator", "record: from_generator(generate) record 1"]


class Hostile:
    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)


def test_an_element_that_cannot_be_looked_at_does_not_hide_the_error() -> None:
    def refuse(element: Any) -> None:
        raise ValueError("refused")

    error = error_of(asd.Dataset.from_iterable([Hostile()]).map(lambda element: element).map(refuse))
    assert str(error) == "refused"
    assert error.__notes__[-1] == "element: Hostile"


def fail_on_seven(numbers: Any) -> Any:
    if np.any(numbers == 7):
        raise ValueError("seven is refused")
    return numbers


@pytest.mark.parametrize("executor", ["thread", "process"])
def test_of_a_batch_the_first_record_is_named_and_how_many_there_are(executor: Any) -> None:
    error = error_of(HUNDRED.batch(4).map(fail_on_seven, executor=executor, concurrency=1))
    batch = "element: int64[4], a batch of 4: put a function of single rows before batch()"
    assert said(error)[2:4] == ["record: range record 4, the first of 4", batch]


def test_functions_without_a_name_are_told_by_what_they_call() -> None:
    class Refuse:
        def __call__(self, number: int) -> None:
            raise ValueError("refused")

    here = __file__.rpartition("/")[2]
    (note,) = (note for note in error_of(HUNDRED.map(partial(fail_deeply))).__notes__ if note.startswith("function"))
    assert note.startswith("function: partial of fail_deeply (")
    (note,) = (note for note in error_of(HUNDRED.map(Refuse())).__notes__ if note.startswith("function"))
    assert f"<locals>.Refuse (tests/integration/{here}:" in note or f"<locals>.Refuse ({here}:" in note


@pytest.mark.parametrize("operator", ["batch", "padded_batch"])
def test_a_leaf_that_does_not_stack_is_named_as_it_is_in_the_element(operator: str) -> None:
    ranks = HUNDRED.map(lambda number: {"image": np.zeros((2, 2) if number == 7 else 2)})
    message = str(error_of(getattr(ranks, operator)(4)))
    assert message.startswith("cannot batch leaf 'image': shape (2,) of float64 in range record 4 but shape (2, 2)")
