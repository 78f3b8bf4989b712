"""``batch(strings=)`` looks at the values of rows that are Python objects: the form does not depend on their chunks."""

from __future__ import annotations

from typing import Any

import pytest

from aiostream_data import BatchShapeError, Dataset
from aiostream_data.testing.resume import resumes_everywhere

ROWS = [{"n": row, "text": None if row % 4 == 3 else f"text {row}"} for row in range(24)]
BASE = Dataset.from_iterable(ROWS)
CHUNKED = {
    "as they are": BASE,
    "of two": BASE.batch(2).unbatch(),
    "of three": BASE.batch(3).unbatch(),
    "of five, buffered": BASE.batch(5).unbatch().shuffle(1),
    "of all": BASE.batch(24).unbatch(),
}


def described(batch: Any) -> tuple[str, list[Any]]:
    return type(batch["text"]).__name__, list(batch["text"])


@pytest.mark.parametrize("chunked", CHUNKED.values(), ids=CHUNKED.keys())
def test_text_with_missing_values_becomes_columns(chunked: Dataset[Any]) -> None:
    found = [described(batch) for batch in chunked.batch(2, strings="columns")]
    texts = [row["text"] for row in ROWS]
    assert found == [("TextArray", texts[row : row + 2]) for row in range(0, 24, 2)]


@pytest.mark.parametrize("chunked", CHUNKED.values(), ids=CHUNKED.keys())
def test_a_form_without_missing_values_refuses_them(chunked: Dataset[Any]) -> None:
    received: list[Any] = []
    with pytest.raises(BatchShapeError, match=r"cannot batch leaf 'text': .* has no value"):
        received.extend(chunked.batch(2, strings="padded"))
    assert len(received) == 1


def test_rows_of_objects_that_are_no_text_stay_objects() -> None:
    values = [frozenset({row}) for row in range(6)]
    sets = Dataset.from_iterable([{"text": value} for value in values]).batch(6).unbatch()
    found = [described(batch) for batch in sets.batch(2, strings="columns")]
    assert found == [("ndarray", values[row : row + 2]) for row in (0, 2, 4)]


def test_batches_of_object_rows_are_the_same_after_every_stop() -> None:
    resumes_everywhere(CHUNKED["of three"].skip(5).batch(2, strings="columns"))
