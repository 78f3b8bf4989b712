"""``rebatch(strings=)``: the same forms of bytes and text as in ``batch``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from aiostream_data import ArraySpec, BatchShapeError, BytesArray, Dataset, PlanError, RaggedArray, TextArray
from aiostream_data.rows.text_arrays import FORMS
from aiostream_data.testing.resume import resumes_everywhere

WORDS = ["a", "", "\u00e4\0", "long" * 9, "b"] * 5
MISSING = [None if row % 4 == 3 else word for row, word in enumerate(WORDS)]


def plain(batch: Any) -> Any:
    return batch.to_padded() if isinstance(batch, RaggedArray) else np.array(batch)


@pytest.mark.parametrize("earlier", ["objects", "columns", "string_dtype"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("as_bytes", [True, False])
def test_rebatch_makes_the_batches_of_unbatch_and_batch(as_bytes: bool, form: Any, earlier: Any) -> None:
    words: list[Any] = [word.encode() for word in WORDS] if as_bytes else WORDS
    source = Dataset.from_tensor_slices(words).batch(3, strings=earlier)
    found = list(source.rebatch(7, strings=form))
    wanted = list(source.unbatch().batch(7, strings=form))
    assert len(found) == len(wanted)
    for batch, other in zip(found, wanted, strict=True):
        assert type(batch) is type(other)
        assert getattr(batch, "dtype", None) == getattr(other, "dtype", None)
        assert np.array_equal(plain(batch), plain(other))


def test_without_a_form_batches_of_columns_become_objects() -> None:
    batches = list(Dataset.from_tensor_slices(["a", "b"]).batch(1, strings="columns").rebatch(2))
    assert [(batch.dtype, batch.tolist()) for batch in batches] == [(np.dtype(object), ["a", "b"])]


@pytest.mark.parametrize("earlier", ["objects", "columns"])
@pytest.mark.parametrize("size", [1, 2, 5, 25])
def test_missing_values_stay_missing_in_columns(size: int, earlier: Any) -> None:
    rows: Dataset[Any] = Dataset.from_tensor_slices({"n": np.arange(25), "word": TextArray.from_list(MISSING)})
    batches = list(rows.batch(size, strings=earlier).rebatch([4, 3], strings="columns"))
    assert {type(batch["word"]) for batch in batches} == {TextArray}
    assert [len(batch["n"]) for batch in batches] == [4, 3, 4, 3, 4, 3, 4]
    assert [word for batch in batches for word in batch["word"]] == MISSING


def test_a_form_without_missing_values_names_the_row() -> None:
    rows = Dataset.from_tensor_slices(TextArray.from_list(["a", None])).batch(1)
    with pytest.raises(BatchShapeError, match=r"cannot batch leaf 'element': .*record 1 has no value"):
        list(rows.rebatch(2, strings="ragged"))


def test_the_spec_of_rebatched_text_is_that_of_a_batch() -> None:
    source = Dataset.from_tensor_slices({"word": WORDS, "n": np.arange(25)})
    for form in FORMS:
        rebatched = source.batch(4).rebatch(5, strings=form, drop_remainder=True)
        assert rebatched.element_spec == source.batch(5, strings=form, drop_remainder=True).element_spec
    assert source.batch(4).rebatch(5).element_spec["word"] == ArraySpec((None,), np.dtype(object))


@pytest.mark.parametrize("form", ["ragged", "padded"])
def test_the_spec_leaves_open_how_values_of_unknown_type_are_stacked(form: Any) -> None:
    rebatched = Dataset.from_tensor_slices(WORDS).batch(4, strings="string_dtype").rebatch(5, strings=form)
    assert rebatched.element_spec == ArraySpec(None, None)


@pytest.mark.parametrize("form", ["object", "", None, 3, ["columns"]])
def test_an_unknown_form_is_refused_by_rebatch(form: Any) -> None:
    with pytest.raises(PlanError, match="strings must be one of objects, columns"):
        Dataset.range(3).batch(2).rebatch(2, strings=form)


def test_the_form_is_a_part_of_the_fingerprint() -> None:
    rows = Dataset.from_tensor_slices(WORDS).batch(2)
    assert rows.rebatch(3, strings="objects").fingerprint() == rows.rebatch(3).fingerprint()
    assert rows.rebatch(3, strings="columns").fingerprint() != rows.rebatch(3).fingerprint()


def test_rebatched_columns_are_the_same_after_every_stop() -> None:
    words: Dataset[Any] = Dataset.from_tensor_slices(TextArray.from_list(MISSING))
    resumes_everywhere(words.batch(4, strings="columns").rebatch([3, 2], strings="columns"))


RAGGED = RaggedArray(np.arange(6), np.array([0, 1, 3, 6]))
ALIASED: dict[str, tuple[Any, Callable[[Dataset[Any]], Dataset[Any]]]] = {
    "text": (TextArray.from_list(["a", "b", "c"]), lambda rows: rows.rebatch(3, strings="columns")),
    "bytes": (BytesArray.from_list([b"a", b"b", b"c"]), lambda rows: rows.rebatch(3, strings="ragged")),
    "rebatch": (RAGGED, lambda rows: rows.rebatch(3)),
    "window": (RAGGED, lambda rows: rows.unbatch().window(3)),
    "bucket": (RAGGED, lambda rows: rows.unbatch().bucket_by_sequence_length(len, [9], [3, 3], no_padding=True)),
    "by cost": (RAGGED, lambda rows: rows.unbatch().batch(max_cost=6, cost=len, padded=False)),
}


@pytest.mark.parametrize("name", ALIASED)
def test_combined_elements_share_no_memory_with_the_rows_of_one_chunk(name: str) -> None:
    array, combine = ALIASED[name]
    (batch,) = combine(Dataset.from_iterable([array]))
    assert len(batch) == 3
    assert batch.values.flags.writeable
    assert not np.shares_memory(batch.values, array.values)
    assert not np.shares_memory(batch.row_splits, array.row_splits)
