"""User functions that ask for a memoryview instead of bytes."""

from __future__ import annotations

from functools import partial
from typing import Any, Optional, TypedDict

import numpy as np
import pytest

from aiostream_data import BytesArray, Dataset
from aiostream_data._engine.calls.view_arguments import NO_VIEWS, views_of

ROWS = [b"a", b"", b"ccc", b"x" * 40_000]


class Record(TypedDict):
    image: memoryview
    label: int


def size_of(record: memoryview) -> tuple[str, int]:
    return type(record).__name__, len(record)


def size_of_second(number: int, record: memoryview) -> tuple[str, int]:
    return size_of(record)


def size_of_image(record: Record) -> tuple[str, int]:
    return size_of(record["image"])


def scaled(factor: int, record: memoryview) -> int:
    return factor * len(record)


async def size_later(record: memoryview) -> tuple[str, int]:
    return size_of(record)


class Sizes:
    def __call__(self, record: memoryview) -> tuple[str, int]:
        return size_of(record)

    def of(self, record: memoryview) -> tuple[str, int]:
        return size_of(record)


EXPECTED = [("memoryview", len(row)) for row in ROWS]


def sources() -> list[Dataset[Any]]:
    return [
        Dataset.from_tensor_slices(BytesArray.from_list(ROWS)),
        Dataset.from_tensor_slices(BytesArray.from_list(ROWS)).shuffle(1),
        Dataset.from_iterable(ROWS),
        Dataset.from_generator(lambda: iter(ROWS)),
    ]


@pytest.mark.parametrize(
    "function", [size_of, size_later, Sizes(), Sizes().of], ids=["function", "coroutine", "object", "method"]
)
def test_a_function_annotated_with_memoryview_receives_one(function: Any) -> None:
    for source in sources():
        assert list(source.map(function)) == EXPECTED


def test_functions_in_processes_receive_views_as_well() -> None:
    source = Dataset.from_tensor_slices(BytesArray.from_list(ROWS))
    assert list(source.map(size_of, executor="process", concurrency=1)) == EXPECTED


def test_annotations_count_for_parts_of_tuples_and_fields_of_dicts() -> None:
    for source in sources():
        assert list(source.enumerate().map(size_of_second)) == EXPECTED
        assert list(source.map(lambda row: {"image": row, "label": 1}).map(size_of_image)) == EXPECTED
        assert list(source.map(partial(scaled, 2))) == [2 * len(row) for row in ROWS]


def test_other_functions_receive_bytes() -> None:
    for source in sources():
        assert list(source.map(lambda row: type(row))) == [bytes] * len(ROWS)
        assert list(source.filter(lambda row: row != b"")) == [row for row in ROWS if row]


def test_a_view_that_outlives_the_call_keeps_its_bytes(tmp_path: Any) -> None:
    (tmp_path / "records").write_bytes(np.arange(200_000, dtype=np.int64).tobytes())
    source = Dataset.from_fixed_length(str(tmp_path / "records"), 8)
    kept: list[memoryview] = []

    def keep(record: memoryview) -> int:
        kept.append(record)
        return 0

    assert sum(1 for _ in source.map(keep, executor="inline")) == 200_000
    assert all(view.readonly for view in kept[:10])
    assert np.frombuffer(b"".join(kept), np.int64).tolist() == list(range(200_000))


def unknown(record: NotDefined) -> None:  # type: ignore[name-defined]  # noqa: F821
    return None


def test_functions_without_such_annotations_have_no_views() -> None:
    functions: list[Any] = [unknown, len, str.encode, lambda x: x, print, partial(len), dict]
    assert {views_of(function) for function in functions} == {NO_VIEWS}


def test_missing_values_may_be_annotated() -> None:
    def kind_of(record: memoryview | None) -> str:
        return type(record).__name__

    def kind_of_optional(record: Optional[memoryview]) -> str:  # noqa: UP045 - the older form
        return type(record).__name__

    rows = Dataset.from_iterable([b"a", b"bb", None])
    for function in (kind_of, kind_of_optional):
        assert views_of(function) == {0}
        assert list(rows.map(function)) == ["memoryview", "memoryview", "NoneType"]
    assert views_of(lambda record: record) == NO_VIEWS
