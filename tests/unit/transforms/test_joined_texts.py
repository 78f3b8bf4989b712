"""Columns of text joined to object columns: missing values do not change the other leaves."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from aiostream_data import Dataset, RaggedArray

LISTS = [[1], [2, 3], [], [4]]


def dataset(texts: tuple[str | None, ...], kind: pa.DataType) -> Dataset[Any]:
    rows = [None if text is None or kind == pa.string() else text.encode() for text in texts]
    given = texts if kind == pa.string() else rows
    return Dataset.from_dataframe(pa.table({"l": LISTS, "t": pa.array(given, kind)}))


@pytest.mark.parametrize("kind", [pa.string(), pa.binary()], ids=str)
@pytest.mark.parametrize("texts", sorted(set(permutations(("a", "b", None, None))), key=str), ids=str)
def test_lists_stay_ragged_wherever_text_is_missing(texts: tuple[str | None, ...], kind: pa.DataType) -> None:
    rows = dataset(texts, kind)
    expected = [(row["l"].tolist(), row["t"]) for row in rows]
    pipelines = [
        rows.batch(2).rebatch(3),
        rows.batch(2).unbatch().batch(2),
        rows.window(2).unbatch().batch(3),
        rows.ragged_batch(2).unbatch().batch(3),
        rows.batch(2).unbatch().batch(3, strings="columns"),
    ]
    for batches in map(list, pipelines):
        assert all(isinstance(batch["l"], RaggedArray) for batch in batches)
        lists = [each.tolist() for batch in batches for each in batch["l"]]
        assert list(zip(lists, [text for batch in batches for text in batch["t"]], strict=True)) == expected


@pytest.mark.parametrize("texts", [("a", "b", None, None), (None, None, "a", "b"), ("a", None, "b", None)], ids=str)
def test_lists_stay_ragged_behind_shuffle_and_concatenate(texts: tuple[str | None, ...]) -> None:
    rows = dataset(texts, pa.string())
    split = rows.batch(2).unbatch()
    for joined in (split.shuffle(3, seed=1), split.concatenate(rows), rows.concatenate(split)):
        batches = list(joined.batch(4))
        assert all(isinstance(batch["l"], RaggedArray) for batch in batches)
        found = [text for batch in batches for text in batch["t"]]
        assert sorted(map(str, found)) == sorted(map(str, texts * (len(found) // 4)))


def test_text_joined_to_other_objects_stays_as_it_is() -> None:
    batches = [np.array(["a", "b"], object), np.array([1, None], object)]
    assert list(Dataset.from_generator(lambda: iter(batches)).unbatch()) == ["a", "b", 1, None]
