"""Whatever a function raises or returns in a worker process is told of the right record, and the next record works."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from awkward_functions import RAISED, RETURNED, awaited_awkward_on_seven, awkward_on_seven
from leaks import leaves_nothing

from aiostream_data import Dataset, Skip
from aiostream_data.errors import RecordError

ENDS_ANYWAY = ("SystemExit", "KeyboardInterrupt", "GeneratorExit", "OwnBase")
"""No exceptions in Python's sense, and so none that a policy is for."""


def numbers(kind: str, **how: Any) -> Dataset[Any]:
    return Dataset.range(20).map(partial(awkward_on_seven, kind), executor="process", concurrency=1, **how)


@pytest.mark.parametrize("kind", RAISED)
def test_r02_an_awkward_exception_is_reported_with_type_traceback_stage_and_record(kind: str) -> None:
    with leaves_nothing(), pytest.raises(RecordError) as caught:
        list(numbers(kind))
    error = caught.value
    assert error.type_name.endswith(kind)
    assert "in awkward_on_seven" in error.worker_traceback
    notes = "\n".join(error.__notes__)
    assert "stage: map" in notes
    assert "record: range record 7" in notes


OTHER_PLACES: dict[str, Callable[..., Dataset[Any]]] = {
    "threads": lambda kind, **how: Dataset.range(20).map(partial(awkward_on_seven, kind), **how),
    "numbers": lambda kind, **how: Dataset.range(20).map(lambda x: awkward_on_seven(kind, x), **how),
    "arrays": lambda kind, **how: Dataset.range(20).map(
        lambda rows: [awkward_on_seven(kind, row) for row in rows], batched=True, **how
    ),
    "coroutines": lambda kind, **how: Dataset.range(20).map(partial(awaited_awkward_on_seven, kind), **how),
    "flat_map": lambda kind, **how: Dataset.range(20).flat_map(lambda x: [awkward_on_seven(kind, x)], **how),
}


@pytest.mark.parametrize("kind", RAISED)
@pytest.mark.parametrize("place", OTHER_PLACES)
def test_r02_an_awkward_exception_in_this_process_is_told_with_stage_and_record(place: str, kind: str) -> None:
    with leaves_nothing(), pytest.raises(BaseException) as caught:
        list(OTHER_PLACES[place](kind))
    error = caught.value
    found = type(error.__cause__ or error).__name__, type(error).__name__
    assert kind in found
    assert any(note.startswith("stage: ") for note in error.__notes__)
    assert any(note.startswith("record") for note in error.__notes__)
    traceback.format_exception(error)


@pytest.mark.parametrize("kind", [kind for kind in RAISED if kind not in ENDS_ANYWAY])
@pytest.mark.parametrize("place", OTHER_PLACES)
def test_r02_an_awkward_exception_in_this_process_can_be_skipped(place: str, kind: str) -> None:
    with leaves_nothing():
        assert list(OTHER_PLACES[place](kind, on_error="skip")) == [number for number in range(20) if number != 7]


@pytest.mark.parametrize("kind", RAISED)
def test_r02_an_awkward_exception_of_a_generator_is_told(kind: str) -> None:
    def rows() -> Iterator[Any]:
        for number in range(20):
            yield awkward_on_seven(kind, number)

    with leaves_nothing(), pytest.raises(BaseException) as caught:
        list(Dataset.from_generator(rows))
    causes = [caught.value, caught.value.__cause__, getattr(caught.value.__cause__, "__cause__", None)]
    assert kind in [type(error).__name__ for error in causes]


@pytest.mark.parametrize("kind", RETURNED)
def test_r02_a_result_that_does_not_travel_is_reported_with_its_stage_and_record(kind: str) -> None:
    with leaves_nothing(), pytest.raises(RecordError) as caught:
        list(numbers(kind))
    notes = "\n".join(caught.value.__notes__)
    assert "stage: map" in notes
    assert "record: range record 7" in notes


@pytest.mark.parametrize("kind", [kind for kind in (*RAISED, *RETURNED) if kind not in ENDS_ANYWAY])
def test_r02_the_workers_are_usable_for_the_next_record_when_errors_are_skipped(kind: str) -> None:
    with leaves_nothing():
        assert list(numbers(kind, on_error=Skip())) == [number for number in range(20) if number != 7]
